import type { Identified, Store } from './store.js'

interface Entry<T> {
  record: T
  /** The next entry with the same id. */
  next?: Entry<T>
  /** Of the first entry with an id: the last one. */
  last?: Entry<T>
}

/** Keeps a collection in memory. No method but `list` takes longer as it grows, duplicates included. */
export function memory<T extends Identified> (start: T[]): Store<T> {
  const entries = new Set<Entry<T>>()
  const firstById = new Map<number, Entry<T>>()

  start.forEach(append)
  return { append, first, list, removeFirst }

  function append (record: T) {
    const entry: Entry<T> = { record }
    const first = firstById.get(record.id)
    if (first === undefined) {
      firstById.set(record.id, entry)
    } else {
      (first.last ?? first).next = entry
      first.last = entry
    }
    entries.add(entry)
    return record
  }

  function first (id: number) {
    return firstById.get(id)?.record
  }

  function list () {
    return Array.from(entries, entry => entry.record)
  }

  function removeFirst (id: number) {
    const entry = firstById.get(id)
    if (entry === undefined) return false
    entries.delete(entry)
    const { next, last } = entry
    if (next === undefined) {
      firstById.delete(id)
    } else {
      firstById.set(id, next)
      if (next !== last) next.last = last
    }
    return true
  }
}
