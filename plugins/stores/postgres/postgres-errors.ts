import { StartupError } from '../../common/startup.js'
import { StoreUnavailableError } from '../store-errors.js'

/** The codes of the server that may be temporary. 42703: a newer release has removed a column. */
const temporary = /^((08|25|26|28|3D|40|53|55|57|58)...|235..|42703)$/

/** The code of an error that the server has sent. */
export function codeOf (error: unknown): string {
  if (error instanceof StoreUnavailableError) return codeOf(error.cause)
  return error instanceof Error && 'severity' in error && 'code' in error ? String(error.code) : ''
}

/** Whether the connection of an error cannot be used any more: it is lost, or leads to a server that does not write. */
export function isBroken (error: unknown) {
  return error instanceof StoreUnavailableError && /^(|08...|25006|28...|57P0.)$/.test(codeOf(error))
}

/** Converts errors of the driver that may be temporary: those without a code of the server, and some of the others. */
export function failure (error: unknown) {
  const code = codeOf(error)
  return code === '' || temporary.test(code) ? new StoreUnavailableError(error) : error
}

/** Whether a server cannot be used at the moment: it is not reachable, busy, read-only, or a table is locked. */
export function isUnreachable (error: unknown): boolean {
  if (error instanceof StoreUnavailableError) return true
  if (codeOf(error)) return /^(08|40|53|57|55P03)/.test(codeOf(error))
  // A host name with several addresses fails with one error for each address.
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  const { syscall, message } = first as NodeJS.ErrnoException
  return syscall !== undefined || /timeout|terminated/i.test(message)
}

/** Turns errors that a restart would not solve into a message for the operator. */
export function startupError (error: unknown) {
  const { message } = error as Error
  switch (codeOf(error)) {
    case '42P07': return new StartupError(`Cannot create the tables in the option store: ${message}, ` +
      'and this service has not created it. Use another database or a separate schema (docs/persistence.md#schemas).')
    case '42501': return new StartupError(
      `The role in the option store lacks a privilege: ${message}. See docs/persistence.md#privileges.`)
    default: return error
  }
}
