import { readFileSync } from 'node:fs'
import { problemsOf, validatorOf } from './http/validation.js'
import { readNamed, StartupError } from './startup.js'
import type { Records } from './stores/host-stores.js'
import type { Collection, HasId } from './stores/store.js'

/** The initial records of new collections, by the name of the collection. */
export interface Seed extends Partial<{ [K in keyof Records]: readonly Records[K][] }> {
  [collection: string]: readonly object[] | undefined
}

/** Reads the JSON object in the file that a variable names. */
export function readObject (variable: string, file: string, example: string): Record<string, unknown> {
  const value = readNamed(variable, () => JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file))))
  if (Object(value) !== value || Array.isArray(value)) throw new StartupError(`${variable} must contain a JSON object such as ${example}.`)
  return value
}

/** Provides the initial records of new collections, and collects all problems of a seed. */
export function checkedSeed (seed?: Seed) {
  const unused = new Set(Object.keys({ ...seed }))
  const problems: string[] = []
  return { recordsOf, assertValid }

  /** The records of a new collection: those in the seed if there is one, otherwise its own. */
  function recordsOf<T extends HasId> (collection: Collection<T>): readonly T[] {
    const { name } = collection
    const records = seed === undefined ? collection.seed : unused.delete(name) ? seed[name] : []
    const found = problemsOfRecords(collection, records)
    problems.push(...found.map(({ path, message }) => `  /${name}${path} ${message}`))
    return found.length === 0 ? records as T[] : []
  }

  /** Throws one error that lists all problems. Called when all collections have their records. */
  function assertValid () {
    for (const name of unused) problems.push(`  /${name} is not a collection`)
    if (problems.length > 0) throw new StartupError(['Invalid records in the option seed:', ...problems].join('\n'))
  }
}

/** The problems of the records of a collection. A seed is for all engines, so the records must not contain what a database cannot store. */
export function problemsOfRecords ({ schema }: Pick<Collection<HasId>, 'schema'>, records: unknown) {
  if (!Array.isArray(records)) return [{ path: '', message: 'must be an array' }]
  const validate = validatorOf(schema)
  return records.flatMap((record, n) => {
    const problems = validate(record) ? [] : problemsOf(validate.errors)
    const texts = Object.entries(Object(record)).filter(([, value]) => typeof value === 'string' && value.includes('\0'))
    return [...problems, ...texts.map(([field]) => ({ path: `/${field}`, message: 'must not contain the character NUL' }))]
      .map(({ path, message }) => ({ path: `/${n}${path}`, message }))
  })
}
