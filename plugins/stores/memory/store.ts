import { randomInt } from 'node:crypto'
import { encoderOf } from '../fields.js'
import { digestOf, previousId, memoryKeys } from '../idempotency.js'
import { generatedIds, hasId, maxCountedId, nextId, type HasId, type NewRecord, type Store, type StoreDefinition } from '../store.js'
import { segmentedJson } from './segments.js'

/** Creates a store in memory. Only `list` takes longer as the collection grows. */
export function memory<T extends HasId> ({ schema, seed }: Pick<StoreDefinition<T>, 'schema' | 'seed'>): Required<Store<T>> {
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

  seed.forEach(add)
  return {
    schema,
    append,
    change,
    first,
    list: records.list,
    page: (limit, after = 0) => records.page(limit, after),
    size: () => size,
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
