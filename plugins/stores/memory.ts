import BTreeModule from 'sorted-btree'
import type { Query } from '../../schemas/query.js'
import { StartupError } from '../startup.js'
import { changes, type Change } from './changes.js'
import { collectionOf, referrersOf, type Collection, type Reference, type Row } from './collection.js'
import { unfit, violations } from './errors.js'
import { decide, found, type Rules, type Source, type Writes } from './facts.js'
import { memoryKeys } from './idempotency.js'
import { insertOf, inserts, valueOf } from './inserts.js'
import { lists, type Piece } from './lists.js'
import { comparePlaces, testOf, type Place, type Value } from './query.js'
import { type Engine, type HasId, type Page, type Store, type StoreDefinition } from './store.js'

const BTree = BTreeModule.default

type Definition<T extends HasId> = Omit<StoreDefinition<T>, 'name'> & { name?: string }

interface MemoryCollection {
  collection: Collection
  /** The first record with this value of a field, except that with this id. */
  holder (field: string, value: Value, except?: number): Row | undefined
}
type MemoryCollections = Map<string, MemoryCollection>

/** The memory of this process. */
export function memoryEngine (): Engine {
  const collections: MemoryCollections = new Map()
  return {
    open: definition => memory(definition, collections),
    start () {
      const all = Array.from(collections.values(), ({ collection }) => collection)
      const problems = all.flatMap(collection => missingTargets(collection, collections))
      if (problems.length > 0) throw new StartupError(unfit(problems))
    },
    check () {},
    connections: () => ({ used: 0, idle: 0, waiting: 0 }),
    close () {}
  }
}

/** The problems of initial records that refer to no record. */
function missingTargets ({ name, seed, references }: Collection, collections: MemoryCollections) {
  return references.flatMap(([field, target]) => {
    const ids = new Set(seed.map((record): unknown => Reflect.get(record, field)))
    ids.delete(undefined)
    const missing = [...ids].filter(id => !collections.get(target)?.holder('id', id as number))
    return missing.length > 0 ? [violations.missing(`${name}.${field}`, target, missing.length, missing[0])] : []
  })
}

