import { isUtf8 } from 'node:buffer'
import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { safeParse } from 'secure-json-parse'
import { invalid } from './errors.js'
import { metadata } from './plugin.js'

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
    const text = isUtf8(body) ? body.toString() : undefined
    const value = text === undefined || isTooDeep(text) ? undefined : safeParse(text)
    const problem = problemWith(text, value)
    done(problem === undefined ? null : invalid('body', [{ path: '', message: problem }]), value)
  })
}, metadata('json-body'))

/** What is wrong with a text and its value, which is undefined if it is not JSON, and null if it has a forbidden key. */
function problemWith (text: string | undefined, value: unknown) {
  if (text === undefined) return 'must be UTF-8'
  if (value === undefined) return isTooDeep(text) ? `must not be nested more than ${maxDepth} times` : 'must be valid JSON'
  if (value === null && text.trim() !== 'null') return 'must not contain the key __proto__ or constructor.prototype'
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
