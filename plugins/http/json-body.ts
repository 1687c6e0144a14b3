import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from './errors.js'
import { metadata } from './plugin.js'

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
}, metadata('json-body'))

function readAsJson ({ headers, raw }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  // Without a content type, Fastify reads a body only if its length is known, which it need not be in HTTP/2.
  if (headers['content-type'] !== undefined || raw.httpVersionMajor === 2) headers['content-type'] = 'application/json'
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
