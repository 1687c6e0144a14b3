import { setImmediate as nextTurn } from 'node:timers/promises'
import { Readable } from 'node:stream'
import type { AnyQuery } from '../../schemas/query.js'
import type { Collection } from './collection.js'
import type { Reader } from './engine.js'
import { cursorOf, type Place, type Plan } from './query-plan.js'
import type { JsonPage, MaybePromise } from './store.js'

/** Lists are read in pieces of about so many characters, and at most so many records. */
const pieceSize = 512 * 1024
const maxRecords = 10_000

/** A longer list of all records is a stream, in characters. */
export const maxListSize = 1024 * 1024

/** A page ends when it has so many characters. */
const maxPageSize = 8 * maxListSize

/** Which records of a query are read at once: those after a place, and not after a position. */
export interface Range {
  plan: Plan
  after?: Place | undefined
  lastPosition?: number
  count: number
}

/** Records of a list: their JSON, separated by commas. */
export interface Piece {
  json: string
  count: number
  /** The place of the last one. */
  last?: Place | undefined
  /** Whether there are records after them. */
  hasMore: boolean
}

/** Returns the method `select` of a store. No transaction or connection is held while a client reads. */
export function listsOf (collection: Collection, reader: Reader) {
  /** The average size of a record in the last piece. The first one may be much larger. */
  let recordSize = 10_000

  return function select (query: AnyQuery): MaybePromise<JsonPage> {
    const plan = collection.plan(query)
    const isWhole = plan.isPlain && plan.limit === Infinity && !plan.after
    const list = isWhole ? reader.keptList(collection) : undefined
    return list ? { list } : read(plan)
  }

  async function read (plan: Plan): Promise<JsonPage> {
    const isPage = plan.limit < Infinity
    const { json, last, hasMore } = await readStart(plan, isPage ? maxPageSize : maxListSize)
    if (!hasMore) return { list: `[${json}]` }
    if (isPage) return { list: `[${json}]`, next: last && cursorOf(last, plan) }
    const lastPosition = await reader.lastPosition(collection)
    const list = Readable.from(pieces(plan, json, lastPosition, last), { objectMode: false, highWaterMark: 1 })
    return { list }
  }

  /** Reads the first records of a query: as many as its limit and a size allow. */
  async function readStart (plan: Plan, maxSize: number) {
    let start = await readPiece({ plan, after: plan.after, count: Math.min(plan.limit, nextCount()) })
    while (start.hasMore && start.json.length < maxSize && start.count < plan.limit) {
      const next = await readPiece({ plan, after: start.last, count: Math.min(plan.limit - start.count, nextCount()) })
      start = { ...next, json: [start.json, next.json].filter(Boolean).join(), count: start.count + next.count }
    }
    return start
  }

  /** The text of a list, whose first records are known, up to a position. */
  async function * pieces (plan: Plan, first: string, lastPosition: number, after?: Place) {
    yield `[${first}`
    for (let hasMore = true; hasMore;) {
      await nextTurn()
      const piece = await readPiece({ plan, after, lastPosition, count: nextCount() })
      if (piece.count > 0) yield `,${piece.json}`
      hasMore = piece.hasMore
      after = piece.last
    }
    yield ']'
  }

  function nextCount () {
    return Math.max(2, Math.min(maxRecords, Math.floor(pieceSize / recordSize)))
  }

  async function readPiece (range: Range) {
    const piece = await reader.piece(collection, range)
    // The next records may be larger, so that pieces grow in steps.
    if (piece.count > 0) recordSize = Math.max(piece.json.length / piece.count, recordSize / 4)
    return piece
  }
}
