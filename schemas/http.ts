import type { Readable } from 'node:stream'
import { Type, type SchemaOptions, type Static, type TObject, type TSchema } from '@sinclair/typebox'

export { Type }

/** The content type of every body but the pages. */
export const jsonType = 'application/json; charset=utf-8'

/** The `Cache-Control` of the API: a cache asks again each time, since a record may be created or deleted at any time. */
export const noCache = 'no-cache'

/** The headers of every response that is a record or a list of them. */
export const recordHeaders = { 'content-type': jsonType, 'cache-control': noCache }

/** The `$id` of a schema of ours, which no schema of a host has, and the name that our document gives it. */
export const idOf = (name: string) => `ItemsUsers.${name}`
export const nameOf = ($id = '') => $id.replace(idOf(''), '')

/** Refers to a schema by its `$id`: a named component in the document, and still its static type to the compiler. */
export function ref<T extends TSchema> (schema: T, options: SchemaOptions = {}) {
  return Type.Unsafe<Static<T>>(Type.Ref(String(schema.$id), options))
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

/** What a client sends of a record whose id the service gives. */
export function withoutId<T extends TObject> (schema: T) {
  const { id, ...example } = schema.examples[0]
  return Type.Omit(schema, ['id'], { $id: idOf(`New${nameOf(schema.$id)}`), description: schema.description, examples: [example] })
}

/** One of these strings. A union of literals would say the same at length, in the document and in each error. */
export function oneOf<const T extends readonly string[]> (values: T, options: SchemaOptions = {}) {
  return Type.Unsafe<T[number]>({ ...options, type: 'string', enum: values })
}

/** An id as a record holds it. Beyond these bounds, two programs may read two numbers (RFC 7493). */
export const Id = Type.Integer({
  minimum: Number.MIN_SAFE_INTEGER,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'Any integer that JSON carries exactly'
})

/** Who gives a record its id, as the document says it. */
export const idSources = {
  client: 'The client chooses the id, which need not be unique.',
  server: 'The service gives the id, which is unique; one that is sent is ignored.'
}

/** What the document says of the routes that give a list, and of those that look for an id. */
export const orderOfLists = 'They are in the order of their creation. With a limit it is a page of them, whose `Link` leads to the next one.'
export const firstOfMany = 'Where several have that id, it is the first one in the order of their creation.'

/** An id as a path names it: without bounds, since one that no record can have is merely not found. */
export const PathId = Type.Integer({ description: 'The id to look for', examples: [1] })

/** Which part of a list to give. Without a limit, it is the whole. */
export const PageQuery = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'How many records to give at most; all of them where it is not set' })),
  after: Type.Optional(Type.String({ description: 'Where to go on, as the `Link` of the page before tells' }))
})

/** What a POST may say of itself. */
export const CreationHeaders = Type.Object({
  'idempotency-key': Type.Optional(Type.String({
    pattern: '^[!-~]{1,255}$',
    description: '1 to 255 visible ASCII characters that stand for this request; sent again within 24 hours, it is answered again and not done again'
  }))
})

/** A string as a record holds it: a lone surrogate has no UTF-8 form, so it could not be given back. */
export const Text = Type.String({
  pattern: '^[^\\uD800-\\uDFFF]*$',
  description: 'well-formed Unicode text'
})

export const ErrorBody = Type.Object({
  detail: Type.String({ description: 'What went wrong' })
}, { $id: idOf('ErrorBody'), description: 'Why the request was not served' })
export type ErrorBody = Static<typeof ErrorBody>

export const Fault = Type.Object({
  in: oneOf(['body', 'path', 'query', 'headers', 'request'], { description: 'The part of the request at fault' }),
  path: Type.String({ description: 'JSON Pointer to the value in that part; empty for the whole part' }),
  message: Type.String({ description: 'What the value must be' })
}, { $id: idOf('Fault'), description: 'One thing that is wrong with a request' })
export type Fault = Static<typeof Fault>

export const InvalidRequest = Type.Object({
  detail: Type.String({ description: 'Every fault, in one sentence' }),
  errors: Type.Array(ref(Fault), { description: 'The same faults, one by one' })
}, {
  $id: idOf('InvalidRequest'),
  description: 'What is wrong with the request',
  examples: [{
    detail: 'Invalid body: name is required.',
    errors: [{ in: 'body', path: '/name', message: 'is required' }]
  }]
})

/** What the service says when it does not serve, by status. */
export const details = {
  401: 'A bearer token is required',
  403: 'Cross-origin request rejected; to allow it, add its origin to CORS_ORIGIN',
  404: 'Not found',
  405: 'Method not allowed',
  408: 'The request took too long to arrive',
  409: 'A request with this Idempotency-Key is being served',
  413: 'The body is too large',
  414: 'The path is too long',
  417: 'The only expectation that can be met is 100-continue',
  422: 'This Idempotency-Key stands for another request',
  429: 'Too many requests',
  431: 'The headers are too large',
  500: 'Internal server error',
  503: 'The database cannot serve for the moment'
} as const

/** What the service says of a path that it does not know, to tell it from a record that it does not have. */
export const unknownPath = 'Path not found'

/** What the service says of a token that it does not know. */
export const unknownToken = 'The bearer token is not known'

/**
 * How an operation says that it asks for a bearer token. @fastify/swagger fails where a `security` names a scheme that
 * the app which has it does not describe, so only our own document turns this into one.
 */
export const asksForToken = { 'x-authorization': 'bearer' }

/** What `/readyz` says while the service closes. */
export const shuttingDown = 'Shutting down'

/** What the service says when it has more to do than it can. */
export const overloaded = 'The service is overloaded'

/** When to try again. */
const retryAfter = { 'Retry-After': Type.Integer({ description: 'When to try again, in seconds from now' }) }

/** How much of its rate a client has left. */
export const rateHeaders = {
  'X-RateLimit-Limit': Type.Integer({ description: 'How many requests a client may make in a window' }),
  'X-RateLimit-Remaining': Type.Integer({ description: 'How many of them are left' }),
  'X-RateLimit-Reset': Type.Integer({ description: 'When the next window begins, in seconds from now' })
}

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
