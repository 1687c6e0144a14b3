import BTreeModule from 'sorted-btree'
import { StartupError } from '../startup.js'
import { collectionOf, seedOf, type Collection, type Collections, type Reference, type Row } from './collection.js'
import {
  keyLifetime, type Counter, type Engine, type KeyUse, type Reader, type Transaction, type Writes
} from './engine.js'
import { engineStore } from './engine-store.js'
import type { Field } from './fields.js'
import { maxListSize, type Piece, type Range } from './lists.js'
import { compare, comparePlaces, testOf, type Place, type Plan, type Value } from './query.js'
import { unfit, violations } from './store-errors.js'
import type { HasId, JsonStore, StoreDefinition } from './store.js'
import type { Summary, SummaryRow } from './summary.js'
import { oneAtATime } from './time-limits.js'

const BTree = BTreeModule.default
type Index = InstanceType<typeof BTree<Place, Row>>

/** How many idempotency keys are kept. Then the oldest are removed. */
const mostKeys = 20_000

/** The records of a collection. A transaction changes a copy, which shares everything else with the original. */
interface Table {
  rows: InstanceType<typeof BTree<number, Row>>
  /** The records by the value of a field, for each field with an index. */
  indexes: Map<string, Index>
  counter: Counter
  /** The list of all records, if it is not long. It is made when it is read, and lost with the next change. */
  list?: { json: Buffer | undefined }
}

type TableOf = (collection: string) => Table
type Keys = Map<string, KeyUse & { at: number }>

/** The memory of this process. */
export function memoryEngine (collections: Collections): Engine {
  const next = oneAtATime()
  const tables = new Map<string, Table>()
  const keys: Keys = new Map()
  const tableOf = (name: string) => tables.get(name) as Table

  return {
    start () {
      for (const collection of collections.values()) tables.set(collection.name, newTable(collection))
      const problems = [...collections.values()].flatMap(collection => missingTargets(collection, tableOf))
      if (problems.length > 0) throw new StartupError(unfit(problems))
    },
    reader: readerOn(tableOf),
    transaction: (work, { deadline }) => next(deadline, async function transact () {
      const changed = new Map<string, Table>()
      const newKeys: Keys = new Map()
      const result = await work(transactionOn(tableOf, changed, keys, newKeys))
      for (const [name, table] of changed) tables.set(name, table)
      for (const [key, use] of newKeys) keep(key, use)
      return result
    }),
    check () {},
    connections: () => ({ used: 0, idle: 0, waiting: 0 }),
    close () {}
  }

  function keep (key: string, use: KeyUse & { at: number }) {
    keys.delete(key) // a Map keeps the order of insertion
    keys.set(key, use)
    const [oldest = ''] = keys.keys()
    if (keys.size > mostKeys) keys.delete(oldest)
  }
}

/** Creates a store in memory, for a collection that refers to no other. */
export function memoryStore<T extends HasId> (definition: Omit<StoreDefinition<T>, 'name'>): JsonStore {
  const collection = collectionOf({ ...definition, name: '' })
  const collections = new Map([['', collection]])
  const engine = memoryEngine(collections)
  engine.start()
  return engineStore(engine, collection, { collections, timeout: Infinity })
}

function newTable (collection: Collection): Table {
  const { rows, counter } = seedOf(collection)
  const table: Table = {
    rows: new BTree<number, Row>(),
    indexes: new Map(collection.fields.map(({ name }) => [name, new BTree<Place, Row>(undefined, comparePlaces)])),
    counter
  }
  for (const row of rows) put(table, row)
  return table
}

/** The problems of initial records that refer to no record. */
function missingTargets ({ name, seed, references }: Collection, tableOf: TableOf) {
  return references.flatMap(([field, target]) => {
    const ids = new Set(seed.map(record => record[field] as Value))
    ids.delete(undefined)
    const missing = [...ids].filter(id => !holder(tableOf(target), 'id', id)).sort(compare)
    return missing.length > 0 ? [violations.missing(`${name}.${field}`, target, missing.length, missing[0])] : []
  })
}

/** The first record with this value of a field, after a position. */
function holder ({ indexes }: Table, field: string, value: Value, position = 0) {
  const [place, row] = indexes.get(field)?.nextHigherPair({ value, position }) ?? []
  return place?.value === value ? row : undefined
}

function transactionOn (committed: TableOf, changed: Map<string, Table>, keys: Keys, newKeys: Keys): Transaction {
  const tableOf = (name: string) => changed.get(name) ?? committed(name)
  return {
    ...readerOn(tableOf),

    look ({ name }, questions) {
      const isReferrer = (id: Value) => ({ collection, field }: Reference) => {
        const table = tableOf(collection)
        const referrer = holder(table, field, id)
        const isItself = collection === name && referrer?.id === id
        return isItself ? holder(table, field, id, referrer?.position) : referrer
      }
      const validFrom = Date.now() - keyLifetime
      return {
        counter: { ...tableOf(name).counter },
        taken: filtered(questions.taken, (field, value) => holder(tableOf(name), field, value)),
        existing: filtered(questions.existing, (target, id) => holder(tableOf(target), 'id', id)),
        referred: new Map(questions.referred.flatMap(id => {
          const referrer = questions.referrers.find(isReferrer(id))
          return referrer ? [[id, referrer.collection]] : []
        })),
        keys: new Map(questions.keys.flatMap(key => {
          const use = newKeys.get(`${name}/${key}`) ?? keys.get(`${name}/${key}`)
          return use && use.at >= validFrom ? [[key, use]] : []
        }))
      }
    },

    rows: ({ name }, ids) => ids.flatMap(id => holder(tableOf(name), 'id', id) ?? []),

    write ({ name }, writes) {
      const table = changed.get(name) ?? copyOf(committed(name))
      changed.set(name, table)
      apply(table, writes)
      for (const use of writes.keys) newKeys.set(`${name}/${use.key}`, { ...use, at: Date.now() })
    },

    written () {}
  }
}

