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
  const value = readNamed(variable, () => parse(new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file))))
  if (Object(value) !== value || Array.isArray(value)) throw new StartupError(`${variable} must contain a JSON object such as ${example}.`)
  return value
}

/** Parses JSON. An error names the line and the column. */
function parse (text: string) {
  try {
    return JSON.parse(text)
  } catch (error) {
    const lines = text.slice(0, brokenAt(text)).split('\n')
    const message = (error as Error).message.replace(/ at position .*|, (\.{3})?".* is not valid JSON$/s, '')
    /* c8 ignore next -- Bun has other messages */
    throw process.versions.bun ? error : new SyntaxError(`${message} (line ${lines.length}, column ${Number(lines.at(-1)?.length) + 1})`)
  }
}

/** The length of the longest start of a text that can become JSON. (Not every message of V8 has a position, and none of Bun.) */
function brokenAt (text: string, valid = 0, invalid = text.length + 1): number {
  if (invalid - valid === 1) return valid
  const middle = (valid + invalid) >> 1
  return canContinue(text.slice(0, middle)) ? brokenAt(text, middle, invalid) : brokenAt(text, valid, middle)
}

function canContinue (start: string) {
  try {
    JSON.parse(start)
    return true
  } catch (error) {
    return new RegExp(`^Unterminated string|^Unexpected end|at position ${start.length}\\b`).test((error as Error).message)
  }
}

/** Loads a module that needs an optional package. */
export async function loadOptional<T> (name: string, option: string, load: () => Promise<T>) {
  try {
    return await load()
  } catch (error) {
    if (!/^(ERR_)?MODULE_NOT_FOUND$/.test(String((error as NodeJS.ErrnoException).code))) throw error
    throw new StartupError(`The option ${option} needs the package ${name}, which is not installed. Run: npm install ${name}`)
  }
}
