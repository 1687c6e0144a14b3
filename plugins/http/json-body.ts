import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { safeParse } from 'secure-json-parse'
import { invalid } from './errors.js'
import { metadata } from './plugin.js'

const forbidden = 'must not contain the key __proto__ or constructor.prototype'

/** Parses every request body as JSON, whatever its content type is. */
export default fp(async function jsonBody (app) {
  // Fastify rejects a malformed content type before it calls a parser.
  app.addHook('onRoute', function readsBody (route) {
    if (route.method !== 'GET' && route.method !== 'HEAD') route.onRequest = [route.onRequest ?? [], readAsJson].flat()
  })

  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>(['application/json', '*'], { parseAs: 'buffer' },
    function parseBody (_request, body, done) {
      if (body.length === 0) return done(null)
      if (!isUtf8(body)) return done(invalid('body', [{ path: '', message: 'must be UTF-8' }]))
      const text = body.toString()
      const value = safeParse(text) // undefined if it is not JSON, null if it has a forbidden key
      if (value === undefined) done(invalid('body', [{ path: '', message: 'must be valid JSON' }]))
      else if (value === null && text.trim() !== 'null') done(invalid('body', [{ path: '', message: forbidden }]))
      else done(null, value)
    })
}, metadata('json-body'))

function readAsJson ({ headers, raw }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  // Without a content type, Fastify reads a body only if its length is known, which it need not be in HTTP/2.
  if (headers['content-type'] !== undefined || raw.httpVersionMajor === 2) headers['content-type'] = 'application/json'
  done()
}
