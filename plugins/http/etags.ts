import { Readable } from 'node:stream'
import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { codingFor, etagWith } from './content-coding.js'
import { notFound } from './errors.js'
import { cacheHeaders, setHeaders } from './responses.js'
import type { MaybePromise } from '../stores/store.js'

/** The headers of a GET. */
export const ReadingHeaders = Type.Object({
  'If-None-Match': Type.Optional(Type.String({
    description: 'ETags of responses that the client has stored; if one is current, the response is 304',
    examples: ['"3735928559-195948557"']
  }))
})

/** The headers of a DELETE. */
export const DeletionHeaders = Type.Unsafe<{ 'if-match'?: string }>(Type.Object({
  'If-Match': Type.Optional(Type.String({
    description: 'The ETag of the record to delete, or `*`; if the record has another one, the response is 412',
    examples: ['*']
  }))
}))

/** The ETag of a text: two hashes of 32 bits. (SHA-1 would cost 6 % of the requests per second.) */
export function etagOf (text: string) {
  let one = 0x811c9dc5
  let two = text.length
  for (let n = 0; n < text.length; n++) {
    const code = text.charCodeAt(n)
    one = Math.imul(one ^ code, 0x01000193) // FNV-1a
    two = Math.imul(two ^ code, 0x85ebca6b)
    two ^= two >>> 15
  }
  return `"${one >>> 0}-${two >>> 0}"`
}

/** Returns a function that tells whether a record has an ETag in an `If-Match` header, if there is one. */
export function expectedBy (header?: string) {
  return header === undefined ? undefined : (record: string) => includes(header, etagOf(record))
}

function includes (header: string, etag: string) {
  return header.split(',').some(given => given.trim() === etag || given.trim() === '*')
}

/** Sends a record, a 304 if the client has stored it, or a 404. */
export function sendRecord (request: FastifyRequest, reply: FastifyReply, found: MaybePromise<string | undefined>) {
  if (found instanceof Promise) return found.then(record => sendFound(request, reply, record))
  return sendFound(request, reply, found)
}

function sendFound (request: FastifyRequest, reply: FastifyReply, record?: string) {
  if (record === undefined) throw notFound()
  if (isStored(request, reply, etagOf(record))) return sendNotModified(request, reply)
  setHeaders(request, reply)
  return record
}

/** Sets the ETag of a response, and returns whether the client has stored this response. It may be compressed there. */
export function isStored (request: FastifyRequest, reply: FastifyReply, etag: string) {
  const stored = request.headers['if-none-match']
  const current = stored === undefined ? undefined : etagsFor(request, etag).find(etag => includes(stored.replaceAll('W/', ''), etag))
  reply.header('etag', current ?? etag)
  return current !== undefined
}

/** The ETags that a response can have: without compression, and with it. */
function etagsFor (request: FastifyRequest, etag: string) {
  const coding = codingFor(request)
  return coding ? [etag, etagWith(etag, coding)] : [etag]
}

/** Sends a 304. */
export function sendNotModified (request: FastifyRequest, reply: FastifyReply) {
  setHeaders(request, reply, cacheHeaders)
  reply.code(304)
  // Without a body, Fastify would set a `Content-Length` of 0 for HEAD.
  if (request.method === 'HEAD') return Readable.from([])
  reply.send()
}
