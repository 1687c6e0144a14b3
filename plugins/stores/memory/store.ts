import { randomInt } from 'node:crypto'
import { encoderOf, fieldsOf } from '../fields.js'
import { digestOf, previousId, memoryKeys } from '../idempotency.js'
import type { Query } from '../../../schemas/query.js'
import { planner } from '../query.js'
import { generatedIds, hasId, maxCountedId, nextId, type HasId, type NewRecord, type Store, type StoreDefinition } from '../store.js'
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
    append,
    change,
    first,
    select,
    count,
    version: () => `${instance}-${changes}`
  }

  function append (record: NewRecord<T>, key?: string) {
    if (key === undefined) return add(numbered(record))
    const digest = digestOf(encode(record))
    const given = previousId(keys.get(key), digest)
    if (given !== undefined) return encode({ ...record, id: given })
    const appended = numbered(record)
    keys.set(key, { digest, id: appended.id })
    return add(appended)
  }

  function numbered (record: NewRecord<T>) {
    if (hasId(record)) return record
    lastId = nextId(lastId, id => firstById.get(id) !== undefined, ids.maximum)
    return { ...record, id: lastId }
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
