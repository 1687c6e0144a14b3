import type { TObject } from '@sinclair/typebox'
import type { Collection, Collections, Reference, Row } from './collection.js'
import type { Piece, Range } from './lists.js'
import type { Plan, Value } from './query-plan.js'
import type { Id, MaybePromise } from './store.js'
import type { Summary, SummaryRow } from './summary.js'

/** A place where collections are stored. */
export interface Engine {
  /**
   * Creates or changes the tables of all collections, or none of them. If the database is not available yet, it
   * returns, and the first operation tries again. It throws only if the service can never work with this configuration.
   */
  start (): MaybePromise<void>
  /** Reads what is committed. */
  reader: Reader
  /** Runs work in a transaction, which may start again after a conflict with another one. */
  transaction<R> (work: (transaction: Transaction) => Promise<R>, options: TransactionOptions): Promise<R>
  /** Executes a small write, and throws if it fails or if this release must not write. */
  check (): MaybePromise<void>
  /** The number of connections that are used and idle, and of calls that wait for one. */
  connections (): { used: number, idle: number, waiting: number }
  /** Closes all connections and files. */
  close (): MaybePromise<void>
}

export interface TransactionOptions {
  /** When the work is not started again. */
  deadline: number
  /** The collection whose share of the connections is used. */
  collection?: Collection
}

export interface Reader {
  /** The JSON of the first record with this id. */
  first (collection: Collection, id: Id): MaybePromise<string | undefined>
  /** The list of all records as JSON, if the engine keeps it. */
  keptList (collection: Collection): Buffer | undefined
  /** Some of the records that a query selects. */
  piece (collection: Collection, range: Range): MaybePromise<Piece>
  /** The number of records that a query selects, up to its limit. */
  count (collection: Collection, plan: Plan): MaybePromise<number>
  /** The results of each group, in the order of its values, and of one more than are allowed. */
  summarize (collection: Collection, plan: Plan, summary: Summary): MaybePromise<SummaryRow[]>
  /** The position of the last record. */
  lastPosition (collection: Collection): MaybePromise<number>
}

/** What `inserts.ts` and `changes.ts` can do. It reads what it has written, and nobody else does before the end. */
export interface Transaction extends Reader {
  /** Answers questions. Records that an answer is about do not change until the end. */
  look (collection: Collection, questions: Questions): MaybePromise<Facts>
  /** The first records with these ids. No other transaction changes them until the end. */
  rows (collection: Collection, ids: Id[]): MaybePromise<StoredRow[]>
  /** Writes. An engine may report a failure only at the end. */
  write (collection: Collection, writes: Writes): void
  /** Waits until everything is written. */
  written (): MaybePromise<unknown>
}

export type StoredRow = Pick<Row, 'position' | 'id' | 'json'>

/** What is asked about a collection before a write. */
export interface Questions {
  /** The values of fields that may be taken. */
  taken: Map<string, Set<Value>>
  /** The ids that may exist, by collection. */
  existing: Map<string, Set<Value>>
  /** The ids that other records may refer to. */
  referred: Id[]
  /** The fields with which they may do so. */
  referrers: Reference[]
  /** Idempotency keys that may have been used. */
  keys: string[]
}

export interface Facts {
  /** The last position and the last id. No other transaction inserts into the collection until the end. */
  counter: Counter
  taken: Map<string, Set<Value>>
  existing: Map<string, Set<Value>>
  /** A collection that refers to an id. */
  referred: Map<Id, string>
  keys: Map<string, KeyUse>
}

export interface Counter {
  position: number
  lastId: number
}

/** What an idempotency key was used for. */
export interface KeyUse {
  key: string
  digest: string
  response: string
}

export interface Writes {
  inserts: Row[]
  updates: Row[]
  /** The positions of removed records. */
  removes: number[]
  keys: KeyUse[]
  /** The new counter, if there are inserts. */
  counter?: Counter | undefined
}

/** How long an idempotency key is valid, in milliseconds. */
export const keyLifetime = 24 * 60 * 60 * 1000

/** Returns a function that returns the problems of a record, if any. With `useDefaults`, it adds missing defaults. */
export type CheckerOf = (schema: TObject, options: { useDefaults: boolean, removeUnknown: false }) => Checker
type Checker = (record: unknown) => { path: string, message: string }[] | undefined

export interface EngineOptions {
  collections: Collections
  /** Maximum time for an operation, in milliseconds. */
  timeout: number
  /** Maximum number of connections. */
  poolSize: number
  /** Validates stored records when a schema has changed. */
  checkerOf: CheckerOf
  /** Messages for the operator. */
  log?: { info (message: string): void, warn (message: string): void }
}
