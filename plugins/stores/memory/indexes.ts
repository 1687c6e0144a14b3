import { randomInt } from 'node:crypto'
import { afterPrefix, testOf, type Condition, type Plan, type Value } from '../query.js'
import type { HasId } from '../store.js'
import { sortedIndex, type Entry, type Index } from './sorted-index.js'

/** So many entries are read and sorted, instead of walking through an index that has the order of the query. */
const few = 1000

/** The values of all entries of a collection without fields that can be queried. */
const noValues = {}

/** The place after all entries whose field is absent. */
const present = { value: undefined, position: Infinity }

/** Keeps entries in the order of their positions and of each field, and finds the first one with an id, and those that a query asks for. */
export function indexesOf (fields: readonly string[]) {
  const byPosition = sortedIndex(() => undefined)
  const byField = new Map(fields.map(name => [name, sortedIndex(({ values }) => values[name])]))
  const all = [byPosition, ...byField.values()]
  const firstById = mapByInteger<Entry>()
  const othersById = sortedIndex(({ id }) => id)
  const fieldIndex = ({ field }: Condition) => byField.get(field.name) as Index

  return {
    byPosition,
    first: (id: number) => firstById.get(id),

    add (position: number, record: HasId, json: string) {
      const entry = added(position, record.id, record, json)
      if (firstById.get(entry.id)) othersById.change(entry, 0, entry)
      else firstById.set(entry.id, entry)
    },

    /** Replaces the first entry with an id, or removes it if there is no other record. */
    change (first: Entry, record: object | undefined, json: string) {
      for (const index of all) index.change(first, 1)
      const next = record ? added(first.position, first.id, record, json) : othersById.first(first.id)
      if (next && !record) othersById.change(next, 1)
      if (next) firstById.set(first.id, next)
      else firstById.delete(first.id)
    },

    /** Returns whether an entry that is not at the given position has this value of a field. */
    hasOther (name: string, value: Value, position?: number) {
      const index = byField.get(name)
      const first = index ? index.first(value) : firstById.get(Number(value))
      return first !== undefined && (first.position !== position || index?.first(value, position + 0.5) !== undefined)
    },

    /** Returns the entries of a query as of now, in its order, in parts that are found one after the other. */
    find ({ conditions, sort, descending, after, limit }: Plan): Iterable<Entry[]> {
      const tests = conditions.map(condition => ({ valueOf: fieldIndex(condition).valueOf, test: testOf(condition) }))
      const isFound = (entry: Entry) => tests.every(({ valueOf, test }) => test(valueOf(entry)))
      const ranges = conditions.map(condition => ({ condition, index: fieldIndex(condition), ranges: rangesOf(condition, fieldIndex(condition)) }))
      const [narrowest] = ranges.map(entry => ({ ...entry, size: entry.ranges.reduce((sum, [start, end]) => sum + entry.index.count(start, end), 0) })).sort((one, other) => one.size - other.size)
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
      const start = Math.max(0, ...bounds.map(([start]) => start), place && !descending ? order.addressOf({ ...place, position: place.position + 0.5 }) : 0)
      const end = Math.min(order.end(), ...bounds.map(([, end]) => end), place && descending ? order.addressOf(place) : Infinity)
      return filtered(order.walk(start, end, descending, conditions.length > 0 ? Infinity : limit + 1), isFound)
    }
  }

  function added (position: number, id: number, record: object, json: string): Entry {
    Number(json) // V8 then keeps it in one piece, not in those that it was concatenated from, and needs 0.4 of the memory
    const values = fields.length > 0 ? Object.fromEntries(fields.map(name => [name, Reflect.get(record, name)])) : noValues
    const entry = { position, id, json, values }
    for (const index of all) index.change(entry, 0, entry)
    return entry
  }
}

/** A map whose keys are integers that clients choose. Those of `Map` can be chosen so that they are all in one bucket, because V8 has no secret for integers. */
function mapByInteger<T> () {
  const [one, other] = [randomInt(2 ** 31), randomInt(2 ** 30) * 2 + 1]
  const entries = new Map<number | string, T>()
  const keyOf = (id: number) => id === (id | 0) ? Math.imul(id ^ one, other) : String(id)
  return {
    get: (id: number) => entries.get(keyOf(id)),
    set: (id: number, value: T) => { entries.set(keyOf(id), value) },
    delete: (id: number) => { entries.delete(keyOf(id)) }
  }
}

function * filtered (parts: Iterable<Entry[]>, isFound: (entry: Entry) => boolean) {
  for (const part of parts) yield part.filter(isFound)
}

/** The addresses between which an index has the entries that meet a condition, for each value of `in`. */
function rangesOf ({ operator, value }: Condition, { addressOf, end }: Index): [start: number, end: number][] {
  const before = (value: Value) => addressOf({ value, position: -Infinity })
  const behind = (value: Value) => addressOf({ value, position: Infinity })
  const one = value as Value
  switch (operator) {
    case 'in': return Array.from(new Set(value as Value[]), value => [before(value), behind(value)])
    case 'exists': return [value ? [addressOf(present), end()] : [0, addressOf(present)]]
    case 'gt': return [[behind(one), end()]]
    case 'gte': return [[before(one), end()]]
    case 'lt': return [[addressOf(present), before(one)]]
    case 'lte': return [[addressOf(present), behind(one)]]
    case 'prefix': {
      const next = afterPrefix(String(one))
      return [[before(one), next === undefined ? end() : before(next)]]
    }
  }
}
