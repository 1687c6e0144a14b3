import { encoderOf } from './encode.js'
import { segmentedJson } from './segments.js'
import type { Collection, Identified, Store } from './store.js'

/** Keeps a collection in memory. No method but `list` takes longer as it grows, duplicates included. */
export function memory<T extends Identified> ({ schema, start }: Pick<Collection<T>, 'schema' | 'start'>): Store<T> {
  const encode = encoderOf<T>(schema)
  const records = segmentedJson()
  // Positions of records: the first with an id and, where there are more, each one's next and the last.
  const firstById = new Map<number, number>()
  const nextAfter = new Map<number, number>()
  const lastById = new Map<number, number>()

  start.forEach(append)
  return { append, first, list: records.list, removeFirst }

  function append (record: T) {
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
    return json
  }

  function first (id: number) {
    const position = firstById.get(id)
    return position === undefined ? undefined : records.at(position)
  }

  function removeFirst (id: number) {
    const position = firstById.get(id)
    if (position === undefined) return false
    records.remove(position)
    const next = nextAfter.get(position)
    if (next === undefined) {
      firstById.delete(id)
      lastById.delete(id)
    } else {
      firstById.set(id, next)
      nextAfter.delete(position)
    }
    return true
  }
}
