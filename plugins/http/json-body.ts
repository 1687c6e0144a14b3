import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { safeParse } from 'secure-json-parse'
import { metadata } from '../plugin.js'
import { invalid } from './errors.js'

/** Deeper values could exhaust the stack of functions that follow them. */
const maxDepth = 500

/** Parses every request body as JSON, whatever its content type is. */
export default fp(async function jsonBody (app) {
  // Fastify rejects a malformed content type before it calls a parser.
  app.addHook('onRoute', function forceJson (route) {
    if (route.method !== 'GET' && route.method !== 'HEAD') route.onRequest = [route.onRequest ?? [], forceJsonContentType].flat()
  })

  app.removeAllContentTypeParsers()
  app.addContentTypeParser<Buffer>(['application/json', '*'], { parseAs: 'buffer' }, function parseBody (_request, body, done) {
    if (body.length === 0) return done(null)
    if (!isUtf8(body)) return done(invalidBody('must be UTF-8'))
    const text = body.toString()
    if (isTooDeep(text)) return done(invalidBody(`must not be nested more than ${maxDepth} times`))
    const value: unknown = safeParse(text) // undefined if it is not JSON, and null if it has a forbidden key
    if (value === undefined) return done(invalidBody('must be valid JSON'))
    if (value === null && text.trim() !== 'null') return done(invalidBody('must not contain the key __proto__ or constructor.prototype'))
    done(null, value)
  })
}, metadata('json-body'))

function invalidBody (message: string) {
  return invalid('body', [{ path: '', message }])
}

function isTooDeep (text: string) {
  if (text.length < 2 * maxDepth) return false
  let depth = 0
  for (let n = 0, inString = false; n < text.length && depth <= maxDepth; n++) {
    const character = text[n]
    if (character === '\\') n++
    else if (character === '"') inString = !inString
    else if (!inString && (character === '{' || character === '[')) depth++
    else if (!inString && (character === '}' || character === ']')) depth--
  }
  return depth > maxDepth
}

function forceJsonContentType ({ headers, raw }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  // Without a content type, Fastify reads a body only if its length is known, which it need not be in HTTP/2.
  if (headers['content-type'] !== undefined || raw.httpVersionMajor === 2) headers['content-type'] = 'application/json'
  done()
}
