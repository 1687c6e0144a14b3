import { afterPrefix, compare, testOf, type Condition, type Place, type Plan, type Value } from '../query.js'

/** A record, with its position and the values of the fields that can be queried. */
export interface Entry {
  position: number
  json: string
  values: Record<string, Value>
}

/** A chunk of an index has at most so many entries. */
const chunkSize = 256

/** So many entries are read and sorted, instead of walking through an index that has the order of the query. */
const few = 1000

/** The place after all entries whose field is absent. */
const present = { value: undefined, position: Infinity }

/** Keeps entries in the order of their positions and of each field, and finds those that a query asks for. */
export function indexesOf (fields: readonly string[]) {
  const entries = new Map<number, Entry>()
  const byPosition = indexOf(() => undefined)
  const byField = new Map(fields.map(name => [name, indexOf(({ values }) => values[name])]))
  const all = [byPosition, ...byField.values()]

  return {
    add (position: number, json: string, record: object) {
      const entry = { position, json, values: Object.fromEntries(fields.map(name => [name, Reflect.get(record, name)])) }
      entries.set(position, entry)
      for (const index of all) index.change(entry, 0, entry)
    },

    remove (position: number) {
      const entry = entries.get(position) as Entry
      entries.delete(position)
      for (const index of all) index.change(entry, 1)
    },

    /** The position of an entry with this value of a field that is not at the given position. */
    other (name: string, value: Value, position?: number) {
      const index = byField.get(name) as Index
      const first = index.next({ value, position: -Infinity })
      const found = first?.position === position ? index.next({ value, position: Number(position) + 0.5 }) : first
      return found && compare(found.values[name], value) === 0 ? found.position : undefined
    },

    /** Returns the entries of a query as of now, in its order, in parts that are found one after the other. */
    find ({ conditions, sort, descending, after }: Plan): Iterable<Entry[]> {
      const tests = conditions.map(condition => ({ name: condition.field.name, test: testOf(condition) }))
      const isFound = ({ values }: Entry) => tests.every(({ name, test }) => test(values[name]))
      const ranges = conditions.map(condition => ({ condition, index: fieldIndex(condition), ranges: rangesOf(condition, fieldIndex(condition)) }))
      const [narrowest] = ranges.map(entry => ({ ...entry, size: entry.ranges.reduce((sum, [start, end]) => sum + end - start, 0) })).sort((one, other) => one.size - other.size)
      // An index has the order of positions where its field has one value.
      const equal = sort ? undefined : ranges.find(({ condition: { operator }, ranges }) => operator === 'in' && ranges.length === 1)
      const order = equal?.index ?? (sort ? byField.get(sort.name) as Index : byPosition)
      const place = after && (equal ? { ...after, value: (equal.condition.value as Value[])[0] } : after)
      const isAfter = (entry: Entry) => !place || (descending ? order.compare(entry, place) < 0 : order.compare(entry, place) > 0)

      if (narrowest && narrowest.size <= few) {
        const { index, ranges } = narrowest
        const entries = ranges.flatMap(([start, end]) => [...index.walk(start, end)].flat()).filter(entry => isFound(entry) && isAfter(entry))
        entries.sort((one, other) => order.compare(one, order.placeOf(other)))
        return [descending ? entries.reverse() : entries]
      }
      const bounds = ranges.filter(({ index, ranges }) => index === order && ranges.length === 1).flatMap(({ ranges }) => ranges)
      const start = Math.max(0, ...bounds.map(([start]) => start), place && !descending ? order.rank({ ...place, position: place.position + 0.5 }) : 0)
      const end = Math.min(order.size(), ...bounds.map(([, end]) => end), place && descending ? order.rank(place) : Infinity)
      return filtered(order.walk(start, end, descending), isFound)
    }
  }

  function fieldIndex ({ field }: Condition) {
    return byField.get(field.name) as Index
  }
}

type Index = ReturnType<typeof indexOf>

/** Entries in the order of their values, and of their positions if these are equal. Chunks are replaced, so that those that are being read do not change. */
function indexOf (valueOf: (entry: Entry) => Value) {
  const chunks: Entry[][] = []
  let size = 0
  const placeOf = (entry: Entry): Place => ({ value: valueOf(entry), position: entry.position })
  const compareTo = (entry: Entry, { value, position }: Place) => compare(valueOf(entry), value) || entry.position - position

  return { size: () => size, placeOf, compare: compareTo, change, next, rank, walk }

  /** Removes entries at the place of an entry, and inserts others. */
  function change (entry: Entry, removed: number, ...added: Entry[]) {
    const { chunk, offset } = locate(placeOf(entry))
    const changed = (chunks[chunk] ?? []).toSpliced(offset, removed, ...added)
    const halves = changed.length > chunkSize ? [changed.slice(0, chunkSize / 2), changed.slice(chunkSize / 2)] : [changed]
    chunks.splice(chunk, 1, ...halves.filter(({ length }) => length > 0))
    size += added.length - removed
  }

  /** The number of entries before a place. */
  function rank (place: Place) {
    const { chunk, offset } = locate(place)
    let before = offset
    for (let n = 0; n < chunk; n++) before += (chunks[n] as Entry[]).length
    return before
  }

  /** The first entry that is not before a place. */
  function next (place: Place) {
    const { chunk, offset } = locate(place)
    return chunks[chunk]?.[offset] ?? chunks[chunk + 1]?.[0]
  }

  /** The chunk and the offset in it of the first entry that is not before a place. */
  function locate (place: Place) {
    const chunk = Math.max(0, lowerBound(chunks, ([first]) => first !== undefined && compareTo(first, place) <= 0) - 1)
    return { chunk, offset: lowerBound(chunks[chunk] ?? [], entry => compareTo(entry, place) < 0) }
  }

  /** The entries from one rank to another, as of now, chunk by chunk. */
  function walk (start: number, end: number, descending = false) {
    return descending ? backwards([...chunks], size, start, end) : forwards([...chunks], start, end)
  }
}

function * forwards (chunks: Entry[][], start: number, end: number) {
  let before = 0
  for (const chunk of chunks) {
    if (before >= end) return
    if (before + chunk.length > start) yield chunk.slice(Math.max(0, start - before), end - before)
    before += chunk.length
  }
}

function * backwards (chunks: Entry[][], size: number, start: number, end: number) {
  let before = size
  for (const chunk of chunks.reverse()) {
    before -= chunk.length
    if (before < end) yield chunk.slice(Math.max(0, start - before), end - before).reverse()
    if (before <= start) break
  }
}

function * filtered (parts: Iterable<Entry[]>, isFound: (entry: Entry) => boolean) {
  for (const part of parts) yield part.filter(isFound)
}

/** The ranks between which an index has the entries that meet a condition, for each value of `in`. */
function rangesOf ({ operator, value }: Condition, { rank, size }: Index): [start: number, end: number][] {
  const before = (value: Value) => rank({ value, position: -Infinity })
  const behind = (value: Value) => rank({ value, position: Infinity })
  const one = value as Value
  switch (operator) {
    case 'in': return Array.from(new Set(value as Value[]), value => [before(value), behind(value)])
    case 'exists': return [value ? [rank(present), size()] : [0, rank(present)]]
    case 'gt': return [[behind(one), size()]]
    case 'gte': return [[before(one), size()]]
    case 'lt': return [[rank(present), before(one)]]
    case 'lte': return [[rank(present), behind(one)]]
    case 'prefix': {
      const next = afterPrefix(String(one))
      return [[before(one), next === undefined ? size() : before(next)]]
    }
  }
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
