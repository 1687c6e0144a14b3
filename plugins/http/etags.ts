import { hash } from 'node:crypto'
import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { httpError } from './errors.js'
import { cacheHeaders, setHeaders } from './responses.js'

export const ReadingHeaders = Type.Object({
  'If-None-Match': Type.Optional(Type.String({
    description: 'ETags of responses that the client has stored, or `*`; if one is current, the response is 304'
  }))
})

export const ChangeHeaders = Type.Object({
  'If-Match': Type.Optional(Type.String({
    description: 'The ETag of the record, or `*`; if the record has another one, the response is 412'
  }))
})

/** The ETags of short bodies that were sent lately. To find one takes a tenth of the time of a digest. */
const recent = new Map<string, string>()
const ofBuffers = new WeakMap<Buffer, string>()
const mostRecent = 10_000
const maxShort = 1000

/** The strong ETag of a body: 132 bits of its SHA-256 digest. */
export function etagOf (body: string | Buffer) {
  if (typeof body !== 'string') return ofBuffer(body)
  if (body.length > maxShort) return etagFor(body)
  const etag = recent.get(body) ?? etagFor(body)
  if (recent.size === mostRecent) recent.clear()
  recent.set(body, etag)
  return etag
}

/** The memory store keeps the list of all records, until one changes. */
function ofBuffer (body: Buffer) {
  const etag = ofBuffers.get(body) ?? etagFor(body)
  ofBuffers.set(body, etag)
  return etag
}

function etagFor (body: string | Buffer) {
  return `"${hash('sha256', body, 'base64url').slice(0, 22)}"`
}

/** The ETag of a body that can be compressed. */
export function weakEtagOf (body: string | Buffer) {
  return `W/${etagOf(body)}`
}

/** Throws a 412 if the record that a request changes has another ETag than those in its `If-Match`. */
export function checkIfMatch ({ headers }: FastifyRequest, record: string) {
  const match = headers['if-match']
  if (match !== undefined && !includes(match, etagOf(record))) throw httpError(412)
}

/** Sends a body with its ETag, or a 304 if the client has it already. */
export function sendWithEtag (request: FastifyRequest, reply: FastifyReply, body: string | Buffer, etag: string) {
  reply.header('etag', etag)
  const stored = request.headers['if-none-match']
  if (stored !== undefined && includes(stored.replaceAll('W/', ''), etag.replace('W/', ''))) {
    setHeaders(request, reply, cacheHeaders)
    return reply.code(304).send()
  }
  setHeaders(request, reply)
  return reply.send(body)
}

/** Returns whether a list of ETags is `*` or has this one. Quoted commas and stars belong to a tag. */
function includes (list: string, etag: string) {
  const tags: string[] = list.match(/(W\/)?"[^"]*"/g) ?? []
  return list.trim() === '*' || tags.includes(etag)
}
