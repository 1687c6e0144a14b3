import { pointer } from '../../schemas/errors.js'

/** The engine is unavailable at the moment. It becomes a 503. */
export class StoreUnavailableError extends Error {
  readonly code = 'ERR_STORE_UNAVAILABLE'

  constructor (cause?: unknown) {
    super('The store is unavailable', { cause })
  }
}

/** The generated ids have reached their maximum. It becomes a 503. */
export class NoIdLeftError extends Error {
  readonly code = 'ERR_NO_ID_LEFT'
}

/** The idempotency key was used for another request. It becomes a 422. */
export class IdempotencyKeyReusedError extends Error {
  readonly code = 'ERR_IDEMPOTENCY_KEY_REUSED'
}

/** The cursor is not one of this query. It becomes a 400. */
export class InvalidCursorError extends Error {
  readonly code = 'ERR_INVALID_CURSOR'
}

/** The engine cannot store a record. `path` points to the field, `message` says what it must be. It becomes a 400. */
export class NotStorableError extends Error {
  readonly code = 'ERR_NOT_STORABLE'

  constructor (readonly path: string, message: string) {
    super(message)
  }
}

/** A record conflicts with others. `path` points to the field; it is empty if others refer to it. It becomes a 409. */
export class ConflictError extends Error {
  readonly code = 'ERR_CONFLICT'

  constructor (readonly path: string, message: string) {
    super(message)
  }
}

/** The conflicts of a record: another one has its value; what it refers to is missing; others refer to it. */
export const conflicts = {
  used: (field: string) => new ConflictError(pointer(field), 'is already used'),
  missing: (field: string, target: string) =>
    new ConflictError(pointer(field), `must be the id of a record of ${target}`),
  referred: (collection: string) => new ConflictError('', `is referred to by ${collection}`)
}

/** Does something with a record of an array, whose errors have its index. */
export function atIndex<R> (index: number, work: () => R) {
  try {
    return work()
  } catch (error) {
    if (error instanceof ConflictError) throw new ConflictError(pointer(index) + error.path, error.message)
    if (error instanceof NotStorableError) throw new NotStorableError(pointer(index) + error.path, error.message)
    throw error
  }
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
