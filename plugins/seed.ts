import { readFileSync } from 'node:fs'
import { Type, type TObject } from '@sinclair/typebox'
import { Ajv, type ErrorObject } from 'ajv'
import { fault } from './http/faults.js'
import { checkingText, recordOptions } from './http/validation.js'
import { StartupError, type Collection, type HasId } from './stores/store.js'

/** The initial records of new collections, by the name of the collection. */
export type Seed = Record<string, unknown>

/** Reads a seed from a JSON file. */
export function readSeed (file: string): Seed {
  const seed = parsed(file)
  if (Object(seed) !== seed || Array.isArray(seed)) throw new StartupError('SEED_FILE must contain a JSON object such as {"items":[],"users":[]}.')
  return seed
}

/** Provides the initial records of new collections, and collects all problems of a seed. */
export function checkedSeed (seed?: Seed) {
  const unused = new Set(Object.keys({ ...seed }))
  const faults: string[] = []
  return { recordsOf, assertValid }

  /** The records of a new collection: those in the seed if there is one, otherwise its own. */
  function recordsOf<T extends HasId> (collection: Collection<T>): T[] {
    if (seed === undefined) return collection.seed
    const { name, schema } = collection
    if (!unused.delete(name)) return []
    const records = seed[name]
    const found = faultsOf(schema, records)
    faults.push(...found.map(({ path, message }) => `  /${name}${path} ${message}`))
    return found.length === 0 ? records as T[] : []
  }

  /** Throws one error that lists all problems. Called when all collections have their records. */
  function assertValid () {
    for (const name of unused) faults.push(`  /${name} is not a collection`)
    if (faults.length > 0) throw new StartupError(['Invalid seed (SEED_FILE):', ...faults].join('\n'))
  }
}

function parsed (file: string) {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file)))
  } catch (error) {
    throw new StartupError(`Cannot read SEED_FILE: ${(error as Error).message}`)
  }
}

/** The problems of the records of a collection. A seed is for all engines, so the records must not contain what a database cannot store. */
function faultsOf (schema: TObject, records: unknown) {
  const validate = new Ajv({ ...recordOptions, removeAdditional: false }).compile(checkingText(Type.Array(schema)))
  const faults = validate(records) ? [] : (validate.errors as ErrorObject[]).map(fault)
  for (const [n, record] of Object.entries(Object(records))) {
    for (const [field, value] of Object.entries(Object(record))) {
      if (typeof value === 'string' && value.includes('\0')) faults.push({ path: `/${n}/${field}`, message: 'must not contain the character NUL' })
    }
  }
  return faults
}
