import type { Collection, Reference, Row } from './collection.js'
import { conflicts } from './errors.js'
import { addTo, again, ask, nothing, outcomeOf, type Asked, type Found, type Outcome, type Rules } from './facts.js'
import { valueOf } from './inserts.js'
import type { Value } from './query.js'
import type { HasId } from './store.js'

/** A call of `change`. */
export interface Change {
  id: number
  change (current: string): HasId | undefined
}

/** A record during a transaction: it is as stored, changed, or removed. */
interface State extends Row {
  isChanged: boolean
  isRemoved: boolean
}

/** What a call makes of the record that it has found, so that its function is called once in a transaction. */
interface Attempt {
  position: number
  from: string
  to?: Row | undefined
  error?: unknown
}

interface LookUps {
  holders: Asked<Value>
  existing: Asked<number>
  removed: number[]
}

interface Facts {
  holders: Found<Value, number>
  existing: Found<number, true>
  referred: Map<number, string>
}

const noFacts: Facts = { holders: new Map(), existing: new Map(), referred: new Map() }

/**
 * Applies changes, in order. What their unique fields, references and removals need is looked up as if all succeeded.
 * Then each is decided: a change that has seen another state, because one before it failed, is for the next batch.
 */
export function * changes (collection: Collection, referrers: Reference[], calls: Change[]): Rules {
  const wanted = new Map<number, number>()
  for (const { id } of calls) wanted.set(id, (wanted.get(id) ?? 0) + 1)
  const { rows } = yield * ask(source => ({ rows: source.rows(wanted) }))
  const stored = statesOf(collection, rows)
  const attempts = allAttempts(collection, copied(stored), calls)
  const lookUps = lookUpsOf(collection, stored, attempts)

  const canBreakReferences = lookUps.removed.length > 0 && referrers.length > 0
  const isPlain = lookUps.holders.size + lookUps.existing.size === 0 && !canBreakReferences
  // The counter locks the collection. Two transactions that look up without it could wait for each other.
  const facts = isPlain
    ? noFacts
    : yield * ask(source => ({
      counter: source.counter(),
      holders: source.holders(lookUps.holders),
      existing: source.existing(lookUps.existing),
      referred: source.referred(referrers, lookUps.removed)
    }))

  const states = copied(stored)
  const outcomes = attempts.map((attempt, n): Outcome => {
    if (attempt) return outcomeOf(() => applied(collection, facts, states, attempt))
    return first(states, calls[n]?.id) ? again : { response: undefined }
  })
  const changed = states.filter(({ isChanged, isRemoved }) => isChanged && !isRemoved)
  const removed = states.filter(({ isRemoved }) => isRemoved)
  return { outcomes, writes: { ...nothing, updates: changed, removes: removed.map(({ position }) => position) } }
}

function statesOf (collection: Collection, rows: Omit<Row, 'values'>[]): State[] {
  const hasRules = collection.unique.length + collection.references.length > 0
  return rows.map(row => ({
    ...row,
    values: hasRules ? collection.valuesOf(JSON.parse(row.record)) : [],
    isChanged: false,
    isRemoved: false
  }))
}

function copied (states: State[]) {
  return states.map(state => ({ ...state }))
}

/** The first record with an id that is not removed. */
function first (states: State[], id?: number) {
  return states.find(state => state.id === id && !state.isRemoved)
}

/** What each call makes of its record if all before it succeed. */
function allAttempts (collection: Collection, states: State[], calls: Change[]) {
  return calls.map(call => {
    const state = first(states, call.id)
    if (!state) return undefined
    const attempt = attemptOf(collection, call, state)
    if (!('error' in attempt)) apply(state, attempt)
    return attempt
  })
}

function attemptOf (collection: Collection, { id, change }: Change, { position, record: from }: State): Attempt {
  try {
    const record = change(from)
    if (record && record.id !== id) throw new TypeError('A change cannot give a record another id')
    const to = record && { position, id, record: collection.encoderOf(record)(id), values: collection.valuesOf(record) }
    return { position, from, to }
  } catch (error) {
    return { position, from, error }
  }
}