/** Creates a store in memory. A page, a record and a change cost the same however many records there are. */
export function memory<T extends HasId> (
  definition: Definition<T>,
  collections: MemoryCollections = new Map()
): Store<T> {
  const collection = collectionOf({ name: '', ...definition })
  const { name, schema, columns } = collection
  const keys = memoryKeys()
  const byPosition = new BTree<number, Row>()
  const fields = ['id', ...columns.map(({ name }) => name)]
  const indexes = new Map(fields.map(field => [field, new BTree<Place, Row>(undefined, comparePlaces)]))
  const counter = { position: 0, lastId: 0 }
  /** The list of all records, until something changes. */
  let whole: Page | undefined
  collections.set(name, { collection, holder })

  const source: Source = {
    counter: () => counter,
    rows: wanted => [...wanted].flatMap(([id, count]) => holders('id', id, count)),
    holders: asked => found(asked, (field, value) => holder(field, value)?.position),
    existing: asked => found(asked, (target, id) => collections.get(target)?.holder('id', id) && true),
    referred: (referrers, ids) => new Map(ids.flatMap(id => {
      const isReferrer = ({ collection, field }: Reference) =>
        collections.get(collection)?.holder(field, id, collection === name ? id : undefined)
      const referrer = referrers.find(isReferrer)
      return referrer ? [[id, referrer.collection]] : []
    })),
    keys: asked => new Map(asked.flatMap(key => {
      const use = keys.get(key)
      return use ? [[key, use]] : []
    }))
  }
  const select = lists(collection, {
    entries: entriesOf,
    lastPosition: () => byPosition.maxKey() ?? 0
  })

  if (definition.seed.length > 0) {
    run(inserts({ ...collection, references: [] }, [insertOf(collection, definition.seed)]))
  }

  return {
    schema,
    append: (record, key, digest) => run(inserts(collection, [insertOf(collection, record, key, digest)])) as string,
    appendAll: (records, key, digest) =>
      run(inserts(collection, [insertOf(collection, records, key, digest)])) as string,
    first: id => holder('id', id)?.record,
    change (id, changeOf) {
      const call = { id, change: changeOf as Change['change'] }
      return run(changes(collection, referrersOf(collections, name), [call]))
    },
    async select (query) {
      const isWhole = Object.values({ ...query, ...query.where, where: undefined }).every(value => value === undefined)
      if (isWhole && whole) return whole
      const page = await select(query as Query<HasId>)
      if (isWhole && typeof page.list === 'string') whole = page
      return page
    },
    count ({ where, limit = Infinity }) {
      const plan = collection.plan({ where, limit })
      return plan.conditions.length === 0 ? byPosition.size : entriesOf({ plan, count: limit }).length
    }
  }

  /** A call has its own transaction. */
  function run (rules: Rules) {
    const { outcomes: [outcome], writes } = decide(rules, source)
    if (typeof outcome !== 'object') throw new Error('A call must have an outcome')
    if ('error' in outcome) throw outcome.error
    write(writes)
    return outcome.response
  }

  function write (writes: Writes) {
    for (const row of writes.inserts) add(row)
    for (const row of writes.updates) change(row)
    for (const position of writes.removes) remove(position)
    for (const use of writes.keys) keys.set(use)
    Object.assign(counter, writes.counter)
    whole = undefined
  }

  function add (row: Row) {
    byPosition.set(row.position, row)
    for (const [field, index] of indexes) index.set(placeOf(row, field), row)
  }

  /** All indexes have the same row, which changes. Its place changes only where its value does. */
  function change ({ position, record, values }: Row) {
    const row = byPosition.get(position) as Row
    const before = { ...row }
    Object.assign(row, { record, values })
    for (const [field, index] of indexes) {
      const place = placeOf(before, field)
      if (comparePlaces(place, placeOf(row, field)) === 0) continue
      index.delete(place)
      index.set(placeOf(row, field), row)
    }
  }

  function remove (position: number) {
    const row = byPosition.get(position)
    if (!row) return
    byPosition.delete(position)
    for (const [field, index] of indexes) index.delete(placeOf(row, field))
  }

  function placeOf (row: Row, field: string): Place {
    return { value: valueOf(collection, row, field), position: row.position }
  }

  function holder (field: string, value: Value, except?: number) {
    return holders(field, value, except === undefined ? 1 : 2).find(({ id }) => id !== except)
  }

  /** The first records with this value. */
  function holders (field: string, value: Value, count: number) {
    const rows: Row[] = []
    indexes.get(field)?.forRange({ value, position: 0 }, { value, position: Infinity }, true, (_place, row) => {
      rows.push(row)
      if (rows.length === count) return { break: true }
    })
    return rows
  }

  /** Walks over the index of the order, or of a field with one value, and otherwise over all records. */
  function entriesOf ({ plan, after, lastPosition = Infinity, count }: Piece) {
    const { conditions, sort, descending } = plan
    const only = conditions.find(({ operator, value }) => operator === 'in' && (value as Value[]).length === 1)
    const field = sort?.name ?? only?.field.name
    const value = sort ? undefined : (only?.value as Value[] | undefined)?.[0]
    const tests = conditions.map(condition => ({ field: condition.field.name, isMet: testOf(condition) }))
    const entries: (Place & { record: string })[] = []

    for (const row of field === undefined ? positions() : places(field)) {
      if (row.position > lastPosition) continue
      if (!tests.every(({ field, isMet }) => isMet(valueOf(collection, row, field)))) continue
      entries.push({ record: row.record, position: row.position, value: sort && valueOf(collection, row, sort.name) })
      if (entries.length === count) break
    }
    return entries

    function * positions () {
      for (const [position, row] of byPosition.entries(after?.position)) if (position !== after?.position) yield row
    }

    function * places (field: string) {
      const index = indexes.get(field) as InstanceType<typeof BTree<Place, Row>>
      const start = sort ? after : { value, position: after?.position ?? 0 }
      const ordered = descending ? index.entriesReversed(start, undefined, false) : index.entries(start)
      for (const [place, row] of ordered) {
        if (!sort && place.value !== value) return
        if (start && comparePlaces(place, start) !== 0) yield row
        else if (!start) yield row
      }
    }
  }
}
