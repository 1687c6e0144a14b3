import { StartupError } from '../common/startup.js'
import { collectionOf, seedOf, type Collection, type Collections, type Reference, type Row } from './collection.js'
import { keyLifetime, type Engine, type KeyUse, type Transaction, type Writes } from './engine.js'
import { engineStore } from './engine-store.js'
import { BTree, holder, readerOn, type Table, type TableOf } from './memory-reader.js'
import { compare, comparePlaces, type Place, type Value } from './query-plan.js'
import { unfit, violations } from './store-errors.js'
import type { HasId, Id, JsonStore, StoreDefinition } from './store.js'
import { oneAtATime } from './time-limits.js'

/** How many idempotency keys are kept. Then the oldest are removed. */
const mostKeys = 20_000

type Keys = Map<string, KeyUse & { at: number }>

/** The memory of this process. */
export function memoryEngine (collections: Collections): Engine {
  const inTurn = oneAtATime()
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
    transaction: (work, { deadline }) => inTurn(deadline, async function transact () {
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

function transactionOn (committed: TableOf, changed: Map<string, Table>, keys: Keys, newKeys: Keys): Transaction {
  const tableOf = (name: string) => changed.get(name) ?? committed(name)
  return {
    ...readerOn(tableOf),

    look ({ name }, questions) {
      const refersTo = (id: Id, { collection, field }: Reference) => {
        const table = tableOf(collection)
        const first = holder(table, field, id)
        const isItself = collection === name && first?.id === id
        return (isItself ? holder(table, field, id, first.position) : first) !== undefined
      }
      const validFrom = Date.now() - keyLifetime
      return {
        counter: { ...tableOf(name).counter },
        taken: filtered(questions.taken, (field, value) => holder(tableOf(name), field, value)),
        existing: filtered(questions.existing, (target, id) => holder(tableOf(target), 'id', id)),
        referred: new Map(questions.referred.flatMap(id => {
          const referrer = questions.referrers.find(reference => refersTo(id, reference))
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
  delete table.list
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
