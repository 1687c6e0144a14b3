import { hash } from 'node:crypto'
import type { TObject } from '@sinclair/typebox'
import { pointer } from '../../schemas/error-body.js'
import { fieldsOf, type Field } from './indexed-fields.js'
import { planner, type Value } from './query-plan.js'
import { recordTimes } from './record-times.js'
import { NotStorableError } from './store-errors.js'
import type { AnyRecord, HasId, Id, StoreDefinition } from './store.js'
import { indexTime } from './times.js'

/** What the rules and the engines need of a collection. */
export type Collection = ReturnType<typeof collectionOf>

/** The collections of an engine, by name. */
export type Collections = Map<string, Collection>

/** A field that refers to a collection. */
export interface Reference {
  collection: string
  field: string
}

/** A record as it is stored. */
export interface Row {
  position: number
  id: Id
  json: string
  /** The values of the fields with an index, by field. */
  values: Record<string, Value>
}

/** Ids of clients above this one are skipped when the server generates ids, so that enough are left. */
export const maxCountedId = 2 ** 52

/** PostgreSQL has no larger texts in an index. In UTF-16 units, each of which has at most three bytes. */
const maxIndexedText = 850

export function collectionOf<T extends HasId> (definition: StoreDefinition<T>) {
  const { name, schema, seed, references = {}, renames = {}, removes = [], upgrade, timestamps } = definition
  const indexed = ['id', ...indexedFields(definition)]
  const fields = fieldsOf(schema).filter(field => indexed.includes(field.name))
  const { type, minimum = 1, maximum = maxCountedId } = { ...schema.properties.id }
  return {
    name,
    schema,
    seed: seed.map(record => withoutUnknown(schema, record as AnyRecord)),
    renames,
    removes,
    upgrade,
    times: recordTimes(timestamps),
    /** The fields with an index. */
    fields,
    unique: uniqueFields(definition),
    /** The fields that refer to others, in the order in which their collections are locked. */
    references: Object.entries(references).sort(([, one], [, other]) => one < other ? -1 : 1),
    /** The first and the last id that the server generates, unless they are UUIDs. */
    ids: { first: Math.max(Math.ceil(minimum), 1), last: Math.min(maximum, maxCountedId) },
    hasTextIds: type === 'string',
    plan: planner(fields),
    encode: encoderOf(schema),
    valuesOf: (record: AnyRecord) => Object.fromEntries(fields.map(field => [field.name, indexedValue(record, field)]))
  }
}

/** A record without the fields that are not in its schema. */
function withoutUnknown ({ properties }: TObject, record: AnyRecord) {
  return Object.fromEntries(Object.entries(record).filter(([name]) => Object.hasOwn(properties, name)))
}

/** Returns a function that encodes a record: the fields of its schema in their order, then others. */
function encoderOf ({ properties }: TObject) {
  const names = Object.keys(properties)
  return function encode (record: AnyRecord) {
    const ordered: AnyRecord = {}
    for (const name of names) ordered[name] = record[name]
    for (const name in record) ordered[name] = record[name]
    return JSON.stringify(ordered)
  }
}

/** The records of a new collection, and its counter. */
export function seedOf ({ seed, times, encode, valuesOf }: Collection) {
  const records = seed.map(times.completed)
  const rows = records.map((record, n): Row =>
    ({ position: n + 1, id: record.id as Id, json: encode(record), values: valuesOf(record) }))
  const ids = records.map(({ id }) => typeof id === 'number' && id <= maxCountedId ? id : 0)
  return { rows, counter: { position: rows.length, lastId: ids.reduce((one, other) => Math.max(one, other), 0) } }
}

type Indexed = Pick<StoreDefinition<HasId>, 'filters' | 'unique' | 'references'>

/** The names of the fields that have an index besides the id: queries can use them. */
export function indexedFields ({ filters = [], unique = [], references = {} }: Indexed) {
  return [...new Set([...filters, ...unique, ...Object.keys(references)])]
}

/** What decides which values no two records have in common. */
export type WithUnique = Pick<StoreDefinition<HasId>, 'schema' | 'unique' | 'idSource'>

/** The names of the fields whose values no two records have in common. Ids that are texts are unique. */
export function uniqueFields ({ schema, unique = [], idSource }: WithUnique) {
  const isIdUnique = idSource === 'server' || schema.properties.id?.type === 'string'
  return [...new Set([...isIdUnique ? ['id'] : [], ...unique])]
}

/** The value of a field with an index, which every database can compare. An absent value is like null. */
function indexedValue (record: AnyRecord, { name, type, isTime }: Field) {
  const value = record[name] ?? undefined
  if (type !== 'string' || typeof value !== 'string') return value as Value
  if (value.includes('\0')) throw notIndexed(name, 'must not contain the character NUL')
  if (value.length > maxIndexedText) throw notIndexed(name, `must not have more than ${maxIndexedText} characters`)
  return isTime ? indexTime(value) : value
}

function notIndexed (name: string, message: string) {
  return new NotStorableError([{ path: pointer(name), message: `${message}, because it can be queried` }])
}

/** The fields of all collections that refer to this one. */
export function referrersOf (collections: Collections, { name: target }: Collection): Reference[] {
  return Array.from(collections.values()).flatMap(({ name: collection, references }) =>
    references.filter(([, other]) => other === target).map(([field]) => ({ collection, field })))
}

/** The SHA-256 digest of a text. */
export function digestOf (text: string) {
  return hash('sha256', text, 'base64url')
}
