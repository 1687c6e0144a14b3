import { compare, type Place, type Value } from '../query.js'

/** A record as JSON, with its position and the values of the fields that can be queried. */
export interface Entry {
  position: number
  id: number
  json: string
  values: Record<string, Value>
}

/** Some entries of an index, in its order. */
export interface Chunk {
  entries: Entry[]
  /** Number of characters of the records. */
  size: number
  /** How often the index had been read when the chunk was created. A chunk that may be being read is replaced instead of changed. */
  reads: number
  /** The records, each after a comma. */
  bytes?: Buffer
}

/** A chunk has at most so many entries, and so many characters, unless it is one entry. */
const maxEntries = 1024
const maxSize = 128 * 1024

/** The address of an entry is the number of its chunk times this, plus its place in the chunk. */
const stride = 2 * maxEntries

export type Index = ReturnType<typeof sortedIndex>

/** Entries in the order of their values, and of their positions if these are equal. */
export function sortedIndex (valueOf: (entry: Entry) => Value) {
  const chunks: Chunk[] = []
  let reads = 0
  const placeOf = (entry: Entry): Place => ({ value: valueOf(entry), position: entry.position })
  const compareTo = (entry: Entry, { value, position }: Place) => compare(valueOf(entry), value) || entry.position - position

  return { valueOf, placeOf, compare: compareTo, change, first, addressOf, end, count, read, walk }

  /** Removes entries at the place of an entry, and inserts others. */
  function change (entry: Entry, removed: number, ...added: Entry[]) {
    const { n, offset } = locate(placeOf(entry))
    const chunk = chunks[n] ?? chunkOf([], reads)
    const entries = chunk.reads < reads ? [...chunk.entries] : chunk.entries
    const gone = entries.splice(offset, removed, ...added)
    chunks.splice(n, 1, ...split({ entries, size: chunk.size + sizeOf(added) - sizeOf(gone), reads }))
    for (const small of removed > 0 ? [n, n - 1] : []) mergeSmall(small)
  }

  /** Merges a chunk with the next one if both are small. */
  function mergeSmall (n: number) {
    const [one, next] = [chunks[n], chunks[n + 1]]
    if (!one || !next || one.size + next.size > maxSize / 4 || one.entries.length + next.entries.length > maxEntries / 4) return
    chunks.splice(n, 2, chunkOf([...one.entries, ...next.entries], reads))
  }

  /** The first entry with a value, from a position on. */
  function first (value: Value, position = -Infinity) {
    const { n, offset } = locate({ value, position })
    const found = chunks[n]?.entries[offset] ?? chunks[n + 1]?.entries[0]
    return found && compare(valueOf(found), value) === 0 ? found : undefined
  }

  /** The chunk and the offset in it of the first entry that is not before a place. */
  function locate (place: Place) {
    const last = chunks.at(-1)?.entries ?? []
    if (last.length > 0 && compareTo(last.at(-1) as Entry, place) < 0) return { n: chunks.length - 1, offset: last.length } // the place of a new record
    const n = Math.max(0, lowerBound(chunks, ({ entries }) => compareTo(entries[0] as Entry, place) <= 0) - 1)
    return { n, offset: lowerBound(chunks[n]?.entries ?? [], entry => compareTo(entry, place) < 0) }
  }

  /** The address of the first entry that is not before a place. */
  function addressOf (place: Place) {
    const { n, offset } = locate(place)
    return n * stride + offset
  }

  /** The address after all entries. */
  function end () {
    return chunks.length * stride
  }

  /** The number of entries from one address to another. */
  function count (start: number, end: number) {
    let counted = end % stride - start % stride
    for (let n = Math.floor(start / stride); n < Math.floor(end / stride); n++) counted += (chunks[n] as Chunk).entries.length
    return counted
  }

  /** The chunks as of now. */
  function read (from = 0, to = chunks.length) {
    reads++
    return chunks.slice(from, to)
  }

  /** The entries from one address to another, as of now, chunk by chunk. Only the first ones of each chunk are needed. */
  function walk (start: number, end: number, descending = false, needed = Infinity) {
    const [first, last] = [Math.floor(start / stride), Math.floor(end / stride)]
    return slices(read(first, last + 1), start % stride, last - first, end % stride, descending, needed)
  }
}

function * slices (chunks: Chunk[], start: number, last: number, end: number, descending: boolean, needed: number) {
  for (let visited = 0; visited < chunks.length; visited++) {
    const n = descending ? chunks.length - 1 - visited : visited
    const part = (chunks[n] as Chunk).entries.slice(n === 0 ? start : 0, n === last ? end : Infinity)
    yield (descending ? part.reverse() : part).slice(0, needed)
  }
}

function chunkOf (entries: Entry[], reads: number): Chunk {
  return { entries, size: sizeOf(entries), reads }
}

function sizeOf (entries: Entry[]) {
  let size = 0
  for (const { json } of entries) size += json.length
  return size
}

/** Splits a chunk that is too large. */
function split (chunk: Chunk): Chunk[] {
  const { entries, size, reads } = chunk
  const half = entries.length >> 1
  if (half === 0 || (size <= maxSize && entries.length <= maxEntries)) return entries.length > 0 ? [chunk] : []
  return [entries.slice(0, half), entries.slice(half)].flatMap(part => split(chunkOf(part, reads)))
}

/** The index of the first value that is not before the place that is searched. */
function lowerBound<T> (values: T[], isBefore: (value: T) => boolean) {
  let from = 0
  let to = values.length
  while (from < to) {
    const middle = (from + to) >>> 1
    if (isBefore(values[middle] as T)) from = middle + 1
    else to = middle
  }
  return from
}
