import { Type, type TProperties, type TSchema } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest, onSendHookHandler } from 'fastify'
import { ref } from '../../schemas/fields.js'
import { ConflictingRequest, details, ErrorBody, InvalidRequest } from '../../schemas/error-body.js'

/** The content type of every response except the documentation pages. */
export const jsonType = 'application/json; charset=utf-8'

/** The `Cache-Control` of the API: caches must revalidate, because records can change at any time. */
export const noCache = 'no-cache'

/** The headers of an API response without a body. */
export const cacheHeaders = { 'cache-control': noCache }

const apiHeaders = { 'content-type': jsonType, ...cacheHeaders }

type Headers = Record<string, string>

/** Sets the headers of an API response. (A hook for this would cost 4 % of the requests per second.) */
export function setHeaders (request: FastifyRequest, reply: FastifyReply, headers: Headers = apiHeaders) {
  reply.headers(headers)
  if (request.headers['x-request-id'] !== undefined) reply.header('x-request-id', request.id)
}

/** Options of a route that @fastify/compress compresses. A slow reader costs 0.6 MB with gzip, and 5 MB with Brotli. */
export function compressed () {
  // The HEAD route shares this array, to which @fastify/compress adds its hook.
  return { compress: { encodings: ['gzip' as const] }, onSend: [] as onSendHookHandler[] }
}

/** Tells caches that the content coding of a response depends on the request. */
export function varyByCoding (reply: FastifyReply) {
  const others = reply.getHeader('vary')
  reply.header('vary', others === undefined ? 'accept-encoding' : [others, 'accept-encoding'].flat().join(', '))
}

/** Options of every route. @fastify/response-validation, which does not know our schemas, is off. */
export const routeDefaults = { exposeHeadRoute: true, responseValidation: false }

export const etagHeader = {
  ETag: Type.String({ description: 'Identifies this version of the response, for `If-None-Match`' })
}

export const notModified = Type.Null({ description: 'The client has the current version', headers: etagHeader })

/** A response with a list of records, or a page of it. */
export function listOf (schema: TSchema, description: string, headers: TProperties = {}) {
  const link = Type.String({
    description: 'The URL of the next page (`rel="next"`), relative to the URL of the request, ' +
      'if there are more records'
  })
  const all = { ...etagHeader, Link: link, ...headers }
  return Type.Array(ref(schema), { description, examples: [schema.examples], headers: all })
}

export const totalHeader = {
  'X-Total-Count': Type.Integer({ description: 'Number of records that match, with `total=true`' })
}

export const retryAfter = {
  'Retry-After': Type.Integer({ description: 'Seconds until the request can be retried' })
}

/** An error response. (@fastify/swagger takes the example of a reference only from `content`.) */
export function failure (description: string, headers?: TProperties, detail = description) {
  const content = { 'application/json': { schema: ref(ErrorBody), example: { detail } } }
  return Type.Unsafe({ description, content, ...headers && { headers } })
}

export const failures = {
  400: ref(InvalidRequest, { description: 'The request is invalid' }),
  404: failure('No record has this id', undefined, details[404]),
  409: ref(ConflictingRequest, { description: 'The record conflicts with another one' }),
  412: failure('The precondition in If-Match is not met', undefined, details[412]),
  413: failure('The request body is too large', undefined, details[413]),
  422: failure('The Idempotency-Key was already used with a different request body', undefined, details[422]),
  500: failure('The service failed', undefined, details[500]),
  503: failure('The database is unavailable, or the service is overloaded or shutting down', retryAfter, details[503]),
  default: failure('The request is not valid HTTP, or took too long to arrive', undefined, details[431])
}

/** The error responses of a route: these statuses, and those that every route has. */
export function errorResponses (...statuses: (keyof typeof failures)[]) {
  const all: (keyof typeof failures)[] = [400, ...statuses, 500, 503, 'default']
  return Object.fromEntries(all.map(status => [status, failures[status]]))
}
