import { details, pointer, problemsIn, sentenceOf, type Problem, type ValueProblem } from '../../schemas/error-body.js'

/** The base of the errors of stores. Fastify answers an error with its `statusCode`. */
class StoreError extends Error {
  constructor (message: string, readonly statusCode: number, readonly code: string, options?: ErrorOptions) {
    super(message, options)
  }
}

/** The engine is unavailable at the moment. */
export class StoreUnavailableError extends StoreError {
  constructor (cause?: unknown) {
    super(details[503], 503, 'ERR_STORE_UNAVAILABLE', { cause })
  }
}

/** The generated ids have reached their maximum. */
export class NoIdLeftError extends StoreError {
  constructor () {
    super('No more ids can be generated', 503, 'ERR_NO_ID_LEFT')
  }
}

/** The idempotency key was used for another request. */
export class IdempotencyKeyReusedError extends StoreError {
  constructor () {
    super(details[422], 422, 'ERR_IDEMPOTENCY_KEY_REUSED')
  }
}

/** The query cannot be answered. */
export class InvalidQueryError extends StoreError {
  readonly problems: Problem[]

  constructor (path: string, message: string) {
    const problems = [{ path, message }]
    super(sentenceOf('Invalid query', problems), 400, 'ERR_INVALID_QUERY')
    this.problems = problemsIn('query', problems)
  }
}

export function invalidCursor () {
  return new InvalidQueryError('/after', 'must be a cursor from the Link header of a page')
}

/** Records cannot be stored. */
export class NotStorableError extends StoreError {
  readonly problems: Problem[]

  constructor (problems: ValueProblem[]) {
    super(sentenceOf('Invalid body', problems), 400, 'ERR_NOT_STORABLE')
    this.problems = problemsIn('body', problems)
  }
}

/** Records conflict with others. A path points to a field; it is empty if others refer to the record. */
export class ConflictError extends StoreError {
  readonly problems: Problem[]

  constructor (problems: ValueProblem[]) {
    super(sentenceOf('Conflict', problems), 409, 'ERR_CONFLICT')
    this.problems = problems.flatMap(problem => problemsIn(problem.path ? 'body' : 'request', [problem]))
  }
}

/** The conflicts of a record: another one has its value; what it refers to is missing; others refer to it. */
export const conflicts = {
  taken: (field: string) => ({ path: pointer(field), message: 'is already used' }),
  missing: (field: string, target: string) =>
    ({ path: pointer(field), message: `must be the id of a record of ${target}` }),
  referred: (collection: string) => ({ path: '', message: `is referred to by ${collection}` })
}

/** What is wrong with stored records: values of a unique field repeat, or a reference leads to no record. */
export const violations = {
  repeated: (field: string, count: number, value: unknown) =>
    `${field} must be unique, but ${someOf(count, value)} in several records. ` +
    'Change these records, or let the values repeat.',
  missing: (field: string, target: string, count: number, value: unknown) =>
    `${field} must be the id of a record of ${target}, but ${someOf(count, value)} not. ` +
    'Change these records, or do not make the field a reference.'
}

/** The message for records that do not fit their schema. */
export function unfit (problems: string[]) {
  return ['The schema does not fit the records in the option store. Nothing was changed.', ...problems].join('\n  ')
}

/** How many values are wrong, and one of them. */
function someOf (count: number, value: unknown) {
  return `${counted(count, 'value')}, such as ${JSON.stringify(value)}, ${count === 1 ? 'is' : 'are'}`
}

/** A number of things in words. */
export function counted (count: number, noun: string) {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