function apply (state: State, { to }: Attempt) {
  if (to) Object.assign(state, to, { isChanged: true })
  else state.isRemoved = true
}

/** What must be known to decide: holders of new values, new targets of references, and referrers of removed records. */
function lookUpsOf (collection: Collection, stored: State[], attempts: (Attempt | undefined)[]): LookUps {
  const lookUps: LookUps = { holders: new Map(), existing: new Map(), removed: [] }
  const byPosition = new Map(stored.map(state => [state.position, state]))
  for (const attempt of attempts) {
    if (!attempt || 'error' in attempt) continue
    const { position, to } = attempt
    const before = byPosition.get(position) as State
    if (!to) {
      lookUps.removed.push(before.id)
      continue
    }
    for (const field of collection.unique) {
      const value = valueOf(collection, to, field)
      if (value !== undefined && value !== valueOf(collection, before, field)) addTo(lookUps.holders, field, value)
    }
    for (const [field, target] of collection.references) {
      const id = valueOf(collection, to, field) as number | undefined
      if (id !== undefined && id !== valueOf(collection, before, field)) addTo(lookUps.existing, target, id)
    }
  }
  return lookUps
}

/** Decides an attempt, and returns the new or the removed record. */
function applied (collection: Collection, facts: Facts, states: State[], attempt: Attempt) {
  const state = states.find(({ position }) => position === attempt.position) as State
  const isSame = state.record === attempt.from && !state.isRemoved
  if (!isSame) return again
  if ('error' in attempt) throw attempt.error
  const { to } = attempt
  const isAgain = to
    ? checkChange(collection, facts, states, state, to)
    : checkRemoval(collection, facts, states, state)
  if (isAgain) return again
  const response = to ? to.record : state.record
  apply(state, attempt)
  return response
}

/** Throws if a change conflicts with other records. Returns whether it must wait for what this batch writes. */
function checkChange (collection: Collection, facts: Facts, states: State[], state: State, to: Row) {
  for (const [field, target] of collection.references) {
    const id = valueOf(collection, to, field) as number | undefined
    if (id === undefined || id === valueOf(collection, state, field)) continue
    const isOwn = target === collection.name && id === to.id
    const isRemoved = target === collection.name && states.some(other => other.isRemoved && other.id === id)
    if (isRemoved || (!isOwn && !facts.existing.get(target)?.has(id))) throw conflicts.missing(field, target)
  }
  for (const field of collection.unique) {
    const value = valueOf(collection, to, field)
    if (value === undefined || value === valueOf(collection, state, field)) continue
    const others = states.filter(other => other !== state)
    const isUsed = others.some(other => !other.isRemoved && valueOf(collection, other, field) === value)
    if (isUsed) throw conflicts.used(field)
    const holder = facts.holders.get(field)?.get(value)
    if (holder === undefined || holder === state.position) continue
    // A record of this batch has given the value up. The index could see both at once.
    if (others.some(({ position }) => position === holder)) return true
    throw conflicts.used(field)
  }
  return false
}

function checkRemoval (collection: Collection, facts: Facts, states: State[], state: State) {
  const ownFields = collection.references.filter(([, target]) => target === collection.name).map(([field]) => field)
  const isReferred = states.some(other => other !== state && !other.isRemoved && other.isChanged &&
    ownFields.some(field => valueOf(collection, other, field) === state.id))
  if (isReferred) throw conflicts.referred(collection.name)
  const referrer = facts.referred.get(state.id)
  if (referrer === undefined) return false
  // A record of this batch may have referred to it.
  const mayBeFree = referrer === collection.name && states.some(({ isChanged, isRemoved }) => isChanged || isRemoved)
  if (mayBeFree) return true
  throw conflicts.referred(referrer)
}
