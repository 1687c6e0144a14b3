import { Type, type Static } from '@sinclair/typebox'
import { idOf, ref } from './component.js'
import { oneOf } from './fields.js'

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

/** The `detail` of an error, by its status. */
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
