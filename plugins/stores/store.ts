import type { Readable } from 'node:stream'
import type { TObject } from '@sinclair/typebox'

/** What every record has: an id, which need not be unique. */
export interface HasId {
  id: number
}

/** A value that is at hand, or that an engine has to fetch. */
export type MaybePromise<T> = T | Promise<T>

/**
 * One collection, in the order in which its records were appended. A record never changes once it is stored, so a
 * store takes it as an object and from then on gives it as JSON, ready to be sent.
 */
export interface Store<T extends HasId> {
  /**
   * Appends a record, also if its id is taken, and returns it. A record without an id gets the next id that no record
   * has; if none is left, it fails with a `NoIdLeftError`. With an idempotency key that was used within a day, nothing
   * is appended: the first record is returned or, if it was another one, it fails with an `IdempotencyKeyReusedError`.
   */
  append (record: NewRecord<T>, key?: string): MaybePromise<string>
  /** Finds the first record with this id. */
  first (id: number): MaybePromise<string | undefined>
  /** Gives every record as of now, whole or, where that is much, in pieces; later changes do not show in it. */
  list (): MaybePromise<List>
  /** Gives as many records as of now, of those that are behind this position. */
  page (limit: number, after?: number): MaybePromise<Page>
  /** Removes the first record with this id and tells whether there was one. */
  removeFirst (id: number): MaybePromise<boolean>
  /** Tells how many records there are. It looks at a limited number of them, so beyond 10,000 it may be an estimate. */
  size (): MaybePromise<number>
}

/** Records as the JSON of a list. */
export type List = string | Buffer | Readable

export interface Page {
  list: List
  /** The position of its last record, where there are more behind it. */
  next?: number
}

/** A record to append: with its id, or without one, so that the store generates it. */
export type NewRecord<T extends HasId> = T | Omit<T, 'id'>

/** Tells whether a record comes with its id. */
export function hasId<T extends HasId> (record: NewRecord<T>): record is T {
  return 'id' in record
}

/** What an engine has to know of a collection. */
export interface Collection<T extends HasId> {
  name: string
  schema: TObject
  /** The records that it has when it is created. */
  seed: T[]
  /** For each version of its table but the newest, the SQL that leads to the next one. */
  upgrades?: string[]
}

/** What collections are kept in. */
export interface Engine {
  /** Opens a collection, which is created where it is not there yet. */
  open<T extends HasId> (collection: Collection<T>): MaybePromise<Store<T>>
  /** Fails where the engine cannot serve. */
  check (): MaybePromise<void>
  /** How many connections there are for each purpose, by what they do. */
  connections? (): Record<string, Connections>
  /** Gives back all that the engine holds; what it has acknowledged is kept. */
  close (): MaybePromise<void>
}

interface Connections {
  used: number
  idle: number
  /** How many calls wait for one. */
  waiting: number
}

export interface EngineOptions {
  /** How long an engine may take to answer, in milliseconds. */
  timeout: number
  /** How many connections it may have. */
  poolSize: number
  /** Is called each time that an operation fails because the engine cannot serve. */
  onUnavailable? (cause: unknown): void
}

/**
 * Generated ids begin behind the largest id that a client has chosen up to here, so at least 2^52 - 1 of them follow.
 * Those that clients have chosen beyond are skipped.
 */
export const maxCountedId = 2 ** 52

/** The next id to generate: the first one behind the last that no record has. */
export function nextId (last: number, isTaken: (id: number) => boolean) {
  for (let id = last + 1; id <= Number.MAX_SAFE_INTEGER; id++) if (!isTaken(id)) return id
  throw new NoIdLeftError()
}

/** How long a list holds what it needs while its reader takes nothing, in time-outs. */
export const stalledListTimeouts = 12

/** The service cannot start as it is configured. The message is for the operator. */
export class StartupError extends Error {
  readonly code = 'ERR_STARTUP'
}

/** The engine cannot serve for the moment. */
export class StoreUnavailableError extends Error {
  readonly code = 'ERR_STORE_UNAVAILABLE'

  constructor (cause?: unknown) {
    super('The store is unavailable', { cause })
  }
}

/** The generated ids have reached the largest integer that JSON carries exactly. */
export class NoIdLeftError extends Error {
  readonly code = 'ERR_NO_ID_LEFT'
}

/** A call with this idempotency key is still under way. */
export class IdempotencyKeyInUseError extends Error {
  readonly code = 'ERR_IDEMPOTENCY_KEY_IN_USE'
}

/** The idempotency key was used with another record. */
export class IdempotencyKeyReusedError extends Error {
  readonly code = 'ERR_IDEMPOTENCY_KEY_REUSED'
}

/** The engine cannot store a record as it is: the field at fault as a JSON Pointer, and what it must be. */
export class NotStorableError extends Error {
  readonly code = 'ERR_NOT_STORABLE'

  constructor (readonly path: string, message: string) {
    super(message)
  }
}
