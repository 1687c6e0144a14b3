import type pg from 'pg'
import { StartupError } from '../startup.js'

/** A server that does not accept writes, such as a standby. */
export class ReadOnlyError extends Error {}

/** Turns errors that a restart would not solve into a message for the operator. */
export function startupError (error: unknown) {
  const { message } = error as Error
  if (codeOf(error) === '42P07') {
    return new StartupError(`Cannot create the tables in the option store: ${message}, and this service has not created it. Use another database or a separate schema (docs/persistence.md#schemas).`)
  }
  if (codeOf(error) === '42501') {
    return new StartupError(`The role in the option store lacks a privilege: ${message}. See docs/persistence.md#privileges.`)
  }
  return error
}

/** Returns whether a server cannot be used at the moment: it is not reachable, busy, or a table is locked. */
export function isUnreachable (error: unknown) {
  if (isOfServer(error)) return /^(08|53|57|55P03)/.test(codeOf(error))
  if (error instanceof ReadOnlyError) return true
  // A host name with several addresses fails with one error for each address.
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  const { syscall, message } = first as NodeJS.ErrnoException
  return syscall !== undefined || /timeout|terminated/i.test(message)
}

/** Returns whether a connection leads to a standby, or has a statement whose table has changed since. */
export function isOutOfDate (error: unknown) {
  return codeOf(error) === '25006' || (codeOf(error) === '0A000' && /cached plan/.test((error as Error).message))
}

/** Returns whether a connection pooler does not know a prepared statement, or knows it already. */
export function isUnknownStatement (error: unknown) {
  return /^(26000|42P05)$/.test(codeOf(error))
}

export function isSerializationFailure (error: unknown) {
  return /^(40001|40P01)$/.test(codeOf(error))
}

/**
 * Returns whether the database rejects the data: because of its value, size, a constraint, a view or a trigger. A column
 * without a value (23502) is not ours, because our values were validated.
 */
export function isRefusal (error: unknown) {
  return /^(22|23(?!502)|44|54|P0)/.test(codeOf(error))
}

export function codeOf (error: unknown) {
  return isOfServer(error) ? String(error.code) : ''
}

/** Returns whether the server has sent an error. (Its class is not known here, because pg is loaded later.) */
function isOfServer (error: unknown): error is pg.DatabaseError {
  return error instanceof Error && 'severity' in error
}
