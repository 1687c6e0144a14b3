import type { Readable } from 'node:stream'
import type { TObject } from '@sinclair/typebox'
import { NoIdLeftError } from './errors.js'
import type { Query } from '../../schemas/query.js'

/** A record with an id, which need not be unique. (An interface could not be a record with other fields.) */
export type HasId = { id: number }

export type MaybePromise<T> = T | Promise<T>

/**
 * One collection, in the order in which its records were appended. A store accepts records as objects and returns them as
 * JSON. A missing record is `undefined` or `null`.
 */
export interface Store<T extends HasId> {
  /** The schema of the records, if the store knows it. A collection rejects the store of another collection. */
  readonly schema?: TObject
  /**
   * Appends a record and returns it. Ids may repeat. A record without an id gets the next free id, or the call fails with
   * `NoIdLeftError`. If the idempotency key was used within 24 hours, nothing is appended: the call returns the first
   * record, or fails with `IdempotencyKeyReusedError` if that record was different. A record that conflicts with others fails
   * with `ConflictError`.
   */
  append (record: NewRecord<T>, key?: string): MaybePromise<string>
  /**
   * Appends one or more records in this order and next to each other, all of them or none, and returns them as a JSON array.
   * If one has no id, all get new ids. An idempotency key is for all of them. It is needed only for the operation `createMany`.
   */
  appendAll? (records: readonly NewRecord<T>[], key?: string): MaybePromise<string>
  /** Returns the first record with this id. */
  first (id: number): MaybePromise<string | undefined | null>
  /**
   * Returns the records that a query selects, as of now. A long list is a stream; later changes do not appear in it. `where`
   * and `sort` are needed only for a collection with filters. A cursor of another query fails with `InvalidCursorError`.
   */
  select (query: Query<T>): MaybePromise<Page>
  /**
   * Replaces the first record with this id by what `change` returns for it, in the same place of the list, or removes it if
   * that is `undefined`. Returns the new or the removed record. No other change of the record happens in between; `change`
   * may be called several times. If it throws, nothing is changed.
   */
  change (id: number, change: (current: string) => T | undefined): MaybePromise<string | undefined | null>
  /** Returns the number of records that a query selects. It is needed only for the totals of a collection with filters, and for metrics. */
  count? (query: Pick<Query<T>, 'where' | 'limit'>): MaybePromise<number>
  /** Returns a text that is different after each change of the collection. Without it, lists have no ETag. */
  version? (): MaybePromise<string | undefined>
}

/** The names of the methods that every store has. */
export const requiredMethods = ['append', 'change', 'first', 'select'] as const satisfies (keyof Store<HasId>)[]

/** A JSON array of records. */
export type List = string | Buffer | Readable

/** A page of a collection. */
export interface Page {
  list: List
  /** The cursor for the next page, if there are more records. */
  next?: string
}

/** A record to append. Without an id, the store generates one. */
export type NewRecord<T extends HasId> = T | Omit<T, 'id'>

export function hasId<T extends HasId> (record: NewRecord<T>): record is T {
  return 'id' in record
}

/** Records with their own ids, or with ids from the first one on if one has none. */
export function numbered<T extends HasId> (records: readonly NewRecord<T>[], first: number): readonly HasId[] {
  return records.every(hasId) ? records : records.map((record, n) => ({ ...record, id: first + n }))
}

/** What an engine needs of the definition of a collection. */
export interface StoreDefinition<T extends HasId> {
  /** Name of the collection, its table and its tag: lower case letters, digits and `_`. */
  name: string
  schema: TObject
  /** The records of a new collection. */
  seed: readonly T[]
  /** Fields that clients can filter and sort by: strings, integers, numbers and booleans. Default: none. */
  filters?: readonly string[] | undefined
  /** Fields whose values no two records have in common, unless they are absent. Clients can filter by their values. Default: the id, if the server chooses it. */
  unique?: readonly string[] | undefined
  /** The collections whose ids fields have, by field, such as `{ member_id: 'members' }`. Clients can filter and sort by these fields. Default: none. */
  references?: Readonly<Record<string, string>> | undefined
  /** Who chooses the ids. Those of the server are unique. */
  idSource?: 'client' | 'server' | undefined
  /** The new names of fields, by their previous names. Their columns are renamed once. */
  renames?: Readonly<Record<string, string>> | undefined
  /** SQL for changes of the schema that are not made automatically: the first entry from version 1 to 2, and so on. */
  upgrades?: readonly Upgrade[] | undefined
}

/** The names of the fields that have an index besides the id: queries can use them. */
export function indexedFields ({ filters = [], unique = [], references = {} }: Pick<StoreDefinition<never>, 'filters' | 'unique' | 'references'>) {
  return [...new Set([...filters, ...unique, ...Object.keys(references)])]
}

/** The names of the fields whose values no two records have in common. */
export function uniqueFields ({ unique = [], idSource }: Pick<StoreDefinition<never>, 'unique' | 'idSource'>) {
  return [...new Set([...idSource === 'server' ? ['id'] : [], ...unique])]
}

/** One or several SQL statements, for both databases or for each of them. */
export type Upgrade = string | { sqlite: string, postgres: string }

/** A place where collections are stored. */
export interface Engine {
  /** Returns the store of a collection. It can be used after `start`. */
  open<T extends HasId> (collection: StoreDefinition<T>): Required<Store<T>>
  /**
   * Creates or upgrades the tables of all open collections, or none of them. If the database is not available yet, it
   * returns, and the first operation tries again. It throws only if the service can never work with this configuration.
   */
  start (): MaybePromise<void>
  /** Executes a small write, and throws if it fails. */
  check (): MaybePromise<void>
  /** The number of connections in each pool, and of calls that wait for one. */
  connections? (): Record<string, { used: number, idle: number, waiting: number }>
  /** Closes all connections and files. */
  close (): MaybePromise<void>
}

export interface EngineOptions {
  /** Maximum time for an operation, in milliseconds. */
  timeout: number
  /** Maximum number of connections. */
  poolSize: number
  /** When the time of the current request for its operations is over, if it is known. */
  deadline? (): number | undefined
  /** Called with a message for the operator. */
  onWarning? (message: string): void
  /** Called for each operation that fails because the engine is unavailable. */
  onUnavailable? (cause: unknown): void
}

/**
 * Generated ids start after the largest existing id up to this limit, so at least 2^52 - 1 ids can be generated. Larger
 * ids that clients have chosen are skipped.
 */
export const maxCountedId = 2 ** 52

/** The ids that are generated for the records of a schema, and the largest one that its first records have. */
export function generatedIds ({ schema, seed }: Pick<StoreDefinition<HasId>, 'schema' | 'seed'>) {
  const { minimum = 1, maximum = Number.MAX_SAFE_INTEGER } = { ...schema.properties.id }
  const lastUsed = seed.reduce((last, { id }) => id > last && id <= maxCountedId ? id : last, 0)
  return { before: Math.max(Math.ceil(minimum) - 1, 0), maximum: Math.min(Number(maximum), Number.MAX_SAFE_INTEGER), lastUsed }
}

/** The first of some consecutive ids to generate: those after the last that no record has. */
export function nextId (last: number, isTaken: (id: number) => boolean, maximum = Number.MAX_SAFE_INTEGER, count = 1) {
  for (let id = last + 1, free = 0; id <= maximum; id++) {
    free = isTaken(id) ? 0 : free + 1
    if (free === count) return id - count + 1
  }
  throw new NoIdLeftError()
}
