import { StartupError } from '../../startup.js'

/** Turns errors that a restart would not solve into a message for the operator. */
export function startupError (error: unknown) {
  const { message, cause } = error as Error
  if (error instanceof StartupError && codeOf(cause) !== '42501') return error
  switch (codeOf(error) || codeOf(cause)) {
    case '42P07': return new StartupError(`Cannot create the tables in the option store: ${message}, and this service has not created it. ` +
      'Use another database or a separate schema (docs/persistence.md#schemas).')
    case '42501': return new StartupError(`The role in the option store lacks a privilege: ${message}. See docs/persistence.md#privileges.`)
    default: return error
  }
}

/** Returns whether a server cannot be used at the moment: it is not reachable, busy, or a table is locked. */
export function isUnreachable (error: unknown): boolean {
  if (error instanceof StartupError) return error.cause !== undefined && isUnreachable(error.cause)
  if (codeOf(error)) return /^(08|53|57|55P03)/.test(codeOf(error))
  // A host name with several addresses fails with one error for each address.
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  const { syscall, message } = first as NodeJS.ErrnoException
  return syscall !== undefined || /timeout|terminated|read-only/i.test(message)
}

/**
 * Returns whether the database rejects the data: because of its value, size, a constraint, a view or a trigger, which may have
 * a code of its own. A column without a value (23502) is not ours, because our values were validated.
 */
export function isRefusal (error: unknown) {
  return /^(22|23(?!502)|44|54|[6-9I-WYZ])/.test(codeOf(error))
}

/** The code of an error that the server has sent. (Its class is not known here, because pg is loaded later.) */
export function codeOf (error: unknown) {
  return error instanceof Error && 'severity' in error && 'code' in error ? String(error.code) : ''
}
