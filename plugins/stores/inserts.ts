import { maxCountedId, type Collection, type Row } from './collection.js'
import { digestOf } from './digests.js'
import { atIndex, conflicts, IdempotencyKeyReusedError, NoIdLeftError } from './errors.js'
import {
  addTo, ask, nothing, outcomeOf, type Asked, type Counter, type Found, type KeyUse, type Rules, type Writes
} from './facts.js'
import type { Value } from './query.js'
import type { HasId, NewRecord } from './store.js'

/** A call of `append` or `appendAll`. */
export interface Insert {
  records: NewValues[]
  isMany: boolean
  key?: string | undefined
  digest: string
  /** The approximate size of its records, in characters. */
  size: number
}

/** A record that is encoded, except for its id, before the transaction starts. */
interface NewValues {
  id?: number | undefined
  encode: (id: number) => string
  values: Value[]
}

type Given = NewRecord<HasId> | readonly NewRecord<HasId>[]

/** Reads a call. A call with records that cannot be stored throws. */
export function insertOf (collection: Collection, given: Given, key?: string, digest?: string): Insert {
  const isMany = Array.isArray(given)
  const newValues = (record: NewRecord<HasId>) => ({
    id: 'id' in record ? record.id : undefined,
    encode: collection.encoderOf(collection.known(record)),
    values: collection.valuesOf(record)
  })
  const records = isMany ? given.map((record, n) => atIndex(n, () => newValues(record))) : [newValues(given as HasId)]
  return {
    records,
    isMany,
    key,
    digest: key === undefined ? '' : digest ?? digestOf(JSON.stringify(given)),
    size: records.reduce((sum, { encode }) => sum + encode(0).length, 0)
  }
}

/** Inserts the records of calls, in order. A call with a key that was used gets the first response. */
export function * inserts (collection: Collection, calls: Insert[]): Rules {
  const facts = yield * ask(source => ({
    counter: source.counter(),
    keys: source.keys(calls.flatMap(({ key }) => key ?? [])),
    holders: source.holders(valuesIn(collection, calls)),
    existing: source.existing(targetsIn(collection, calls))
  }))
  const state = new InsertState(collection, facts)
  const outcomes = calls.map(call => outcomeOf(() => state.insert(call)))
  return { outcomes, writes: state.writes() }
}

interface Facts {
  counter: Counter
  keys: Map<string, KeyUse>
  holders: Found<Value, number>
  existing: Found<number, true>
}

/** The records that a transaction inserts so far. */
class InsertState {
  #rows: Row[] = []
  #keys = new Map<string, KeyUse>()
  /** The values of unique fields that its records have. */
  #used: Asked<Value> = new Map()
  #ids = new Set<number>()
  #lastId: number

  constructor (readonly collection: Collection, readonly facts: Facts) {
    this.#lastId = Math.max(facts.counter.lastId, collection.ids.first - 1)
  }

  /** Returns the response to a call, or throws before anything has changed. */
  insert ({ records, isMany, key, digest }: Insert) {
    const previous = key === undefined ? undefined : this.#keys.get(key) ?? this.facts.keys.get(key)
    if (previous && previous.digest !== digest) throw new IdempotencyKeyReusedError()
    if (previous) return previous.response

    const rows = this.#numbered(records)
    const ids = new Set(rows.map(({ id }) => id))
    const used: Asked<Value> = new Map()
    for (const [n, row] of rows.entries()) {
      const check = () => this.#check(row, ids, used)
      if (isMany) atIndex(n, check)
      else check()
    }
    const response = isMany ? `[${rows.map(({ record }) => record)}]` : rows.map(({ record }) => record).join()
    this.#add(rows)
    if (key !== undefined) this.#keys.set(key, { key, digest, response })
    return response
  }

  writes (): Writes {
    if (this.#rows.length === 0) return nothing
    const position = this.facts.counter.position + this.#rows.length
    const counter = { position, lastId: this.#lastId }
    return { ...nothing, inserts: this.#rows, keys: [...this.#keys.values()], counter }
  }

  /** Gives records their positions and, if one has no id, new ids. */
  #numbered (records: NewValues[]): Row[] {
    const areNew = records.some(({ id }) => id === undefined)
    const position = this.facts.counter.position + this.#rows.length + 1
    if (areNew && this.#lastId + records.length > this.collection.ids.last) throw new NoIdLeftError()
    return records.map(({ id, encode, values }, n) => {
      const own = areNew ? this.#lastId + 1 + n : Number(id)
      return { position: position + n, id: own, record: encode(own), values }
    })
  }

  /** Checks a record, together with others of its call: their ids, and the values of those before it. */
  #check (row: Row, ids: Set<number>, used: Asked<Value>) {
    const { collection, facts } = this
    for (const [field, target] of collection.references) {
      const id = valueOf(collection, row, field) as number | undefined
      const isOwn = target === collection.name && id !== undefined && (this.#ids.has(id) || ids.has(id))
      if (id !== undefined && !isOwn && !facts.existing.get(target)?.has(id)) throw conflicts.missing(field, target)
    }
    for (const field of collection.unique) {
      const value = valueOf(collection, row, field)
      if (value === undefined) continue
      const known = [facts.holders.get(field), this.#used.get(field), used.get(field)]
      if (known.some(values => values?.has(value))) throw conflicts.used(field)
      addTo(used, field, value)
    }
  }

  #add (rows: Row[]) {
    for (const row of rows) {
      this.#ids.add(row.id)
      for (const field of this.collection.unique) addTo(this.#used, field, valueOf(this.collection, row, field))
      if (row.id > this.#lastId && row.id <= maxCountedId) this.#lastId = row.id
    }
    this.#rows.push(...rows)
  }
}

/** The value of a field with an index. */
export function valueOf ({ columns }: Collection, { id, values }: Pick<Row, 'id' | 'values'>, field: string): Value {
  return field === 'id' ? id : values[columns.findIndex(({ name }) => name === field)]
}

function valuesIn (collection: Collection, calls: Insert[]) {
  return collected(calls, collection.unique.map(field => [field, field]), collection)
}

function targetsIn (collection: Collection, calls: Insert[]) {
  return collected(calls, collection.references, collection) as Asked<number>
}

/** The values of some fields of all new records, each under a name. */
function collected (calls: Insert[], names: string[][], collection: Collection) {
  const asked: Asked<Value> = new Map()
  for (const [field = '', name = ''] of names) {
    for (const record of calls.flatMap(({ records }) => records)) {
      const value = field === 'id' ? record.id : valueOf(collection, { id: 0, values: record.values }, field)
      if (value !== undefined) addTo(asked, name, value)
    }
  }
  return asked
}