/** The values of each name for which something is found. */
function filtered (asked: Map<string, Set<Value>>, find: (name: string, value: Value) => unknown) {
  return new Map(Array.from(asked, ([name, values]) => [name, new Set([...values].filter(value => find(name, value)))]))
}

function copyOf ({ rows, indexes, counter }: Table): Table {
  return {
    rows: rows.clone(),
    indexes: new Map(Array.from(indexes, ([field, index]) => [field, index.clone()])),
    counter
  }
}

function apply (table: Table, { inserts, updates, removes, counter = table.counter }: Writes) {
  for (const position of [...updates.map(({ position }) => position), ...removes]) remove(table, position)
  for (const row of [...inserts, ...updates]) put(table, row)
  table.counter = { ...counter }
}

function put ({ rows, indexes }: Table, row: Row) {
  rows.set(row.position, row)
  for (const [field, index] of indexes) index.set(placeOf(row, field), row)
}

function remove ({ rows, indexes }: Table, position: number) {
  const row = rows.get(position)
  if (!row) return
  rows.delete(position)
  for (const [field, index] of indexes) index.delete(placeOf(row, field))
}

function placeOf ({ values, position }: Row, field: string): Place {
  return { value: values[field], position }
}

function readerOn (tableOf: TableOf): Reader {
  return {
    first: ({ name }, id) => holder(tableOf(name), 'id', id)?.json,
    whole: ({ name }) => wholeList(tableOf(name)),
    piece: ({ name }, range) => pieceOf(tableOf(name), range),
    count: ({ name }, plan) => plan.conditions.length === 0
      ? Math.min(tableOf(name).rows.size, plan.limit)
      : selected(tableOf(name), { plan, count: plan.limit }).length,
    summarize: ({ name }, plan, summary) => summarize(selected(tableOf(name), { plan, count: Infinity }), summary),
    lastPosition: ({ name }) => tableOf(name).rows.maxKey() ?? 0
  }
}

function pieceOf (table: Table, range: Range): Piece {
  const { count, plan: { sort } } = range
  const found = selected(table, { ...range, count: count + 1 })
  const rows = found.slice(0, count)
  const last = rows.at(-1)
  return {
    json: rows.map(({ json }) => json).join(),
    count: rows.length,
    last: last && { value: sort && last.values[sort.name], position: last.position },
    hasMore: found.length > count
  }
}

function wholeList (table: Table) {
  if (!table.list) {
    const json: string[] = []
    let size = 0
    for (const row of table.rows.values()) {
      json.push(row.json)
      size += row.json.length
      if (size > maxListSize) break
    }
    table.list = { json: size > maxListSize ? undefined : Buffer.from(`[${json}]`) }
  }
  return table.list.json
}

function selected (table: Table, { plan, after, lastPosition = Infinity, count }: Range) {
  const tests = plan.conditions.map(condition => ({ field: condition.field.name, isMet: testOf(condition) }))
  const rows: Row[] = []
  for (const row of walk(table, plan, after)) {
    if (row.position > lastPosition) continue
    if (tests.every(({ field, isMet }) => isMet(row.values[field]))) rows.push(row)
    if (rows.length === count) break
  }
  return rows
}

function summarize (rows: Row[], { group, sum, min, max }: Summary): SummaryRow[] {
  const groupOf = ({ values }: Row) => {
    const value = group && values[group.field.name]
    return typeof value === 'string' ? value.slice(0, group?.length) : value
  }
  const groups = new Map<Value, Row[]>(group ? [] : [[undefined, []]])
  for (const row of rows) {
    const others = groups.get(groupOf(row))
    if (others) others.push(row)
    else groups.set(groupOf(row), [row])
  }
  return Array.from(groups).sort(([one], [other]) => compare(one, other)).map(([group, rows]) => {
    const valuesOf = ({ name }: Field) => rows.map(({ values }) => values[name]).filter(value => value !== undefined)
    return {
      group,
      count: rows.length,
      sum: sum.map(field => valuesOf(field).reduce((sum, value) => sum + BigInt(value as number), 0n)),
      min: min.map(field => least(valuesOf(field), compare)),
      max: max.map(field => least(valuesOf(field), (one, other) => compare(other, one)))
    }
  })
}

function least (values: Value[], order: typeof compare) {
  const [first, ...others] = values
  return others.reduce((one, other) => order(other, one) < 0 ? other : one, first)
}

/** Walks over the index of the order, or of a field with one value, and otherwise over all records. */
function * walk ({ rows, indexes }: Table, { conditions, sort, descending }: Plan, after?: Place) {
  const single = conditions.find(({ operator, value }) => operator === 'in' && (value as Value[]).length === 1)
  const index = indexes.get(sort?.name ?? single?.field.name ?? '')
  if (!index) {
    for (const [position, row] of rows.entries(after?.position)) if (position !== after?.position) yield row
    return
  }
  const [value] = sort ? [] : single?.value as Value[]
  const start = sort ? after : { value, position: after?.position ?? 0 }
  for (const [place, row] of descending ? index.entriesReversed(start) : index.entries(start)) {
    if (!sort && place.value !== value) return
    if (!start || comparePlaces(place, start) !== 0) yield row
  }
}
