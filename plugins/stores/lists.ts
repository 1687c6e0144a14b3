import { setImmediate as nextTurn } from 'node:timers/promises'
import { Readable } from 'node:stream'
import type { Query } from '../../schemas/query.js'
import type { Collection } from './collection.js'
import { comparePlaces, cursorOf, type Place, type Plan } from './query.js'
import type { HasId, MaybePromise, Page } from './store.js'

/** A longer list is a stream, whose pieces have about so many characters, and at most so many records. */
const pieceSize = 1024 * 1024
const maxRecords = 10_000

/** A record at its place in a list. */
export interface Entry extends Place {
  record: string
}

/** Which records of a query are read at once: those after a place, and not after a position. */
export interface Piece {
  plan: Plan
  after?: Place | undefined
  lastPosition?: number
  count: number
  /** Whether the records themselves are not needed. */
  onlyPlaces?: boolean
}

/** What lists need of an engine. Each function runs one statement, and nothing is held in between. */
export interface ListSource {
  entries (piece: Piece): MaybePromise<Entry[]>
  /** The position of the last record of the collection. */
  lastPosition (): MaybePromise<number>
}

/** Returns the method `select` of a store. */
export function lists ({ plan: planOf }: Collection, source: ListSource) {
  /** The average size of a record in the last piece. The first one may be much larger. */
  let recordSize = 10_000

  return async function select (query: Query<HasId>): Promise<Page> {
    const plan = planOf(query)
    const { limit, after } = plan
    const { entries, isComplete } = await readSome(plan)
    if (isComplete) {
      const page = entries.slice(0, limit)
      const last = entries.length > limit ? page.at(-1) : undefined
      return { list: `[${textOf(page)}]`, ...last && { next: cursorOf(last, plan) } }
    }
    const lastPosition = await source.lastPosition()
    const isPage = limit < Infinity
    const places = isPage ? await source.entries({ plan, after, lastPosition, count: limit + 1, onlyPlaces: true }) : []
    const end = isPage ? places[limit - 1] : undefined
    const list = Readable.from(pieces(plan, entries, lastPosition, end), { objectMode: false, highWaterMark: 1 })
    return { list, ...end && places.length > limit && { next: cursorOf(end, plan) } }
  }

  /** Reads records up to the size of a piece, and one more than the limit to know whether there are more. */
  async function readSome (plan: Plan) {
    const entries: Entry[] = []
    for (let size = 0; size < pieceSize;) {
      const count = Math.min(plan.limit + 1 - entries.length, countNow())
      const more = await read({ plan, after: entries.at(-1) ?? plan.after, count })
      for (const entry of more) entries.push(entry)
      if (more.length < count || entries.length > plan.limit) return { entries, isComplete: true }
      size += sizeOf(more)
    }
    return { entries, isComplete: false }
  }

  /** The text of a list, whose first records are known, up to a position and a place. */
  async function * pieces (plan: Plan, first: Entry[], lastPosition: number, end?: Entry) {
    const isIncluded = (entry: Entry) => {
      const order = end ? comparePlaces(entry, end) : 0
      return plan.descending ? order >= 0 : order <= 0
    }
    yield `[${textOf(first)}`
    for (let after = first.at(-1); after;) {
      await nextTurn()
      const count = countNow()
      const entries = await read({ plan, after, lastPosition, count })
      const found = entries.filter(isIncluded)
      if (found.length > 0) yield `,${textOf(found)}`
      after = found.length === count ? found.at(-1) : undefined
    }
    yield ']'
  }

  function countNow () {
    return Math.max(2, Math.min(maxRecords, Math.floor(pieceSize / recordSize)))
  }

  async function read (piece: Piece) {
    const entries = await source.entries(piece)
    // The next records may be larger, so that pieces grow in steps.
    if (entries.length > 0) recordSize = Math.max(sizeOf(entries) / entries.length, recordSize / 4)
    return entries
  }
}

function sizeOf (entries: Entry[]) {
  return entries.reduce((size, { record }) => size + record.length + 1, 0)
}

function textOf (entries: Entry[]) {
  return entries.map(({ record }) => record).join()
}
