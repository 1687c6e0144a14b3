import type { Readable } from 'node:stream'
import type { TObject } from '@sinclair/typebox'
import type { Query } from '../../schemas/query.js'

/** A record with an id, which need not be unique. (An interface could not be a record with other fields.) */
export type HasId = { id: number }

export type MaybePromise<T> = T | Promise<T>

/**
 * One collection, in the order in which its records were appended. A store accepts records as objects and returns
 * them as JSON. A missing record is `undefined` or `null`.
 */
export interface Store<T extends HasId> {
  /** The schema of the records, if the store knows it. A collection rejects the store of another collection. */
  readonly schema?: TObject
  /**
   * Appends a record and returns it; without an id, it gets the next one. A key that was used within 24 hours appends
   * nothing: the call returns the first response, or fails if its digest (by default, of the record) is another one.
   */
  append (record: NewRecord<T>, key?: string, digest?: string): MaybePromise<string>
  /** Appends records next to each other, all or none, and returns a JSON array. If one has no id, all get new ids. */
  appendAll (records: readonly NewRecord<T>[], key?: string, digest?: string): MaybePromise<string>
  /** Returns the first record with this id. */
  first (id: number): MaybePromise<string | undefined | null>
  /** Returns the records of a query: each that does not change meanwhile exactly once. A long list is a stream. */
  select (query: Query<T>): MaybePromise<Page>
  /**
   * Replaces the first record with this id by what `change` returns for it, or removes it if that is `undefined`.
   * Returns the new or the removed record. `change` may be called several times. If it throws, nothing is changed.
   */
  change (id: number, change: (current: string) => T | undefined): MaybePromise<string | undefined | null>
  /** Returns the number of records that a query selects, counted up to its limit. */
  count (query: Pick<Query<T>, 'where' | 'limit'>): MaybePromise<number>
}

/** The names of the methods of a store. */
export const methodNames = [
  'append', 'appendAll', 'change', 'count', 'first', 'select'
] as const satisfies (keyof Store<HasId>)[]

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

/** What an engine needs of the definition of a collection. */
export interface StoreDefinition<T extends HasId> {
  /** Name of the collection, its table and its tag: lower case letters, digits and `_`. */
  name: string
  schema: TObject
  /** The records of a new collection. */
  seed: readonly T[]
  /** Fields that clients can filter and sort by: strings, integers, numbers and booleans. Default: none. */
  filters?: readonly string[] | undefined
  /** Fields whose values no two records have in common. Clients can filter by them. Default: the id of the server. */
  unique?: readonly string[] | undefined
  /** The collections whose ids fields have, such as `{ member_id: 'members' }`. Clients can filter by these fields. */
  references?: Readonly<Record<string, string>> | undefined
  /** Who chooses the ids. Those of the server are unique. */
  idSource?: 'client' | 'server' | undefined
  /** The new names of fields, by their previous names. */
  renames?: Readonly<Record<string, string>> | undefined
  /** The fields that stored records have, the schema has not, and whose values are deleted. */
  removes?: readonly string[] | undefined
  /** Changes an old record when the schema has changed. A record that is new already must stay as it is. */
  upgrade?: ((record: Record<string, unknown>) => object) | undefined
}

type Indexed = Pick<StoreDefinition<never>, 'filters' | 'unique' | 'references'>

/** The names of the fields that have an index besides the id: queries can use them. */
export function indexedFields ({ filters = [], unique = [], references = {} }: Indexed) {
  return [...new Set([...filters, ...unique, ...Object.keys(references)])]
}

/** The names of the fields whose values no two records have in common. */
export function uniqueFields ({ unique = [], idSource }: Pick<StoreDefinition<never>, 'unique' | 'idSource'>) {
  return [...new Set([...idSource === 'server' ? ['id'] : [], ...unique])]
}

/** A place where collections are stored. */
export interface Engine {
  /** Returns the store of a collection. It can be used after `start`. */
  open<T extends HasId> (collection: StoreDefinition<T>): Store<T>
  /**
   * Creates or changes the tables of all open collections, or none of them. If the database is not available yet, it
   * returns, and the first operation tries again. It throws only if the service can never work with this configuration.
   */
  start (): MaybePromise<void>
  /** Executes a small write, and throws if it fails or if this release must not write. */
  check (): MaybePromise<void>
  /** The number of connections that are used and idle, and of calls that wait for one. */
  connections (): { used: number, idle: number, waiting: number }
  /** Closes all connections and files. */
  close (): MaybePromise<void>
}

/** Returns a function that returns the problems of a record, if any. With `useDefaults`, it adds missing defaults. */
export type CheckerOf = (schema: TObject, options: { useDefaults: boolean, removeUnknown: false }) => Checker
type Checker = (record: unknown) => { path: string, message: string }[] | undefined

export interface EngineOptions {
  /** Maximum time for an operation, in milliseconds. */
  timeout: number
  /** Maximum number of connections. */
  poolSize: number
  /** Validates stored records when a schema has changed. */
  checkerOf: CheckerOf
  /** Messages for the operator. */
  log?: { info (message: string): void, warn (message: string): void }
  /** Called for each operation that fails because the engine is unavailable. */
  onUnavailable? (cause: unknown): void
}
