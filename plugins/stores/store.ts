import type { Readable } from 'node:stream'
import type { TObject } from '@sinclair/typebox'
import { details } from '../../schemas/errors.js'

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
   * Puts a record at the end, also where its id is taken, and gives it back. One that has no id gets the next one that
   * no record has or, where none is left, is refused with `NoIdLeft`. With a key that was used within a day, it is not put there again: it is given back as it was or, where it is another
   * one, refused with a `KeyConflict`.
   */
  append (record: T | Omit<T, 'id'>, key?: string): MaybePromise<string>
  /** Finds the first record with this id. */
  first (id: number): MaybePromise<string | undefined>
  /** Gives every record as of now, whole or, where that is much, in pieces; later changes do not show in it. */
  list (): MaybePromise<List>
  /** Gives as many records as of now, of those that are behind this position. */
  page (limit: number, after?: number): MaybePromise<Page>
  /** Removes the first record with this id and tells whether there was one. */
  removeFirst (id: number): MaybePromise<boolean>
  /** Tells how many records there are. */
  size (): MaybePromise<number>
}

/** Records as the JSON of a list. */
export type List = string | Buffer | Readable

export interface Page {
  list: List
  /** The position of its last record, where there are more behind it. */
  next?: number
}

/** Tells whether a record comes with its id. */
export function hasId<T extends HasId> (record: T | Omit<T, 'id'>): record is T {
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
}

/**
 * Generated ids begin behind the largest id that a client has chosen up to here, so at least 2^52 - 1 of them follow.
 * Those that clients have chosen beyond are skipped.
 */
export const largestCounted = 2 ** 52

/** The next id to generate: the first one behind the last that no record has. */
export function nextId (last: number, isTaken: (id: number) => boolean) {
  for (let id = last + 1; id <= Number.MAX_SAFE_INTEGER; id++) if (!isTaken(id)) return id
  throw new NoIdLeft()
}

/** How long a list holds what it needs while its reader takes nothing, in time-outs. */
export const patience = 12

/** The engine cannot be used as it is configured. The message is for whoever starts the service. */
export class StartupError extends Error {}

/** The engine cannot serve for the moment. */
export class Unavailable extends Error {
  readonly statusCode = 503

  constructor (cause?: unknown, detail: string = details[503]) {
    super(detail, { cause })
  }
}

/** The generated ids have reached the largest integer that JSON carries exactly. */
export class NoIdLeft extends Unavailable {
  constructor () {
    super(undefined, 'No id is left for another record')
  }
}

/** A key stands for another request, or for one that is still being served. */
export class KeyConflict extends Error {
  constructor (readonly statusCode: 409 | 422) {
    super(details[statusCode])
  }
}

/** The engine cannot keep a record as it is: what of it, and why. */
export class Unstorable extends Error {
  readonly statusCode = 400

  constructor (readonly path: string, message: string) {
    super(message)
  }
}
