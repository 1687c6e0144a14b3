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

/** The error for a change that the database rejects. The name of a constraint is for the log. */
export function rejection (constraint?: string) {
  const reason = constraint ? `The database rejects it: ${constraint}` : 'The database rejects it'
  return Object.assign(new NotStorableError('', 'is rejected by the database'), { reasonOf: () => reason })
}
