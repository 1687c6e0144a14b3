import type { Reference, Row } from './collection.js'
import type { Value } from './query.js'
import type { MaybePromise } from './store.js'

/** What the rules ask an engine in a transaction, for one collection. */
export interface Source {
  /** The last position and the last id. Until the end of the transaction, no other one inserts into the collection. */
  counter (): MaybePromise<Counter>
  /** The first records with these ids: as many of each as asked, in their order. No other transaction changes them. */
  rows (wanted: Map<number, number>): MaybePromise<Omit<Row, 'values'>[]>
  /** The positions of the records that have these values of these fields. */
  holders (asked: Asked<Value>): MaybePromise<Found<Value, number>>
  /** The ids that records of these collections have. No other transaction removes these records. */
  existing (asked: Asked<number>): MaybePromise<Found<number, true>>
  /** The ids that other records refer to with these fields, and the collection of such a record. */
  referred (referrers: Reference[], ids: number[]): MaybePromise<Map<number, string>>
  /** What these idempotency keys were used for. */
  keys (keys: string[]): MaybePromise<Map<string, KeyUse>>
}

export interface Counter {
  position: number
  lastId: number
}

/** Values by field, or ids by collection. */
export type Asked<V> = Map<string, Set<V>>
export type Found<V, R> = Map<string, Map<V, R>>

export interface KeyUse {
  key: string
  /** The digest of the request. */
  digest: string
  response: string
}

/** What is written at the end of a transaction. */
export interface Writes {
  inserts: Row[]
  updates: Row[]
  /** The positions of removed records. */
  removes: number[]
  keys: KeyUse[]
  /** The new counter, if there are inserts. */
  counter?: Counter
}

export const nothing: Writes = { inserts: [], updates: [], removes: [], keys: [] }

/** The outcome of a call that belongs into the next batch. */
export const again = Symbol('again')

/** The outcome of a call: a response, an error for this call, or `again`. */
export type Outcome = { response: string | undefined } | { error: unknown } | typeof again

/**
 * The rules of a transaction: a generator that asks for facts as often as it needs, and returns what is to be written.
 * It knows neither promises nor SQL.
 */
export type Rules = Generator<(source: Source) => object, { outcomes: Outcome[], writes: Writes }, object>

type Answers<A> = { [K in keyof A]: Awaited<A[K]> }

/** Asks for several facts at once. */
export function * ask<A extends object> (look: (source: Source) => A): Generator<typeof look, Answers<A>, object> {
  return (yield look) as Answers<A>
}

/** Runs rules with an engine that answers at once. */
export function decide (rules: Rules, source: Source) {
  let step = rules.next({})
  while (!step.done) step = rules.next(step.value(source))
  return step.value
}

/** Runs rules with an engine that answers later. Questions that are asked at once are sent at once. */
export async function decideLater (rules: Rules, source: Source) {
  let step = rules.next({})
  while (!step.done) {
    const asked = Object.entries(step.value(source))
    const answers = await Promise.all(asked.map(([, answer]) => answer as unknown))
    step = rules.next(Object.fromEntries(asked.map(([name], n) => [name, answers[n]])))
  }
  return step.value
}

/** The response of a call, or the error that it throws. */
export function outcomeOf (work: () => string | undefined | typeof again): Outcome {
  try {
    const response = work()
    return response === again ? again : { response }
  } catch (error) {
    return { error }
  }
}

/** Adds a value to those of a name. */
export function addTo<V> (asked: Asked<V>, name: string, value: V) {
  const values = asked.get(name) ?? new Set()
  asked.set(name, values.add(value))
}

/** What is found for values of several names. */
export function found<V, R> (asked: Asked<V>, find: (name: string, value: V) => R | undefined): Found<V, R> {
  return new Map(Array.from(asked, ([name, values]) => {
    const results = Array.from(values, value => [value, find(name, value)] as const)
    return [name, new Map(results.filter((result): result is [V, R] => result[1] !== undefined))]
  }))
}
