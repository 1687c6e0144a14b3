import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Query } from '../../../schemas/query.js'
import { limited } from '../batch.js'
import { StoreUnavailableError } from '../errors.js'
import type { Condition, Place, Plan } from '../query.js'
import type { HasId, MaybePromise, Page } from '../store.js'
import type { Row } from './database.js'
import { indexOnly, partsOf, type listStatements, type Part, type Statement } from './queries.js'
import type { tableOf } from './table.js'

/** Number of records that are read at once: of a short list, and of a long one if they are not too large together. */
const shortSize = 1000
const pieceSize = 500

/** After a short list of this length, others get their turn, in characters. */
const largeSize = 64 * 1024

/** A list is closed if its client reads nothing for this many times the database timeout, or not everything in ten times as long. */
export const stalledListTimeouts = 12

type Run = (statement: Statement) => MaybePromise<Row[]>

/** A consistent view of a database from which a long list is read. `free` closes it. `track` makes it known how fast the list is read. */
interface Snapshot {
  run: Run
  free (): void
  track (list: Readable): (bytes: number) => void
}

/** How an engine reads lists. */
interface Reading {
  /** Runs a statement that takes a short time. */
  run: Run
  openSnapshot (): MaybePromise<Snapshot>
  timeout: number
  /** The number of records that a statement may visit, if statements block other requests. */
  maxVisits?: number
}

