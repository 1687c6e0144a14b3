import { setImmediate as nextTurn } from 'node:timers/promises'
import { Readable } from 'node:stream'
import type { AnyQuery } from '../../schemas/query.js'
import type { Collection } from './collection.js'
import type { Reader } from './engine.js'
import { cursorOf, type Place, type Plan } from './query.js'
import type { JsonPage } from './store.js'

/** A longer list is a stream, whose pieces have about so many characters, and at most so many records. */
const pieceSize = 1024 * 1024
const maxRecords = 10_000

/** A page ends when it has so many characters. */
const maxPageSize = 8 * pieceSize

/** A record at its place in a list. */
export interface Entry extends Place {
  json: string
}

/** Which records of a query are read at once: those after a place, and not after a position. */
export interface Piece {
  plan: Plan
  after?: Place | undefined
  lastPosition?: number
  count: number
}

/** Returns the method `select` of a store. Nothing is held in a database while a client reads. */
export function listsOf (collection: Collection, reader: Reader) {
  /** The average size of a record in the last piece. The first one may be much larger. */
  let recordSize = 10_000

  return async function select (query: AnyQuery): Promise<JsonPage> {
    const plan = collection.plan(query)
    const { entries, hasMore } = await readPiece(plan)
    if (!hasMore) return { list: arrayOf(entries) }
    const last = entries.at(-1)
    if (plan.limit < Infinity) return { list: arrayOf(entries), next: last && cursorOf(last, plan) }
    const lastPosition = await reader.lastPosition(collection)
    return { list: Readable.from(pieces(plan, entries, lastPosition), { objectMode: false, highWaterMark: 1 }) }
  }

  /** Reads the first records of a query: as many as its limit and the size of a piece allow. */
  async function readPiece (plan: Plan) {
    const entries: Entry[] = []
    const maxSize = plan.limit < Infinity ? maxPageSize : pieceSize
    for (let size = 0; size < maxSize && entries.length <= plan.limit;) {
      const count = Math.min(plan.limit + 1 - entries.length, nextCount())
      const more = await read({ plan, after: entries.at(-1) ?? plan.after, count })
      for (const entry of more) entries.push(entry)
      if (more.length < count) return { entries, hasMore: false }
      size += sizeOf(more)
    }
    return { entries: entries.slice(0, plan.limit), hasMore: true }
  }

  /** The text of a list, whose first records are known, up to a position. */
  async function * pieces (plan: Plan, first: Entry[], lastPosition: number) {
    yield `[${textOf(first)}`
    for (let after = first.at(-1); after;) {
      await nextTurn()
      const count = nextCount()
      const entries = await read({ plan, after, lastPosition, count })
      if (entries.length > 0) yield `,${textOf(entries)}`
      after = entries.length === count ? entries.at(-1) : undefined
    }
    yield ']'
  }

  function nextCount () {
    return Math.max(2, Math.min(maxRecords, Math.floor(pieceSize / recordSize)))
  }

  async function read (piece: Piece) {
    const entries = await reader.entries(collection, piece)
    // The next records may be larger, so that pieces grow in steps.
    if (entries.length > 0) recordSize = Math.max(sizeOf(entries) / entries.length, recordSize / 4)
    return entries
  }
}

function sizeOf (entries: Entry[]) {
  return entries.reduce((size, { json }) => size + json.length + 1, 0)
}

function textOf (entries: Entry[]) {
  return entries.map(({ json }) => json).join()
}

function arrayOf (entries: Entry[]) {
  return `[${textOf(entries)}]`
}
