import { again, outcomeOf, type Outcome } from './batches.js'
import type { Collection, Reference, Row } from './collection.js'
import type { Facts, Questions, StoredRow, Transaction } from './engine.js'
import type { Value } from './query-plan.js'
import type { Change, AnyRecord, Id } from './store.js'
import { conflicts, ConflictError } from './store-errors.js'

/** A call of `change`. */
export interface ChangeCall {
  id: Id
  change: Change
}

/** A record in a batch of calls. */
interface State {
  stored: StoredRow
  /** As it is after the calls so far if all succeed: a changed record, or `undefined` if it is removed. */
  current: Row | undefined
  /** Whether a change had a conflict. The later ones were tried on its result, so they are for the next batch. */
  hasFailed: boolean
}

/** What a call makes of its record, or why it does nothing. */
interface Attempt {
  state: State
  before: Row
  after: Row | undefined
  error?: unknown
}

/** An attempt, or the outcome of a call that has none. */
type Attempted = Attempt | Outcome

/**
 * Applies changes, in order. First each is tried as if all succeeded. Then what unique fields, references and removals
 * need is looked up, and each is decided. A call that depends on what a call before it does is for the next batch.
 */
export async function changeAll (
  transaction: Transaction,
  collection: Collection,
  referrers: Reference[],
  calls: ChangeCall[]
): Promise<Outcome[]> {
  // Always in the same order, so that no two transactions wait for each other.
  const rows = await transaction.rows(collection, [...new Set(calls.map(({ id }) => id))].sort())
  const states = new Map(rows.map(stored => [stored.id, newState(collection, stored)]))
  const seen = new Set<string>()
  const attempts = calls.map(call => attempt(collection, states.get(call.id), call, seen))

  const questions = questionsOf(collection, referrers, attempts.filter(isAttempt))
  const facts = questions && await transaction.look(collection, questions)
  const results = new Map<State, Row | undefined>()
  const outcomes = attempts.map(attempted => {
    if (!isAttempt(attempted)) return attempted
    if (attempted.state.hasFailed) return again
    return outcomeOf(() => decide(collection, attempted, results, facts))
  })

  const updates = [...results.values()].filter(row => row !== undefined)
  const removes = Array.from(results).filter(([, row]) => !row).map(([{ stored }]) => stored.position)
  if (results.size > 0) transaction.write(collection, { inserts: [], updates, removes, keys: [] })
  return outcomes
}

function newState ({ valuesOf }: Collection, stored: StoredRow): State {
  return { stored, current: { ...stored, values: valuesOf(JSON.parse(stored.json)) }, hasFailed: false }
}

function isAttempt (attempted: Attempted): attempted is Attempt {
  return typeof attempted === 'object' && 'state' in attempted
}

function attempt (collection: Collection, state: State | undefined, call: ChangeCall, seen: Set<string>): Attempted {
  if (!state) return { response: undefined }
  const before = state.current
  if (!before) return again // another record may have this id
  try {
    const record: AnyRecord = JSON.parse(before.json)
    const newRecord = call.change(record, before.json)
    const after = newRecord && changedRow(collection, before, collection.times.changed(newRecord, record))
    const dependencies = dependenciesOf(collection, before, after)
    // Whether the call before it succeeds is not known yet.
    if (dependencies.some(one => seen.has(one))) return again
    for (const one of dependencies) seen.add(one)
    state.current = after
    return { state, before, after }
  } catch (error) {
    return { state, before, after: before, error } // nothing changes, so there is nothing to ask
  }
}

function changedRow ({ encode, valuesOf }: Collection, { position, id }: Row, record: AnyRecord): Row {
  if (record.id !== id) throw new TypeError('A change cannot give a record another id')
  return { position, id, json: encode(record), values: valuesOf(record) }
}

/** The unique values and targets of references that an attempt takes or gives up, and the record that it removes. */
function dependenciesOf ({ name, unique, references }: Collection, before: Row, after: Row | undefined) {
  const values = (field: string) => {
    const [one, other] = [before.values[field], after?.values[field]]
    return one === other ? [] : [one, other].filter(value => value !== undefined)
  }
  return [
    ...unique.flatMap(field => values(field).map(value => `${field} = ${value}`)),
    ...references.flatMap(([field, target]) => values(field).map(id => `${target}/${id}`)),
    ...after ? [] : [`${name}/${before.id}`]
  ]
}

/** What must be known: whether new unique values are taken, targets exist, and removed records are referred to. */
function questionsOf (collection: Collection, referrers: Reference[], attempts: Attempt[]): Questions | undefined {
  const taken = new Map<string, Set<Value>>()
  const existing = new Map<string, Set<Value>>()
  const referred: Id[] = []
  for (const { before, after } of attempts) {
    if (!after && referrers.length > 0) referred.push(before.id)
    if (!after) continue
    const fresh = newValues(before, after)
    for (const field of collection.unique) add(taken, field, fresh(field))
    for (const [field, target] of collection.references) add(existing, target, fresh(field))
  }
  if (taken.size + existing.size + referred.length === 0) return
  return { taken, existing, referrers, referred, keys: [] }
}

/** Returns a function that returns the value that a change has given a field. */
function newValues (before: Row, after: Row) {
  return function newValue (field: string) {
    const value = after.values[field]
    return value === before.values[field] ? undefined : value
  }
}

function add (asked: Map<string, Set<Value>>, name: string, value: Value) {
  if (value !== undefined) asked.set(name, (asked.get(name) ?? new Set()).add(value))
}

/** Returns the new or the removed record, or throws a conflict. */
function decide (collection: Collection, attempt: Attempt, results: Map<State, Row | undefined>, facts?: Facts) {
  const { state, before, after } = attempt
  if ('error' in attempt) throw attempt.error
  const problems = facts ? conflictsOf(collection, facts, before, after) : []
  if (problems.length > 0) {
    state.hasFailed = true
    throw new ConflictError(problems)
  }
  results.set(state, after)
  return (after ?? before).json
}

function conflictsOf ({ name, unique, references }: Collection, facts: Facts, before: Row, after: Row | undefined) {
  if (!after) {
    const referrer = facts.referred.get(before.id)
    return referrer === undefined ? [] : [conflicts.referred(referrer)]
  }
  const fresh = newValues(before, after)
  const isMissing = ([field, target]: [string, string]) => {
    const id = fresh(field)
    const isOwn = target === name && id === after.id
    return id !== undefined && !isOwn && !facts.existing.get(target)?.has(id)
  }
  return [
    ...references.filter(isMissing).map(([field, target]) => conflicts.missing(field, target)),
    ...unique.filter(field => facts.taken.get(field)?.has(fresh(field))).map(conflicts.taken)
  ]
}
