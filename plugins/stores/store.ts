/** What every record has: an id, which need not be unique. */
export interface Identified {
  id: number
}

/** A value that is at hand, or that an engine has to fetch. */
type Eventually<T> = T | Promise<T>

/** One collection, in the order in which its records were appended. */
export interface Store<T extends Identified> {
  /** Puts a record at the end, also where its id is taken, and answers it as stored. */
  append (record: T): Eventually<T>
  /** Finds the first record with this id. */
  first (id: number): Eventually<T | undefined>
  /** Gives every record as of now; later changes do not show in it. */
  list (): Eventually<T[]>
  /** Removes the first record with this id and tells whether there was one. */
  removeFirst (id: number): Eventually<boolean>
}
