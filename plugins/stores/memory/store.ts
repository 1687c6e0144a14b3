import { randomInt } from 'node:crypto'
import { encoderOf, fieldsOf } from '../fields.js'
import { digestOf, jsonOf, memoryKeys, previousId, type Insert } from '../idempotency.js'
import type { Query } from '../../../schemas/query.js'
import { planner } from '../query.js'
import { generatedIds, hasId, maxCountedId, nextId, numbered, type HasId, type Store, type StoreDefinition } from '../store.js'
import { indexesOf } from './indexes.js'
import { countEntries, readEntries } from './queries.js'
import { segmentedJson } from './segments.js'

/** Creates a store in memory. Only `list` takes longer as the collection grows. */
export function memory<T extends HasId> ({ schema, seed, filters = [] }: Pick<StoreDefinition<T>, 'schema' | 'seed' | 'filters'>, timeout = Infinity): Required<Store<T>> {
  const encode = encoderOf(schema)
  const ids = generatedIds({ schema, seed })
  const records = segmentedJson()
  const keys = memoryKeys()
  // Positions of records: the first record with an id, the next record with the same id, and the last one.
  const firstById = new Map<number, number>()
  const nextAfter = new Map<number, number>()
  const lastById = new Map<number, number>()
  let lastId = ids.before
  let size = 0
  let changes = 0
  /** Distinguishes the versions of this store from those of other instances. */
  const instance = randomInt(2 ** 47).toString(36)
  const fields = fieldsOf(schema).filter(({ name }) => filters.includes(name))
  const plan = planner(fields)
  const indexes = fields.length > 0 ? indexesOf(filters) : undefined

  seed.forEach(add)
  return {
    schema,
    append: (record, key) => append({ records: [record], isMany: false, key }),
    appendAll: (records, key) => append({ records, isMany: true, key }),
    change,
    first,
    select,
    count,
    version: () => `${instance}-${changes}`
  }

  function append ({ records, isMany, key }: Insert<T>) {
    const digest = key === undefined ? '' : digestOf(jsonOf(records.map(encode), isMany))
    const given = key === undefined ? undefined : previousId(keys.get(key), digest)
    if (given !== undefined) return jsonOf(numbered(records, given).map(encode), isMany)
    const first = firstIdOf(records)
    if (key !== undefined) keys.set(key, { digest, id: first })
    return jsonOf(numbered(records, first).map(add), isMany)
  }

  /** The id of the first record: its own, or a new one. */
  function firstIdOf (records: Insert<T>['records']) {
    if (records.every(hasId)) return Number(records[0]?.id)
    const first = nextId(lastId, id => firstById.get(id) !== undefined, ids.maximum, records.length)
    lastId = first + records.length - 1
    return first
  }

  function add (record: HasId) {
    const { id } = record
    const json = encode(record)
    const position = records.add(json)
    indexes?.add(position, json, record)
    const first = firstById.get(id)
    if (first === undefined) {
      firstById.set(id, position)
    } else {
      nextAfter.set(lastById.get(id) ?? first, position)
      lastById.set(id, position)
    }
    if (id > lastId && id <= maxCountedId) lastId = id
    size++
    changes++
    return json
  }

  function select (query: Query<T>) {
    const planned = plan(query)
    const { isPlain, after, limit, cursorOf } = planned
    if (indexes && !isPlain) return readEntries(indexes.find(planned), planned, timeout)
    if (limit === Infinity && !after) return { list: records.list() }
    const { list, next } = records.page(limit, after?.position ?? 0)
    return { list, ...next !== undefined && { next: cursorOf({ position: next, value: undefined }) } }
  }

  function count (query: Pick<Query<T>, 'where' | 'limit'>) {
    const planned = plan(query)
    return indexes && planned.conditions.length > 0 ? countEntries(indexes.find(planned), timeout) : size
  }

  function first (id: number) {
    const position = firstById.get(id)
    return position === undefined ? undefined : records.at(position)
  }

  function change (id: number, changeOf: (current: string) => T | undefined) {
    const position = firstById.get(id)
    if (position === undefined) return
    const current = records.at(position)
    const record = changeOf(current)
    const json = record && encode(record)
    records.change(position, json)
    indexes?.remove(position)
    if (record) indexes?.add(position, String(json), record)
    changes++
    if (!json) forget(id, position)
    return json ?? current
  }

  /** Makes the next record with this id the first one. */
  function forget (id: number, position: number) {
    const next = nextAfter.get(position)
    if (next === undefined) {
      firstById.delete(id)
      lastById.delete(id)
    } else {
      firstById.set(id, next)
      nextAfter.delete(position)
    }
    size--
  }
}
