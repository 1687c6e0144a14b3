import { pointer } from '../../schemas/errors.js'
import { NotStorableError } from './errors.js'
import { fieldsOf, type Field } from './fields.js'
import { planner, type Value } from './query.js'
import { indexedFields, uniqueFields, type HasId, type StoreDefinition } from './store.js'

/** What the rules and the engines need of a collection. */
export type Collection = ReturnType<typeof collectionOf>

/** The collections of an engine, by name. */
export type Collections = Map<string, { collection: Collection }>

/** A field that refers to a collection. */
export interface Reference {
  collection: string
  field: string
}

/** A record as it is stored. `values` are those of the fields with an index, in their order. */
export interface Row {
  position: number
  id: number
  record: string
  values: Value[]
}

/** Ids of clients above this one are skipped when the server generates ids, so that enough are left. */
export const maxCountedId = 2 ** 52

/** PostgreSQL has no larger texts in an index. In UTF-16 units, each of which has at most three bytes. */
const maxIndexedText = 850

export function collectionOf<T extends HasId> (definition: StoreDefinition<T>) {
  const { name, schema, seed, references = {}, renames = {}, removes = [], upgrade } = definition
  const indexed = indexedFields(definition)
  const fields = fieldsOf(schema).filter(field => indexed.includes(field.name))
  const columns = fields.filter(field => field.name !== 'id')
  const names = Object.keys(schema.properties)
  const { minimum = 1, maximum = maxCountedId } = { ...schema.properties.id }
  return {
    name,
    schema,
    seed: seed.map(record => known(record, names) as T),
    renames,
    removes,
    upgrade,
    /** The fields with an index besides the id. */
    columns,
    /** The fields whose values no two records have in common. */
    unique: uniqueFields(definition),
    /** The fields that refer to others, in the order in which their collections are locked. */
    references: Object.entries(references).sort(([, one], [, other]) => one < other ? -1 : 1),
    /** The first and the last id that the server generates. */
    ids: { first: Math.max(Math.ceil(minimum), 1), last: Math.min(maximum, maxCountedId) },
    plan: planner(fields),
    /** A new record, which has only the fields of the schema. */
    known: (record: object) => known(record, names),
    encoderOf: encoder(names),
    valuesOf: (record: object) => columns.map(field => indexedValue(record, field))
  }
}

/** Returns a function that encodes a record: the fields of its schema in their order, then others. Its id follows. */
function encoder (names: string[]) {
  const place = names.indexOf('id')
  const before = names.slice(0, place)
  const after = names.slice(place + 1)

  return function encoderOf (record: object) {
    const known = JSON.stringify(picked(record, before)).slice(1, -1)
    const others = JSON.stringify({ ...picked(record, after), ...without(record, names) }).slice(1, -1)
    const start = known === '' ? '{"id":' : `{${known},"id":`
    const end = others === '' ? '}' : `,${others}}`
    return (id: number) => start + JSON.stringify(id) + end
  }
}

function known (record: object, names: string[]) {
  return without(record, names) === undefined ? record : picked(record, names)
}

function picked (record: object, names: string[]) {
  const result: Record<string, unknown> = {}
  for (const name of names) result[name] = Reflect.get(record, name)
  return result
}

function without (record: object, names: string[]) {
  const others = Object.keys(record).filter(name => !names.includes(name))
  return others.length === 0 ? undefined : picked(record, others)
}

/** The value of a field with an index, which every database can compare. */
function indexedValue (record: object, { name, type }: Field) {
  const value: unknown = Reflect.get(record, name)
  if (type === 'string' && typeof value === 'string') {
    const refuse = (message: string) => {
      throw new NotStorableError(pointer(name), `${message}, because it can be queried`)
    }
    if (value.includes('\0')) refuse('must not contain the character NUL')
    if (value.length > maxIndexedText) refuse(`must not have more than ${maxIndexedText} characters`)
  }
  return value as Value
}

/** The fields of other collections, and of the same one, that refer to a collection. */
export function referrersOf (collections: Collections, target: string): Reference[] {
  return Array.from(collections.values()).flatMap(({ collection: { name, references } }) =>
    references.filter(([, other]) => other === target).map(([field]) => ({ collection: name, field })))
}
