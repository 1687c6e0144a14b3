import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from './errors.js'

const forbidden = 'must not contain the key __proto__ or constructor.prototype'

/** Parses every request body as JSON, whatever its content type is. */
export default fp(async function jsonBody (app) {
  const parse = app.getDefaultJsonParser('error', 'error')

  // Fastify rejects a malformed content type before it calls a parser.
  app.addHook('onRoute', function readsBody (route) {
    if (route.method !== 'GET' && route.method !== 'HEAD') route.onRequest = [route.onRequest ?? [], readAsJson].flat()
  })

  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>(['application/json', '*'], { parseAs: 'buffer' },
    function parseBody (request, body, done) {
      if (body.length === 0) return done(null)
      if (!isUtf8(body)) return done(invalid('body', [{ path: '', message: 'must be UTF-8' }]))
      const text = body.toString()
      parse(request, text, (error, value) => {
        done(error && invalid('body', [{ path: '', message: isJson(text) ? forbidden : 'must be valid JSON' }]), value)
      })
    })
}, { fastify: '5.x', name: 'fastify-items-users/json-body' })

function readAsJson ({ headers }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  if (headers['content-type'] !== undefined) headers['content-type'] = 'application/json'
  done()
}

function isJson (text: string) {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
