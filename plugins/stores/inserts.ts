import { randomUUID } from 'node:crypto'
import { maxProblems, pointer, type ValueProblem } from '../../schemas/error-body.js'
import { maxCountedId, type Collection, type Row } from './collection.js'
import { outcomeOf, type Outcome } from './batches.js'
import type { Facts, KeyUse, Transaction } from './engine.js'
import type { Value } from './query-plan.js'
import type { AnyRecord, Id, IdempotencyKey } from './store.js'
import { conflicts, ConflictError, IdempotencyKeyReusedError, NoIdLeftError, NotStorableError } from './store-errors.js'

/** A call of `append`. */
export interface InsertCall {
  records: { fields: AnyRecord, values: Row['values'] }[]
  isMany: boolean
  key?: IdempotencyKey | undefined
}

type Given = AnyRecord | readonly AnyRecord[]

/** Reads a call. A call with records that cannot be stored throws. */
export function insertOf (collection: Collection, given: Given, key?: IdempotencyKey): InsertCall {
  const isMany = Array.isArray(given)
  const all = collection.times.created(isMany ? given : [given])
  return { records: all.map(withValues), isMany, key }

  function withValues (fields: AnyRecord, n: number) {
    try {
      return { fields, values: collection.valuesOf(fields) }
    } catch (error) {
      if (!isMany || !(error instanceof NotStorableError)) throw error
      throw new NotStorableError(error.problems.map(({ path, message }) => ({ path: pointer(n) + path, message })))
    }
  }
}

/** What a transaction inserts. The facts change with each call that succeeds. */
interface Batch {
  facts: Facts
  rows: Row[]
  keys: KeyUse[]
}

/** Inserts the records of calls, in order. A conflict of a call fails this call alone. */
export async function insertAll (
  transaction: Transaction,
  collection: Collection,
  calls: InsertCall[]
): Promise<Outcome[]> {
  const facts = await transaction.look(collection, questionsOf(collection, calls))
  // The first id is at least the `minimum` of the schema.
  facts.counter.lastId = Math.max(facts.counter.lastId, collection.ids.first - 1)
  const batch: Batch = { facts, rows: [], keys: [] }
  const outcomes = calls.map(call => outcomeOf(() => insert(collection, batch, call)))
  const { rows, keys } = batch
  if (rows.length > 0) {
    transaction.write(collection, { inserts: rows, updates: [], removes: [], keys, counter: facts.counter })
  }
  return outcomes
}

function questionsOf (collection: Collection, calls: InsertCall[]) {
  const all = calls.flatMap(({ records }) => records.map(({ values }) => values))
  const valuesOf = (field: string) => new Set(all.map(values => values[field]).filter(value => value !== undefined))
  const existing = new Map<string, Set<Value>>()
  for (const [field, target] of collection.references) {
    existing.set(target, new Set([...existing.get(target) ?? [], ...valuesOf(field)]))
  }
  return {
    taken: new Map(collection.unique.map(field => [field, valuesOf(field)])),
    existing,
    referrers: [],
    referred: [],
    keys: calls.flatMap(({ key }) => key?.key ?? [])
  }
}

/** Returns the response to a call, or throws before anything has changed. */
function insert (collection: Collection, { facts, rows, keys }: Batch, { records, isMany, key }: InsertCall) {
  const previous = key && facts.keys.get(key.key)
  if (previous && previous.digest !== key.digest) throw new IdempotencyKeyReusedError()
  if (previous) return previous.response

  const own = numbered(collection, facts, records)
  const problems = conflictsOf(collection, facts, own, isMany)
  if (problems.length > 0) throw new ConflictError(problems.slice(0, maxProblems))

  for (const row of own) note(collection, facts, row)
  rows.push(...own)
  const json = own.map(row => row.json).join()
  const response = isMany ? `[${json}]` : json
  if (key) {
    const use = { ...key, response }
    facts.keys.set(key.key, use)
    keys.push(use)
  }
  return response
}

/** Gives records their positions and, if one has no id, new ids. */
function numbered (collection: Collection, { counter }: Facts, records: InsertCall['records']): Row[] {
  const { ids, hasTextIds, encode } = collection
  const areNew = records.some(({ values }) => values.id === undefined)
  if (areNew && !hasTextIds && counter.lastId + records.length > ids.last) throw new NoIdLeftError()
  const newId = (n: number) => hasTextIds ? newUuid() : counter.lastId + 1 + n
  return records.map(({ fields, values }, n) => {
    const position = counter.position + 1 + n
    if (!areNew) return { position, id: values.id as Id, json: encode(fields), values }
    const id = newId(n)
    return { position, id, json: encode({ ...fields, id }), values: { ...values, id } }
  })
}

/** A UUID of version 7: the time in milliseconds, and random bits. */
function newUuid () {
  const time = Date.now().toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`
}

/** The conflicts of the records of a call with others, and with those before them. They may refer to each other. */
function conflictsOf ({ name, unique, references }: Collection, facts: Facts, rows: Row[], isMany: boolean) {
  const ids = new Set<Value>(rows.map(({ id }) => id))
  const used = new Map(unique.map(field => [field, new Set<Value>()]))
  return rows.flatMap(({ values }, n): ValueProblem[] => {
    const isMissing = ([field, target]: [string, string]) => {
      const isOwn = target === name && ids.has(values[field])
      return values[field] !== undefined && !isOwn && !facts.existing.get(target)?.has(values[field])
    }
    const isTaken = (field: string) => values[field] !== undefined &&
      (facts.taken.get(field)?.has(values[field]) || used.get(field)?.has(values[field]))

    const problems = [
      ...references.filter(isMissing).map(([field, target]) => conflicts.missing(field, target)),
      ...unique.filter(isTaken).map(conflicts.taken)
    ]
    for (const field of unique) used.get(field)?.add(values[field])
    return isMany ? problems.map(({ path, message }) => ({ path: pointer(n) + path, message })) : problems
  })
}

/** Changes the facts for the calls after this record. */
function note ({ name, unique }: Collection, { counter, taken, existing }: Facts, { position, id, values }: Row) {
  counter.position = position
  if (typeof id === 'number' && id > counter.lastId && id <= maxCountedId) counter.lastId = id
  for (const field of unique) taken.get(field)?.add(values[field])
  existing.get(name)?.add(id)
}
