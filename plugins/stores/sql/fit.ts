import { NotStorableError } from '../errors.js'
import type { Collection } from '../collection.js'
import type { Value } from '../query.js'
import type { CheckerOf } from '../store.js'

/** How a stored record fits the schema of this release. */
export interface Fit {
  /** The values of the fields with an index. */
  values: Value[]
  text: string
  isChanged: boolean
  problems: string[]
}

type Fields = Record<string, unknown>

/** Returns functions that fit stored records into a schema: with all changes of its definition, or without. */
export function fitter (collection: Collection, checkerOf: CheckerOf) {
  const { schema, renames, removes, upgrade, encoderOf } = collection
  const problemsIn = checkerOf(schema, { useDefaults: false, removeUnknown: false })
  const problemsWithDefaults = checkerOf(schema, { useDefaults: true, removeUnknown: false })
  const isKnown = (name: string) => Object.hasOwn(schema.properties, name)
  return { asItIs, changed }

  function asItIs (record: Fields): Fit {
    return fitOf(record, record, (problemsIn(record) ?? []).map(sentence))
  }

  /** Renames and removes fields, upgrades the record, and adds defaults if it does not fit without them. */
  function changed (old: Fields): Fit {
    const { record, lost } = renamed(old)
    const upgraded = { ...upgrade ? upgrade(record) : record } as Fields
    for (const name of removes) delete upgraded[name]
    const unknown = Object.keys(upgraded).filter(name => !isKnown(name)).map(name =>
      `${name} is not in the schema. Add it, or name it in removes`)
    const needsDefaults = problemsIn(upgraded) !== undefined
    const problems = needsDefaults ? problemsWithDefaults(upgraded) ?? [] : []
    return fitOf(old, upgraded, [...lost, ...unknown, ...problems.map(sentence)])
  }

  function renamed (old: Fields) {
    const record = { ...old }
    const lost: string[] = []
    for (const [from, to] of Object.entries(renames)) {
      if (!Object.hasOwn(record, from)) continue
      if (Object.hasOwn(record, to)) lost.push(`${from} cannot be renamed to ${to}, because the record has both`)
      record[to] = record[from]
      delete record[from]
    }
    return { record, lost }
  }

  function fitOf (old: Fields, record: Fields, problems: string[]): Fit {
    const text = encoderOf(record)(Number(old.id))
    const isChanged = text !== encoderOf(old)(Number(old.id))
    try {
      return { values: collection.valuesOf(record), text, isChanged, problems }
    } catch (error) {
      if (!(error instanceof NotStorableError)) throw error
      return { values: [], text, isChanged, problems: [...problems, sentence(error)] }
    }
  }
}

function sentence ({ path, message }: { path: string, message: string }) {
  return `${path.slice(1) || 'it'} ${message}`
}
