import { readFileSync } from 'node:fs'

/** The service cannot start with this configuration. The message is for the operator. */
export class StartupError extends Error {
  readonly code = 'ERR_STARTUP'
}

/** Reads what a variable or an option names. */
export function readNamed<T> (name: string, read: () => T) {
  try {
    return read()
  } catch (error) {
    throw new StartupError(`Cannot read ${name}: ${(error as Error).message}`)
  }
}

/** Reads the JSON object in the file that a variable names. */
export function readObject (variable: string, file: string, example: string): Record<string, unknown> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  const value = readNamed(variable, () => JSON.parse(decoder.decode(readFileSync(file))))
  if (Object(value) !== value || Array.isArray(value)) {
    throw new StartupError(`${variable} must contain a JSON object such as ${example}.`)
  }
  return value
}

/** Loads a module that needs an optional package. */
export async function loadOptional<T> (name: string, option: string, load: () => Promise<T>) {
  try {
    return await load()
  } catch (error) {
    if (!/^(ERR_)?MODULE_NOT_FOUND$/.test(String((error as NodeJS.ErrnoException).code))) throw error
    const reason = `needs the package ${name}, which is not installed`
    throw new StartupError(`The option ${option} ${reason}. Run: npm install ${name}`)
  }
}
