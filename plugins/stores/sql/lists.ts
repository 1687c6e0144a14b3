import { Readable } from 'node:stream'
import type { MaybePromise, Page } from '../store.js'
import type { Row } from './table.js'

/** Number of records that are read at once: of a short list, and of a long one if they are not too large together. */
const shortSize = 1000
const pieceSize = 500

/** A list is closed if its client reads nothing for this many times the database timeout, or not everything in ten times as long. */
export const stalledListTimeouts = 12

/** Selects rows after a position. */
type Select = (after: number, count: number) => MaybePromise<Row[]>

/** A consistent view of a database from which a long list is read. `free` closes it. */
interface Snapshot<Statement> {
  prepare (statement: Statement): Select
  free (): void
}

/** Returns the method `page` of a store. `selectShort` reads pages that are short enough to be read at once. */
export function pageReader<Statement> (
  { encodeRow, selectPiece, selectEnd }: { encodeRow (row: Row): string, selectPiece: Statement, selectEnd: Statement },
  selectShort: Select, openSnapshot: () => MaybePromise<Snapshot<Statement>>, timeout: number
) {
  return async function page (limit: number, after = 0): Promise<Page> {
    const size = Math.min(limit, shortSize)
    const rows = await selectShort(after, size + 1)
    const isMore = rows.length > size
    const isShort = isMore ? size === limit : rows.length > 0 || (await selectShort(after, 1)).length === 0
    if (!isShort) return longPage(await openSnapshot(), limit, after)
    const given = rows.slice(0, size)
    return { list: `[${given.map(encodeRow).join(',')}]`, ...isMore && { next: positionOf(given) } }
  }

  /**
   * Returns a page as a stream that reads one piece at a time. The snapshot is freed when the stream ends, when the client
   * disconnects, or when the client has not read anything for too long.
   */
  async function longPage (snapshot: Snapshot<Statement>, limit: number, after: number): Promise<Page> {
    const list = Readable.from(pieces(), { objectMode: false })
    const close = () => list.destroy(new Error('The client does not read the list'))
    const stalled = setTimeout(close, timeout * stalledListTimeouts).unref()
    const late = setTimeout(close, timeout * stalledListTimeouts * 10).unref()
    // Without a listener, the error of a stream that nobody reads would end the process.
    list.on('error', () => {}).on('close', function freeSnapshot () {
      clearTimeout(stalled)
      clearTimeout(late)
      snapshot.free()
    })
    try {
      const [last, following] = limit === Infinity ? [] : await snapshot.prepare(selectEnd)(after, limit - 1)
      return { list, next: following && positionOf([last]) }
    } catch (error) {
      list.destroy()
      throw error
    }

    async function * pieces () {
      const select = snapshot.prepare(selectPiece)
      let position = after
      let size = pieceSize
      for (let left = limit; left > 0;) {
        let count = Math.min(size, left)
        let rows = await select(position, count)
        while (rows.length === 0 && count > 1) { // they are too large together, or there are no more
          count = Math.ceil(count / 4)
          rows = await select(position, count)
        }
        const isEnd = rows.length < count
        size = Math.min(pieceSize, Math.ceil(count * 1.125)) // the next rows are probably of the same size
        stalled.refresh()
        const json = rows.map(encodeRow).join(',')
        const before = position === after ? '[' : json && ','
        position = positionOf(rows)
        left = isEnd ? 0 : left - rows.length
        yield before + json + (left === 0 ? ']' : '')
      }
    }
  }
}

/** The position of the last of these rows. */
function positionOf (rows: (Row | undefined)[]) {
  return Number(rows.at(-1)?.at(-1))
}
