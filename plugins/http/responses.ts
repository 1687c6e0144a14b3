import type { Readable } from 'node:stream'
import { Type, type SchemaOptions, type TSchema } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ref } from '../../schemas/component.js'
import { ErrorBody, InvalidRequest } from '../../schemas/errors.js'

/** The content type of every body but the documentation pages. */
export const jsonType = 'application/json; charset=utf-8'

/** The `Cache-Control` of the API: caches ask again each time, since a record may be created or deleted at any time. */
export const noCache = 'no-cache'

const apiHeaders = { 'content-type': jsonType, 'cache-control': noCache }

/** Sets the headers of a response of the API. A client that sent a request id gets it back. (A hook for this costs 4 % of all requests.) */
export function setHeaders (request: FastifyRequest, reply: FastifyReply) {
  reply.headers(apiHeaders)
  if (request.headers['x-request-id'] !== undefined) reply.header('x-request-id', request.id)
}

/** The response that is such a record: to the document what `ref` is, to the compiler the JSON that a store gives. */
export function json (schema: TSchema, options: SchemaOptions = {}) {
  return Type.Unsafe<string>(ref(schema, options))
}

/** The response that is a list of such records, or a page of it. */
export function jsonList (schema: TSchema, options: SchemaOptions = {}) {
  return Type.Unsafe<string | Uint8Array | Readable>(Type.Array(ref(schema), {
    examples: [schema.examples],
    headers: { Link: Type.String({ description: 'The next page, where a limit was set and there is more' }) },
    ...options
  }))
}

/** When to try again. */
const retryAfter = { 'Retry-After': Type.Integer({ description: 'When to try again, in seconds from now' }) }

/** How much of its rate a client has left. */
export const rateHeaders = {
  'X-RateLimit-Limit': Type.Integer({ description: 'How many requests a client may make in a window' }),
  'X-RateLimit-Remaining': Type.Integer({ description: 'How many of them are left' }),
  'X-RateLimit-Reset': Type.Integer({ description: 'When the next window begins, in seconds from now' })
}

/** The error responses, by status. */
export const failures = {
  400: ref(InvalidRequest, { description: 'The request does not have the form that this document asks for' }),
  401: ref(ErrorBody, {
    description: 'The request has no bearer token that the service knows',
    headers: { 'WWW-Authenticate': Type.String({ description: 'How to authenticate' }) }
  }),
  403: ref(ErrorBody, { description: 'A browser sent the request for a page of another origin' }),
  404: ref(ErrorBody, { description: 'No record has that id' }),
  409: ref(ErrorBody, { description: 'The first request with that Idempotency-Key is still being served' }),
  413: ref(ErrorBody, { description: 'The body is larger than the service accepts' }),
  422: ref(ErrorBody, { description: 'The Idempotency-Key was used with another body' }),
  429: ref(ErrorBody, {
    description: 'The client makes more requests than it may',
    headers: { ...retryAfter, ...rateHeaders }
  }),
  500: ref(ErrorBody, { description: 'The service failed' }),
  503: ref(ErrorBody, {
    description: 'The service cannot serve for the moment',
    headers: retryAfter
  }),
  '4xx': ref(ErrorBody, { description: 'HTTP is misused, or the request takes too long' })
}

/** The error responses of a route: these statuses, and those that every route can answer. */
export function errorResponses<S extends keyof typeof failures = 500> (...statuses: S[]) {
  const picked = [400, ...statuses, '4xx', 500, 503] as const
  return Object.fromEntries(picked.map(status => [status, failures[status]])) as
    Pick<typeof failures, S | 400 | '4xx' | 500 | 503>
}
