import { isUtf8 } from 'node:buffer'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { safeParse } from 'secure-json-parse'
import { metadata } from '../common/plugin.js'
import { invalid } from './errors.js'

/** Parses every request body as JSON, whatever its content type is. */
export default fp(async function jsonBody (app) {
  app.addHook('onRequest', forceJsonContentType)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>('*', { parseAs: 'buffer' }, function parseBody (_request, body, done) {
    if (body.length === 0) return done(null, undefined)
    if (!isUtf8(body)) return done(invalidBody('must be UTF-8'))
    const text = body.toString()
    const value: unknown = safeParse(text) // undefined if it is not JSON, and null if it has a forbidden key
    if (value === undefined) return done(invalidBody('must be valid JSON'))
    if (value !== null || text.trim() === 'null') return done(null, value)
    done(invalidBody('must not contain the key __proto__ or constructor.prototype'))
  })
}, metadata('json-body'))

/** Fastify would reject a malformed content type before it calls a parser. */
function forceJsonContentType ({ headers, raw }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  // Without a content type, Fastify reads a body only if its length is known, which it need not be in HTTP/2.
  if (headers['content-type'] !== undefined || raw.httpVersionMajor === 2) headers['content-type'] = 'application/json'
  done()
}

function invalidBody (message: string) {
  return invalid('body', [{ path: '', message }])
}
