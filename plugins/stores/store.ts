import type { Readable } from 'node:stream'

/** What every record has: an id, which need not be unique. */
export interface Identified {
  id: number
}

/** A value that is at hand, or that an engine has to fetch. */
type Eventually<T> = T | Promise<T>

/**
 * One collection, in the order in which its records were appended. A record never changes once it is stored, so a
 * store takes it as an object and from then on gives it as JSON, ready to be sent.
 */
export interface Store<T extends Identified> {
  /** Puts a record at the end, also where its id is taken, and gives it back. */
  append (record: T): Eventually<string>
  /** Finds the first record with this id. */
  first (id: number): Eventually<string | undefined>
  /** Gives every record as of now, whole or, where that is much, in pieces; later changes do not show in it. */
  list (): Eventually<string | Buffer | Readable>
  /** Removes the first record with this id and tells whether there was one. */
  removeFirst (id: number): Eventually<boolean>
}