/** Returns the methods `select` and `count` of a store. */
export function listReader<T extends HasId> (lists: ReturnType<typeof listStatements> & Pick<ReturnType<typeof tableOf>, 'encodeRow'>, { run, openSnapshot, timeout, maxVisits = Infinity }: Reading) {
  const { encodeRow, placeOf, selectPiece, selectPlaces, selectCount } = lists
  /** Whether the last list of all records was long. Then the next one is probably long too. */
  let wasLong = false
  /** If statements block other requests, short lists are read one after the other, so that few are in memory at once. */
  const whenFree = limited(maxVisits < Infinity ? 1 : Infinity, Infinity)
  return { select, count }

  async function select (query: Query<T>): Promise<Page> {
    const plan = lists.plan(query)
    const parts = partsOf(plan, await narrowest(plan))
    const isShort = !parts.some(isLong) && !(wasLong && plan.limit === Infinity)
    return (isShort && await whenFree(() => shortPage(plan, parts))) || longPage(await openSnapshot(), plan, parts)
  }

  /** A page of a short list, as one text; undefined if it is longer. */
  async function shortPage (plan: Plan, parts: Part[]): Promise<Page | undefined> {
    const size = Math.min(plan.limit, shortSize)
    const rows = await shortRows(parts, size + 1)
    if (!rows || (rows.length > size && size < plan.limit)) return
    const given = rows.slice(0, size)
    const last = rows.length > size ? given.at(-1) : undefined
    const list = `[${given.map(encodeRow).join(',')}]`
    if (list.length > largeSize) await nextTurn()
    return { list, ...last && { next: plan.cursorOf(placeOf(last, plan)) } }
  }

  /** Counts the records that a query selects, up to its limit. */
  async function count (query: Pick<Query<T>, 'where' | 'limit'>) {
    const plan = lists.plan(query)
    const narrow = await narrowest(plan)
    // The index of the first condition is shorter than the table.
    const sort = plan.conditions[0]?.field
    const inWindows = maxVisits < Infinity && !narrow
    const snapshot = inWindows ? await openSnapshot() : { run, free () {} }
    const deadline = Date.now() + timeout
    let counted = 0
    try {
      const parts = partsOf(maxVisits < Infinity && sort ? { ...plan, sort } : plan, narrow)
      for await (const window of windowsOf(parts, snapshot.run, deadline, () => inWindows)) {
        const [[found] = []] = await snapshot.run(selectCount(window))
        counted += Number(found)
        if (counted >= plan.limit) return plan.limit
      }
    } finally {
      snapshot.free()
    }
    return counted
  }

  /** The condition that the fewest records meet, if these are few enough to be read and sorted. */
  async function narrowest (plan: Plan): Promise<Condition | undefined> {
    if (maxVisits === Infinity || !indexOnly({ plan })) return
    const counts = await Promise.all(plan.conditions.map(async condition => {
      const part = { plan: { ...lists.plan({}), conditions: [condition], limit: shortSize + 1 }, narrow: condition }
      const [[found] = []] = await run(selectCount(part))
      return { condition, found: Number(found) }
    }))
    const [least] = counts.filter(({ found }) => found <= shortSize).sort((one, other) => one.found - other.found)
    return least?.condition
  }

  /** Returns whether a part must be read in windows. */
  function isLong (part: Part) {
    return maxVisits < Infinity && !part.narrow && indexOnly(part) !== undefined
  }

  /** Parts in windows, each of which a statement can read without delaying other requests. They must be read before the deadline. */
  async function * windowsOf (parts: Part[], run: Run, deadline = Infinity, isNeeded = isLong): AsyncGenerator<Part> {
    for (const part of parts) {
      let { after, until } = part
      do {
        const [end] = isNeeded(part) ? await run(selectPlaces({ ...indexOnly(part) ?? part, after }, 1, maxVisits - 1)) : []
        until = end && placeOf(end, part.plan)
        yield { ...part, after, until }
        after = until
        if (after && Date.now() > deadline) throw new StoreUnavailableError(new Error('The query took too long'))
      } while (after)
    }
  }

  /** Some rows of a short list; undefined if they are too large to be read at once. */
  async function shortRows (parts: Part[], count: number) {
    const rows: Row[] = []
    for (const part of parts) {
      const found = await run(selectPiece(part, count - rows.length))
      if (found.length === 0 && (await run(selectPiece(part, 1))).length > 0) return
      rows.push(...found)
      if (rows.length === count) break
    }
    return rows
  }

  /**
   * Returns a page as a stream that reads one piece at a time. The snapshot is freed when the stream ends, when the client
   * disconnects, or when the client is too slow.
   */
  async function longPage (snapshot: Snapshot, plan: Plan, parts: Part[]): Promise<Page> {
    const list = Readable.from(pieces(), { objectMode: false })
    const onPiece = snapshot.track(list)
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
      const last = plan.limit === Infinity ? undefined : await lastPlace()
      return { list, ...last && { next: plan.cursorOf(last) } }
    } catch (error) {
      list.destroy()
      throw error
    }

    /** The place of the last record on the page, if there are more. */
    async function lastPlace () {
      const deadline = Date.now() + timeout
      const places: Place[] = []
      for await (const window of windowsOf(parts, snapshot.run, deadline)) {
        places.push(...(await snapshot.run(selectPlaces(window, plan.limit + 1 - places.length))).map(row => placeOf(row, plan)))
        if (places.length > plan.limit) return places[plan.limit - 1]
      }
    }

    async function * pieces () {
      let before = '['
      let given = 0
      let size = pieceSize
      for await (let window of windowsOf(parts, snapshot.run)) {
        for (let isEnd = false; !isEnd && given < plan.limit;) {
          let count = Math.min(size, plan.limit - given)
          let rows = await snapshot.run(selectPiece(window, count))
          while (rows.length === 0 && count > 1) { // they are too large together, or there are no more
            count = Math.ceil(count / 4)
            rows = await snapshot.run(selectPiece(window, count))
          }
          isEnd = rows.length < count
          size = Math.min(pieceSize, Math.ceil(count * 1.125)) // the next records are probably of the same size
          stalled.refresh()
          given += rows.length
          const last = rows.at(-1)
          if (!last) continue
          window = { ...window, after: placeOf(last, plan) }
          const piece = before + rows.map(encodeRow).join(',')
          onPiece(piece.length)
          yield piece
          before = ','
        }
        if (given === plan.limit) break
      }
      if (plan.isPlain && plan.limit === Infinity) wasLong = given > shortSize
      yield `${before.replace(',', '')}]` // `[]` if there are no records
    }
  }
}
