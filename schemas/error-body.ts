import { Type, type Static } from '@sinclair/typebox'
import { oneOf, ref, schemaId } from './fields.js'

/** The body of every error response. */
export const ErrorBody = Type.Object({
  detail: Type.String({ description: 'What went wrong' })
}, { $id: schemaId('ErrorBody'), description: 'Why the request failed' })
export type ErrorBody = Static<typeof ErrorBody>

export const Problem = Type.Object({
  in: oneOf(['body', 'path', 'query', 'headers', 'request'], {
    description: 'The part of the request that is invalid'
  }),
  path: Type.String({ description: 'JSON Pointer to the invalid value in this part; empty for the whole part' }),
  message: Type.String({ description: 'What the value must be' })
}, { $id: schemaId('Problem'), description: 'One problem of an invalid request' })
export type Problem = Static<typeof Problem>

/** One problem of a value. `path` is a JSON Pointer to it. */
export type ValueProblem = Omit<Problem, 'in'>

/** Problems as a sentence for people. */
export function sentenceOf (title: string, problems: ValueProblem[]) {
  return `${title}: ${problems.map(({ path, message }) => `${path.slice(1) || 'it'} ${message}`).join(', ')}.`
}

/** The problems of one part of a request. */
export function problemsIn (part: Problem['in'], problems: ValueProblem[]): Problem[] {
  return problems.map(({ path, message }) => ({ in: part, path, message }))
}

/** The most problems that a response lists. Their number limits its size. */
export const maxProblems = 50

/** A property as a part of a JSON Pointer. */
export function pointer (property: unknown) {
  return `/${String(property).replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** The body of a 400. */
export const InvalidRequest = Type.Object({
  detail: Type.String({ description: 'All problems in one sentence' }),
  errors: Type.Array(ref(Problem), { description: 'The same problems as a list' })
}, {
  $id: schemaId('InvalidRequest'),
  description: 'Why the request is invalid',
  examples: [{
    detail: 'Invalid body: name is required.',
    errors: [{ in: 'body', path: '/name', message: 'is required' }]
  }]
})

/** The `detail` of a 403 for a token. */
export const missingScope = (scope: string) => `The bearer token does not have the scope ${scope}`

/** The `detail` of an error by status. */
export const details = {
  401: 'A bearer token is required',
  403: 'Cross-origin request rejected: its origin is not allowed',
  404: 'Not found',
  405: 'Method not allowed',
  408: 'The request took too long to arrive',
  412: 'The precondition in If-Match is not met',
  413: 'The request body is too large',
  414: 'The request path is too long',
  422: 'Idempotency-Key was already used with a different request body',
  429: 'Too many requests',
  431: 'The request headers are too large',
  500: 'Internal server error',
  503: 'The database is unavailable'
} as const

/** The body of a 409. */
export const ConflictingRequest = Type.Object({
  detail: Type.String({ description: 'What went wrong' }),
  errors: Type.Array(ref(Problem), { description: 'The field that conflicts' })
}, {
  $id: schemaId('ConflictingRequest'),
  description: 'Why the request conflicts with others',
  examples: [{
    detail: 'Conflict: email is already used.',
    errors: [{ in: 'body', path: '/email', message: 'is already used' }]
  }]
})
