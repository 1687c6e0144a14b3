import type { Readable } from 'node:stream'
import { Type, type SchemaOptions, type Static, type TSchema } from '@sinclair/typebox'

export { Type }

/** The content type of every body but the pages. */
export const jsonType = 'application/json; charset=utf-8'

/** Refers to a schema by its `$id`: a named component in the document, and still its static type to the compiler. */
export function ref<T extends TSchema> (schema: T, options: SchemaOptions = {}) {
  return Type.Unsafe<Static<T>>(Type.Ref(String(schema.$id), options))
}

/** The response that is such a record: to the document what `ref` is, to the compiler the JSON that a store gives. */
export function json (schema: TSchema, options: SchemaOptions = {}) {
  return Type.Unsafe<string>(ref(schema, options))
}

/** The response that is a list of such records. */
export function jsonList (schema: TSchema, options: SchemaOptions = {}) {
  return Type.Unsafe<string | Uint8Array | Readable>(Type.Array(ref(schema), { examples: [schema.examples], ...options }))
}

/** One of these strings. A union of literals would say the same at length, in the document and in each error. */
export function oneOf<const T extends readonly string[]> (values: T, options: SchemaOptions = {}) {
  return Type.Unsafe<T[number]>({ ...options, type: 'string', enum: values })
}

/** An id as a record holds it: any integer that JSON carries exactly (RFC 7493). */
export const Id = Type.Integer({
  minimum: Number.MIN_SAFE_INTEGER,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'Chosen by the client; need not be unique'
})

/** An id as a path names it: without bounds, since one that no record can have is merely not found. */
export const PathId = Type.Integer({ description: 'The id to look for', examples: [1] })

/** A string as a record holds it: a lone surrogate has no UTF-8 form, so it could not be given back. */
export const Text = Type.String({
  pattern: '^[^\\uD800-\\uDFFF]*$',
  description: 'well-formed Unicode text'
})

export const ErrorBody = Type.Object({
  detail: Type.String({ description: 'What went wrong' })
}, { $id: 'ErrorBody', description: 'Why the request was not served' })

export const Fault = Type.Object({
  in: oneOf(['body', 'path', 'query', 'headers', 'request'], { description: 'The part of the request at fault' }),
  path: Type.String({ description: 'JSON Pointer to the value in that part; empty for the whole part' }),
  message: Type.String({ description: 'What the value must be' })
}, { $id: 'Fault', description: 'One thing that is wrong with a request' })
export type Fault = Static<typeof Fault>

export const InvalidRequest = Type.Object({
  detail: Type.String({ description: 'Every fault, in one sentence' }),
  errors: Type.Array(ref(Fault), { description: 'The same faults, one by one' })
}, {
  $id: 'InvalidRequest',
  description: 'What is wrong with the request',
  examples: [{
    detail: 'Invalid body: name is required.',
    errors: [{ in: 'body', path: '/name', message: 'is required' }]
  }]
})

/** What the service says when it does not serve, by status. */
export const details = {
  404: 'Not found',
  405: 'Method not allowed',
  408: 'The request took too long to arrive',
  413: 'The body is too large',
  414: 'The path is too long',
  417: 'The only expectation that can be met is 100-continue',
  431: 'The headers are too large',
  500: 'Internal server error',
  503: 'The database cannot serve for the moment'
} as const

/** What `/readyz` says while the service closes. */
export const shuttingDown = 'Shutting down'

const failures = {
  400: ref(InvalidRequest, { description: 'The request does not have the form that this document asks for' }),
  404: ref(ErrorBody, { description: 'No record has that id' }),
  413: ref(ErrorBody, { description: 'The body is larger than the service accepts' }),
  500: ref(ErrorBody, { description: 'The service failed' }),
  503: ref(ErrorBody, {
    description: 'The service cannot serve for the moment',
    headers: { 'Retry-After': Type.Integer({ description: 'When to try again, in seconds from now' }) }
  }),
  '4xx': ref(ErrorBody, { description: 'HTTP is misused, or the request takes too long' })
}

/** The error responses of a route: these statuses, and those that every route can answer. */
export function failsWith<S extends keyof typeof failures = 500> (...statuses: S[]) {
  const picked = [400, ...statuses, '4xx', 500, 503] as const
  return Object.fromEntries(picked.map(status => [status, failures[status]])) as
    Pick<typeof failures, S | 400 | '4xx' | 500 | 503>
}
