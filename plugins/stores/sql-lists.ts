import { Readable } from 'node:stream'
import type { Row } from './sql-table.js'
import type { MaybePromise, Page } from './store.js'

/** Number of records that are read at once: of a short list, and of a long one if they are not too large together. */
const shortSize = 1000
const pieceSizes = [500, 20, 1]

/** A list is closed if its client reads nothing for this many times the database timeout. */
export const stalledListTimeouts = 12

/** Selects at most `limit` records after a position. */
type SelectPiece = (after: number, limit: number) => MaybePromise<Row[]>

/** A consistent view of a collection from which a long list is read. `free` closes it. */
export interface Snapshot {
  select: SelectPiece
  /** Selects the positions of two records: the one that is so many places after a position, and the next one. */
  selectEnd (after: number, places: number): MaybePromise<Row[]>
  free (): void
}

/** Returns the method `page` of a store. `select` reads pages that are short enough to be read at once. */
export function pageReader (
  encodeRow: (row: Row) => string, select: SelectPiece, openSnapshot: () => MaybePromise<Snapshot>, timeout: number
) {
  return async function page (limit: number, after = 0): Promise<Page> {
    const size = Math.min(limit, shortSize)
    const rows = await select(after, size + 1)
    const isMore = rows.length > size
    const isShort = isMore ? size === limit : rows.length > 0 || (await select(after, 1)).length === 0
    if (!isShort) return longPage(await openSnapshot(), limit, after)
    const given = rows.slice(0, size)
    return { list: `[${given.map(encodeRow).join(',')}]`, ...isMore && { next: positionOf(given) } }
  }

  /**
   * Returns a page as a stream that reads one piece at a time. The snapshot is freed when the stream ends, when the client
   * disconnects, or when the client has not read anything for too long.
   */
  async function longPage (snapshot: Snapshot, limit: number, after: number): Promise<Page> {
    let position = after
    let left = limit
    const list = new Readable({
      async read () {
        clearTimeout(stalled)
        try {
          const { rows, last } = await readPiece(snapshot.select, position, left)
          if (this.destroyed) return
          stalled = giveUpLater()
          const json = rows.map(encodeRow).join(',')
          const before = position === after ? '[' : json && ','
          position = positionOf(rows)
          left -= rows.length
          const isEnd = last || left === 0
          this.push(before + json + (isEnd ? ']' : ''))
          if (isEnd) this.push(null)
        } catch (error) {
          this.destroy(error as Error)
        }
      },
      destroy (error, done) {
        clearTimeout(stalled)
        snapshot.free()
        done(error)
      }
    })
    // Without a listener, the error of a stream that nobody reads would end the process.
    list.on('error', () => {})
    let stalled = giveUpLater()
    try {
      const [last, following] = limit === Infinity ? [] : await snapshot.selectEnd(after, limit - 1)
      return { list, next: following && positionOf([last]) }
    } catch (error) {
      list.destroy()
      throw error
    }

    function giveUpLater () {
      const giveUp = () => list.destroy(new Error('The client does not read the list'))
      return setTimeout(giveUp, timeout * stalledListTimeouts).unref()
    }
  }
}

async function readPiece (select: SelectPiece, after: number, left: number) {
  let rows: Row[] = []
  let last = false
  for (const size of pieceSizes) {
    const limit = Math.min(size, left)
    rows = await select(after, limit)
    last = rows.length < limit
    if (rows.length > 0) break
  }
  return { rows, last }
}

/** The position of the last of these rows. */
function positionOf (rows: (Row | undefined)[]) {
  return Number(rows.at(-1)?.at(-1))
}
