import { randomInt } from 'node:crypto'
import { StartupError } from '../../startup.js'
import { conflicts, unfit, violations, withIndex } from '../errors.js'
import { encoderOf, fieldsOf } from '../fields.js'
import { jsonOf, memoryKeys, previousId, retriesOf, type Insert } from '../idempotency.js'
import type { Query } from '../../../schemas/query.js'
import { planner, type Value } from '../query.js'
import { generatedIds, hasId, indexedFields, maxCountedId, nextId, numbered, uniqueFields, type Engine, type EngineOptions, type HasId, type Store, type StoreDefinition } from '../store.js'
import { indexesOf } from './indexes.js'
import { countEntries, readEntries, wholeList } from './lists.js'
import type { Entry } from './sorted-index.js'

/** What the other collections of an engine need to know of a collection. */
interface Collection {
  seed: readonly object[]
  /** Its fields that refer to a collection, and the name of that collection. */
  references: [field: string, target: string][]
  indexes: ReturnType<typeof indexesOf>
}

type MemoryDefinition<T extends HasId> = Omit<StoreDefinition<T>, 'name'> & { name?: string }

/** The memory of this process. */
export function memoryEngine ({ timeout }: Pick<EngineOptions, 'timeout'>): Engine {
  const collections = new Map<string, Collection>()
  return {
    open: definition => memory(definition, timeout, collections),
    start () {
      const problems = [...collections].flatMap(([name, { seed, references }]) => references.flatMap(([field, target]) => {
        const values = new Set(seed.map(record => Reflect.get(record, field) as number | undefined))
        const missing = [...values].filter(value => value !== undefined && !collections.get(target)?.indexes.first(value))
        return missing.length > 0 ? [violations.missing(`${name}.${field}`, target, missing)] : []
      }))
      if (problems.length > 0) throw new StartupError(unfit(problems))
    },
    check () {},
    close () {}
  }
}

/** Creates a store in memory. Only lists of all records take longer as the collection grows. */
export function memory<T extends HasId> (definition: MemoryDefinition<T>, timeout = Infinity, collections = new Map<string, Collection>()): Required<Store<T>> {
  const { schema, seed } = definition
  const encode = encoderOf(schema)
  const ids = generatedIds({ schema, seed })
  const keys = memoryKeys()
  const retries = retriesOf(definition, encode)
  let lastId = ids.before
  let lastPosition = 0
  let changes = 0
  /** The list of all records after so many changes. */
  let whole = { changes: -1, list: wholeList([]) }
  /** Distinguishes the versions of this store from those of other instances. */
  const instance = randomInt(2 ** 47).toString(36)
  const indexed = indexedFields(definition)
  const plan = planner(fieldsOf(schema).filter(({ name }) => indexed.includes(name)))
  const indexes = indexesOf(indexed)
  const { isConstrained, checkAll, checked, uniquelyValued, checkRemoval } = constraintsOf(definition, indexes, collections)

  for (const record of seed) add(uniquelyValued(record))

  return {
    schema,
    append: (record, key) => append({ records: [record], isMany: false, key }),
    appendAll: (records, key) => append({ records, isMany: true, key }),
    change,
    first: id => indexes.first(id)?.json,
    select,
    count,
    version: () => `${instance}-${changes}`
  }

  function append (call: Insert<T>) {
    const { records, isMany, key } = call
    const digest = key === undefined ? '' : retries.digestOf(call)
    const used = key === undefined ? undefined : previousId(keys.get(key), digest)
    if (used !== undefined) return jsonOf(retries.recordsOf(call, used, id => indexes.first(id)?.json), isMany)
    const areNumbered = !records.every(hasId)
    const first = areNumbered ? nextId(lastId, id => indexes.first(id) !== undefined, ids.maximum, records.length) : Number(records[0]?.id)
    const given = numbered(records, first)
    if (isConstrained) checkAll(given, isMany)
    if (areNumbered) lastId = first + records.length - 1
    if (key !== undefined) keys.set(key, { digest, id: first })
    return jsonOf(given.map(add), isMany)
  }

  function add (record: HasId) {
    const json = encode(record)
    indexes.add(++lastPosition, record, json)
    changes++
    if (record.id > lastId && record.id <= maxCountedId) lastId = record.id
    return json
  }

  function select (query: Query<T>) {
    const planned = plan(query)
    const { isPlain, after, limit } = planned
    if (!isPlain || after || limit < Infinity) return readEntries(indexes.find(planned), planned, timeout)
    if (whole.changes < changes) whole = { changes, list: wholeList(indexes.byPosition.read()) }
    return { list: whole.list() }
  }

  function count (query: Pick<Query<T>, 'where' | 'limit'>) {
    const planned = plan(query)
    return planned.conditions.length > 0 ? countEntries(indexes.find(planned), timeout) : indexes.byPosition.count(0, indexes.byPosition.end())
  }

  function change (id: number, changeOf: (current: string) => T | undefined) {
    const found = indexes.first(id)
    if (!found) return
    const { position, json: current } = found
    const record = changeOf(current)
    const json = record ? encode(checked(record, position)) : current
    if (!record) checkRemoval(found)
    indexes.change(found, record, json)
    changes++
    return json
  }
}

/** The unique fields and the references of a collection, which is added to the others of its engine. */
function constraintsOf<T extends HasId> ({ name: ownName = '', seed, ...definition }: MemoryDefinition<T>, indexes: Collection['indexes'], collections: Map<string, Collection>) {
  const unique = uniqueFields(definition)
  const references = Object.entries(definition.references ?? {})
  collections.set(ownName, { seed, references, indexes })
  return { isConstrained: unique.length + references.length > 0, checkAll, checked, uniquelyValued, checkRemoval }

  /** Throws if a record conflicts with others, or with those before it. */
  function checkAll (records: readonly HasId[], isMany: boolean) {
    const before = new Map(['id', ...unique].map(name => [name, new Set<unknown>()]))
    for (const [n, record] of records.entries()) {
      withIndex(isMany ? n : undefined, () => checked(record, undefined, before))
      for (const [name, values] of before) values.add(Reflect.get(record, name))
    }
  }

  /** Returns the record, unless it conflicts with others. One that replaces another has its position. */
  function checked<R extends object> (record: R, position?: number, before?: Map<string, Set<unknown>>) {
    for (const [name, target] of references) {
      const value = Reflect.get(record, name) as number | undefined
      const isOwn = target === ownName && (value === Reflect.get(record, 'id') || before?.get('id')?.has(value))
      if (value !== undefined && !isOwn && !collections.get(target)?.indexes.first(value)) throw conflicts.missing(name, target)
    }
    return uniquelyValued(record, position, before)
  }

  function uniquelyValued<R extends object> (record: R, position?: number, before?: Map<string, Set<unknown>>) {
    for (const name of unique) {
      const value = Reflect.get(record, name) as Value
      if (value === undefined) continue
      if (indexes.hasOther(name, value, position) || before?.get(name)?.has(value)) throw conflicts.used(name)
    }
    return record
  }

  function checkRemoval ({ id, position }: Entry) {
    for (const [name, { references, indexes }] of collections) {
      const isReferrer = references.some(([field, target]) => target === ownName && indexes.hasOther(field, id, name === ownName ? position : undefined))
      if (isReferrer) throw conflicts.referred(name)
    }
  }
}
