import { hash } from 'node:crypto'
import { Readable } from 'node:stream'
import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { httpError } from './errors.js'
import { cacheHeaders, setHeaders } from './responses.js'

export const ReadingHeaders = Type.Object({
  'If-None-Match': Type.Optional(Type.String({
    description: 'ETags of responses that the client has stored, or `*`; if one is current, the response is 304',
    examples: ['"9Bz1VZ0gBbtdyJkuKn1hWQ"']
  }))
})

export const ChangeHeaders = Type.Object({
  'If-Match': Type.Optional(Type.String({
    description: 'The ETag of the record, or `*`; if the record has another one, the response is 412',
    examples: ['*']
  }))
})

/** The strong ETag of a body: 132 bits of its SHA-256 digest. */
export function etagOf (body: string | Buffer) {
  return `"${hash('sha256', body, 'base64url').slice(0, 22)}"`
}

/** The ETag of a list and its pages. It is weak, because a list can be compressed. */
export function listEtag (view: string, version?: string) {
  return version === undefined ? undefined : `W/"${version}${view}"`
}

export function hasPreconditions ({ headers }: FastifyRequest) {
  return headers['if-match'] !== undefined || headers['if-none-match'] !== undefined
}

/**
 * Throws a 412 if a request does not meet its preconditions. Returns whether the client has the current version already. The
 * order is that of RFC 9110, section 13.2.2. There are no modification dates, so the headers with dates are ignored.
 */
export function checkPreconditions ({ method, headers }: FastifyRequest, etag?: string) {
  const { 'if-match': match, 'if-none-match': noneMatch } = headers
  const isKnown = noneMatch !== undefined && includes(noneMatch, etag, () => true)
  const isRead = method === 'GET' || method === 'HEAD'
  if ((match !== undefined && !includes(match, etag, tag => tag.startsWith('"'))) || (isKnown && !isRead)) throw httpError(412)
  return isKnown
}

/** Does the same for a response with this ETag, and sets the ETag. */
export function isNotModified (request: FastifyRequest, reply: FastifyReply, etag?: string) {
  if (etag !== undefined) reply.header('etag', etag)
  return checkPreconditions(request, etag)
}

/** Returns whether a list of ETags is `*` or has this one. Quoted commas and stars belong to a tag. */
function includes (list: string, etag = '', isComparable: (tag: string) => boolean) {
  if (list.trim() === '*') return true
  if (!isComparable(etag) || !list.includes(opaque(etag))) return false
  return Array.from(list.matchAll(/(?:W\/)?"[^"]*"/g), ([tag]) => tag).some(tag => isComparable(tag) && opaque(tag) === opaque(etag))
}

/** The tag without the mark of a weak one. */
function opaque (tag: string) {
  return tag.replace(/^W\//, '')
}

export function sendNotModified (request: FastifyRequest, reply: FastifyReply) {
  setHeaders(request, reply, cacheHeaders)
  reply.code(304)
  // Without a body, Fastify would set a `Content-Length` of 0 for HEAD.
  if (request.method === 'HEAD') return Readable.from([])
  reply.send()
}
