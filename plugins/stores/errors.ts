import { pointer } from '../schema/walk.js'

/** The engine is unavailable at the moment. It becomes a 503. */
export class StoreUnavailableError extends Error {
  readonly code = 'ERR_STORE_UNAVAILABLE'

  constructor (cause?: unknown) {
    super('The store is unavailable', { cause })
  }
}

/** The generated ids have reached 2^53 - 1. It becomes a 503. */
export class NoIdLeftError extends Error {
  readonly code = 'ERR_NO_ID_LEFT'
}

/** A call with this idempotency key is in progress. It becomes a 409. */
export class IdempotencyKeyInUseError extends Error {
  readonly code = 'ERR_IDEMPOTENCY_KEY_IN_USE'
}

/** The idempotency key was used with a different record. It becomes a 422. */
export class IdempotencyKeyReusedError extends Error {
  readonly code = 'ERR_IDEMPOTENCY_KEY_REUSED'
}

/** The cursor is not one of this query. It becomes a 400. */
export class InvalidCursorError extends Error {
  readonly code = 'ERR_INVALID_CURSOR'
}

/** The engine cannot store a record. `path` is a JSON Pointer to the field, `message` says what it must be. It becomes a 400. */
export class NotStorableError extends Error {
  readonly code = 'ERR_NOT_STORABLE'

  constructor (readonly path: string, message: string) {
    super(message)
  }
}

/** A record conflicts with other records. `path` is a JSON Pointer to the field; it is empty for a record that others refer to. It becomes a 409. */
export class ConflictError extends Error {
  readonly code = 'ERR_CONFLICT'

  constructor (readonly path: string, message: string) {
    super(message)
  }

  /** The conflict of a record of an array. */
  at (index: number) {
    return new ConflictError(pointer(index) + this.path, this.message)
  }
}

/** Does something with a record of an array, or with a single one, which has no index. */
export function withIndex<R> (index: number | undefined, work: () => R) {
  try {
    return work()
  } catch (error) {
    throw index !== undefined && error instanceof ConflictError ? error.at(index) : error
  }
}

/** The conflicts of a record: another one has its value of a field, or of several; the record that it refers to is missing; others refer to it. */
export const conflicts = {
  used: (name: string, ...others: string[]) => new ConflictError(pointer(name), ['is already used', ...others].join(' together with ')),
  missing: (name: string, collection: string) => new ConflictError(pointer(name), `must be the id of a record of ${collection}`),
  referred: (collection: string, name?: string) => new ConflictError(name === undefined ? '' : pointer(name), `is referred to by ${collection}`)
}

/** Values are counted up to this number. */
export const maxCounted = 10_000

/** What is wrong with stored records: values of a unique field that repeat, or values of a reference that no record has as its id. */
export const violations = {
  repeated: (field: string, values: unknown[]) => `${field} must be unique, but ${someOf(values)} in several records. Change these records, or let the values repeat.`,
  missing: (field: string, target: string, values: unknown[]) => `${field} must be the id of a record of ${target}, but ${someOf(values)} not. Change these records, or do not make the field a reference.`
}

/** The message for records that do not fit their schema. */
export function unfit (problems: string[]) {
  return ['The schema does not fit the records in the option store. Nothing was changed.', ...problems].join('\n  ')
}

/** How many values are wrong, and one of them. */
function someOf (values: unknown[]) {
  return `${counted(values.length, 'value')}, such as ${JSON.stringify(values[0])}, ${values.length === 1 ? 'is' : 'are'}`
}

/** A number of things in words. */
export function counted (count: number, noun: string) {
  return count > maxCounted ? `more than ${maxCounted} ${noun}s` : `${count} ${noun}${count === 1 ? '' : 's'}`
}

/** The error for a change that the database rejects. The reason, such as the name of a constraint, is for the log. */
export function rejection (why?: string) {
  const reason = why ? `The database rejects it: ${why}` : 'The database rejects it'
  return Object.assign(new NotStorableError('', 'is rejected by the database'), { reasonOf: () => reason })
}
