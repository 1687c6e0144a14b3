import { isUtf8 } from 'node:buffer'
import { setImmediate as nextTurn } from 'node:timers/promises'
import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest, RequestPayload } from 'fastify'
import { safeParse } from 'secure-json-parse'
import { metadata } from '../plugin.js'
import { httpError, invalid } from './errors.js'

/** Deeper values could exhaust the stack of functions that follow them, and take long to write. Ruby has the same limit. */
const maxDepth = 100

/** Parses every request body as JSON, whatever its content type is. */
export default fp(async function jsonBody (app) {
  // Fastify rejects a malformed content type before it calls a parser.
  app.addHook('onRoute', function forceJson (route) {
    if (route.method !== 'GET' && route.method !== 'HEAD') route.onRequest = [route.onRequest ?? [], forceJsonContentType].flat()
  })

  app.removeAllContentTypeParsers()
  app.addContentTypeParser(['application/json', '*'], function parseBody (request, payload, done) {
    const { bodyLimit } = request.routeOptions
    readBody(request, payload, bodyLimit, function parse (error, body) {
      if (error || body.length === 0) return done(error)
      if (!isUtf8(body)) return done(invalidBody('must be UTF-8'))
      const text = body.toString()
      const problem = problemOfStructure(text, bodyLimit)
      if (problem) return done(invalidBody(problem))
      const value: unknown = safeParse(text) // undefined if it is not JSON, and null if it has a forbidden key
      if (value === undefined) return done(invalidBody('must be valid JSON'))
      if (value === null && text.trim() !== 'null') return done(invalidBody('must not contain the key __proto__ or constructor.prototype'))
      // In JSON, the longest form of a number is five times as long as its shortest one, which has an exponent.
      if (text.length * 5 >= bodyLimit && /\de/i.test(text) && isLargerThan(bodyLimit, value)) return done(httpError(413))
      if (isLarge(request)) afterOthers().then(() => done(null, value))
      else done(null, value)
    })
  })
}, metadata('json-body'))

/** A body with more bytes takes long. */
export const largeBody = 200_000

/** Returns whether a body may be large, so that it is handled in several turns of the event loop. Other requests wait less then. */
export function isLarge ({ headers }: FastifyRequest) {
  return !(Number(headers['content-length']) < largeBody)
}

/** Waits until the requests that have arrived are handled: for two turns of the event loop, because the server handles them at the end of one. */
export async function afterOthers () {
  await nextTurn()
  await nextTurn()
}

/** Returns whether a value in JSON is larger than a body can be. */
export function isLargerThan (bodyLimit: number, value: unknown) {
  const text = JSON.stringify(value)
  return Buffer.byteLength(text) > bodyLimit || problemOfStructure(text, bodyLimit) !== undefined
}

/** Reads a body into one buffer. Fastify would keep a Buffer for each chunk, which needs 500 bytes even if the chunk has one. */
function readBody ({ headers, raw }: FastifyRequest, payload: RequestPayload, bodyLimit: number, done: (error: Error | null, body: Buffer) => void) {
  let body: Buffer = Buffer.alloc(0)
  let length = 0
  if (Number(headers['content-length']) > bodyLimit) return done(httpError(413), body)
  payload.on('data', onData).on('end', onEnd).on('error', onEnd).resume()

  function onData (data: Buffer | string) { // a hook of the host may have replaced the stream
    const chunk = typeof data === 'string' ? Buffer.from(data) : data
    const start = length
    length += chunk.length
    if (Math.max(length, payload.receivedEncodedLength ?? 0) > bodyLimit) return finish(httpError(413))
    if (start === 0) body = chunk
    else {
      if (length > body.length) body = Buffer.concat([body.subarray(0, start)], 2 * length)
      chunk.copy(body, start)
    }
  }

  function onEnd (error?: Error & { statusCode?: number }) {
    // Node checks the length of what a connection sends, but not of what `inject` sends.
    if (!error && payload === raw && length !== Number(headers['content-length'] ?? length)) return finish(invalid('headers', [{ path: '/content-length', message: 'must be the length of the body' }]))
    finish(error ? Object.assign(error, { statusCode: error.statusCode ?? 400 }) : null)
  }

  function finish (error: Error | null) {
    payload.off('data', onData).off('end', onEnd).off('error', onEnd)
    done(error, body.subarray(0, length))
  }
}

function invalidBody (message: string) {
  return invalid('body', [{ path: '', message }])
}

/** An array or object takes far more time and memory than a number. So a body has at most one for each 10 bytes of its limit. */
function problemOfStructure (text: string, bodyLimit: number) {
  if (text.length < 2 * maxDepth) return
  const maxParts = Math.floor(bodyLimit / 10)
  let depth = 0
  let parts = 0
  for (let n = 0, inString = false; n < text.length; n++) {
    const character = text[n]
    if (character === '\\') n++
    else if (character === '"') inString = !inString
    else if (!inString && (character === '{' || character === '[')) {
      if (++depth > maxDepth) return `must not be nested more than ${maxDepth} times`
      if (++parts > maxParts) return `must not have more than ${maxParts} arrays and objects`
    } else if (!inString && (character === '}' || character === ']')) depth--
  }
}

function forceJsonContentType ({ headers, raw }: FastifyRequest, _reply: FastifyReply, done: () => void) {
  // Without a content type, Fastify reads a body only if its length is known, which it need not be in HTTP/2.
  if (headers['content-type'] !== undefined || raw.httpVersionMajor === 2) headers['content-type'] = 'application/json'
  done()
}
