import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import { invalid } from './errors.js'

/** Reads every request body as JSON, whatever its content type says, or says not. */
export default fp(async function json (app) {
  const parse = app.getDefaultJsonParser('error', 'error')

  // Fastify refuses a malformed content type before any parser is asked.
  app.addHook('onRequest', async function readAsJson (request) {
    if (request.headers['content-type'] !== undefined) request.headers['content-type'] = 'application/json'
  })

  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>(['application/json', '*'], { parseAs: 'buffer' },
    function parseBody (request, body, done) {
      if (body.length === 0) return done(null)
      if (!isUtf8(body)) return done(invalid('body', [{ path: '', message: 'must be UTF-8' }]))
      parse(request, body.toString(), (error, value) => {
        done(error && invalid('body', [{ path: '', message: 'must be valid JSON' }]), value)
      })
    })
}, { fastify: '5.x', name: 'json' })
