import type { Readable } from 'node:stream'
import type { TObject } from '@sinclair/typebox'
import type { AnyQuery, Query } from '../../schemas/query.js'

export type Id = number | string

/** A record with an id, which need not be unique. (An interface could not be a record with other fields.) */
export type HasId = { id: Id }

/** A record to append. Without an id, the store generates one. */
export type NewRecord<T extends HasId> = T | Omit<T, 'id'>

export type MaybePromise<T> = T | Promise<T>

/** One collection, in the order in which its records were appended. A host can provide its own store. */
export interface OwnStore<T extends HasId> {
  /**
   * Appends records next to each other, all or none, and returns them. If one has no id, all get new ids. With a key
   * that was used within 24 hours, nothing is appended, and the first response is returned.
   */
  append (records: readonly NewRecord<T>[], key?: IdempotencyKey): MaybePromise<readonly T[]>
  /** Returns the first record with this id, if there is one. */
  first (id: T['id']): MaybePromise<T | undefined | null>
  /** Returns the records that a query selects, or a page of them. */
  select (query: Query<T>): MaybePromise<Page<T>>
  /**
   * Replaces the first record with this id by what `change` returns for it, or removes it if that is `undefined`.
   * Returns the new or the removed record. `change` may be called several times. If it throws, nothing is changed.
   */
  change (id: T['id'], change: (record: T) => T | undefined): MaybePromise<T | undefined | null>
  /** Returns the number of records that a query selects, counted up to its limit. */
  count (query: Pick<Query<T>, 'where' | 'limit'>): MaybePromise<number>
}

/** A store of this package, for code of the host. It validates records like those of clients. */
export interface Store<T extends HasId> extends OwnStore<T> {
  append (record: NewRecord<T>, key?: IdempotencyKey): Promise<T>
  append (records: readonly NewRecord<T>[], key?: IdempotencyKey): Promise<T[]>
}

/** A key that identifies a request, and the digest of the request. With another digest, the key is an error. */
export interface IdempotencyKey {
  key: string
  digest: string
}

export interface Page<T> {
  records: readonly T[]
  /** The cursor of the next page, if there are more records. */
  next?: string | undefined
}

export type AnyRecord = Record<string, unknown>

/** A store for routes: it returns the JSON that is sent. */
export interface JsonStore {
  append (given: AnyRecord | readonly AnyRecord[], key?: IdempotencyKey): MaybePromise<string>
  first (id: Id): MaybePromise<string | undefined>
  select (query: AnyQuery): MaybePromise<JsonPage>
  change (id: Id, change: Change): MaybePromise<string | undefined>
  count (query: Pick<AnyQuery, 'where' | 'limit'>): MaybePromise<number>
  /** Returns a JSON array with the results of each group. A store of a host need not have it. */
  summarize? (query: SummaryQuery): MaybePromise<string>
}

/** What is computed of the records that meet conditions, for all or for each value of a field. */
export interface SummaryQuery {
  where?: object | undefined
  count?: boolean | undefined
  sum?: string[] | undefined
  min?: string[] | undefined
  max?: string[] | undefined
  group?: string | undefined
}

/** Returns the new record for the current one, or `undefined` to remove it. */
export type Change = (record: AnyRecord, json: string) => AnyRecord | undefined

export interface JsonPage {
  /** A JSON array. A list of all records that is long is a stream. */
  list: string | Buffer | Readable
  next?: string | undefined
}

/** The fields for the times when a record was created and changed. */
export const timestamps = ['created_at', 'updated_at'] as const

/** What a store needs of the definition of a collection. */
export interface StoreDefinition<T extends HasId> {
  /** Name of the collection, its table and its tag: lower case letters, digits and `_`. */
  name: string
  schema: TObject
  /** The records of a new collection. */
  seed: readonly T[]
  /** Fields that clients can filter and sort by: strings, integers, numbers and booleans. Default: none. */
  filters?: readonly string[] | undefined
  /** Fields whose values no two records have in common. Ids that the server chooses, or that are texts, always are. */
  unique?: readonly string[] | undefined
  /** The collections whose ids fields have, such as `{ member_id: 'members' }`. Clients can filter by these fields. */
  references?: Readonly<Record<string, string>> | undefined
  /** Who chooses the ids. Those of the server are unique. */
  idSource?: 'client' | 'server' | undefined
  /** Whether the store sets `created_at` and `updated_at`. */
  timestamps?: boolean | undefined
  /** Whether other collections can show its records: clients can get them, and no hook of the host decides it. */
  isExpandable?: boolean | undefined
  /** The new names of fields, by their previous names. */
  renames?: Readonly<Record<string, string>> | undefined
  /** The fields that stored records have, the schema has not, and whose values are deleted. */
  removes?: readonly string[] | undefined
  /** Changes an old record when the schema has changed. A record that is new already must stay as it is. */
  upgrade?: ((record: AnyRecord) => object) | undefined
}
