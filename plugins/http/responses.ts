import { Type, type TProperties, type TSchema } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ref } from '../../schemas/fields.js'
import { ConflictingRequest, ErrorBody, InvalidRequest } from '../../schemas/errors.js'

/** The content type of every response except the documentation pages. */
export const jsonType = 'application/json; charset=utf-8'

/** The `Cache-Control` of the API: caches must revalidate, because a record can be created or deleted at any time. */
export const noCache = 'no-cache'

/** The headers of an API response without a body. */
export const cacheHeaders = { 'cache-control': noCache }

const apiHeaders = { 'content-type': jsonType, ...cacheHeaders }

/** Sets the headers of an API response. (A hook for this would cost 4 % of the requests per second.) */
export function setHeaders (request: FastifyRequest, reply: FastifyReply, headers: Record<string, string> = apiHeaders) {
  reply.headers(headers)
  if (request.headers['x-request-id'] !== undefined) reply.header('x-request-id', request.id)
}

/** Options of every route: HEAD works wherever GET does, and @fastify/response-validation is off, because it does not know our schemas. */
export const routeDefaults = { exposeHeadRoute: true, responseValidation: false }

export const etagHeader = { ETag: Type.String({ description: 'Identifies this version of the response, for `If-None-Match`' }) }

export const notModified = Type.Null({ description: 'The client has the current version', headers: etagHeader })

/** A response with a list of records, or a page of it. */
export function listOf (schema: TSchema, description: string, headers: TProperties = {}) {
  const link = Type.String({ description: 'The URL of the next page (`rel="next"`), relative to the URL of the request, if there are more records' })
  return Type.Array(ref(schema), { description, examples: [schema.examples], headers: { ...etagHeader, Link: link, ...headers } })
}

export const totalHeader = { 'X-Total-Count': Type.Integer({ description: 'Number of records that match, with `total=true`' }) }

const retryAfter = { 'Retry-After': Type.Integer({ description: 'Seconds until the request can be retried' }) }

export const rateHeaders = {
  'X-RateLimit-Limit': Type.Integer({ description: 'Maximum number of requests per time window' }),
  'X-RateLimit-Remaining': Type.Integer({ description: 'Number of requests left in the time window' }),
  'X-RateLimit-Reset': Type.Integer({ description: 'Seconds until the time window ends' })
}

const failure = (description: string, headers?: TProperties) => ref(ErrorBody, { description, ...headers && { headers } })

const authenticate = { 'WWW-Authenticate': Type.String({ description: 'How to authenticate' }) }

/** The 403 of a route with `auth`, with `crossOriginProtection`, or with both. */
export const forbidden = {
  scope: failure('The bearer token does not have the scope that the operation needs', authenticate),
  origin: failure('A browser sent the request from a page of another origin'),
  scopeOrOrigin: failure('The bearer token does not have the scope that the operation needs, or a browser sent the request from a page of another origin', authenticate)
}

export const failures = {
  400: ref(InvalidRequest, { description: 'The request is invalid' }),
  401: failure('The bearer token is missing or not valid', authenticate),
  404: failure('No record has this id'),
  409: ref(ConflictingRequest, { description: 'The record conflicts with another one' }),
  412: failure('The precondition in If-Match or If-None-Match is not met'),
  413: failure('The request body is too large'),
  422: failure('The Idempotency-Key was already used with a different request body'),
  429: failure('The client has sent too many requests', { ...retryAfter, ...rateHeaders }),
  500: failure('The service failed'),
  503: failure('The database is unavailable, or the service is overloaded or shutting down', retryAfter),
  default: failure('The request is not valid HTTP, or took too long to arrive')
}

/** The 409 of a POST. Only that for a key has a `Retry-After`. */
export const conflictOrKeyInUse = ref(ConflictingRequest, { description: 'The record conflicts with another one, or a request with this Idempotency-Key is in progress', headers: retryAfter })

/** The error responses of a route: these statuses, and those that every route has. */
export function errorResponses (...statuses: (keyof typeof failures)[]) {
  return Object.fromEntries([400 as const, ...statuses, 500 as const, 503 as const, 'default' as const].map(status => [status, failures[status]]))
}
