import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Query } from '../../../schemas/query.js'
import { limited } from '../batch.js'
import { StoreUnavailableError } from '../errors.js'
import type { Condition, Place, Plan } from '../query.js'
import type { HasId, MaybePromise, Page } from '../store.js'
import { indexOnly, partsOf, type listStatements, type Part, type Statement } from './queries.js'
import type { Row, tableOf } from './table.js'

/** Number of records that are read at once: of a short list, and of a long one if they are not too large together. */
const shortSize = 1000
const pieceSize = 500

/** After a short list of this length, others get their turn, in characters. */
const largeSize = 64 * 1024

/** A list is closed if its client reads nothing for this many times the database timeout, or not everything in ten times as long. */
export const stalledListTimeouts = 12

type Run = (statement: Statement) => MaybePromise<Row[]>

type Lists = ReturnType<typeof listStatements> & Pick<ReturnType<typeof tableOf>, 'encodeRow'>

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
export function listReader<T extends HasId> (lists: Lists, { run, openSnapshot, timeout, maxVisits = Infinity }: Reading) {
  const { encodeRow, placeOf, selectCount } = lists
  /** Whether the last list of all records was long. Then the next one is probably long too. */
  let wasLong = false
  /** If statements block other requests, short lists are read one after the other, so that few are in memory at once. */
  const whenFree = limited(maxVisits < Infinity ? 1 : Infinity, Infinity)
  /** The number of records that a statement may visit in a part. */
  const visitsOf = (part: Part) => !part.narrow && indexOnly(part) ? maxVisits : Infinity
  return { select, count }

  async function select (query: Query<T>): Promise<Page> {
    const plan = lists.plan(query)
    const parts = partsOf(plan, await narrowest(plan))
    const isShort = parts.every(part => visitsOf(part) === Infinity) && !(wasLong && plan.limit === Infinity)
    return (isShort && await whenFree(() => shortPage(plan, parts))) || longPage(await openSnapshot(), plan, parts)
  }

  /** A page of a short list, as one text; undefined if it is longer. */
  async function shortPage (plan: Plan, parts: Part[]): Promise<Page | undefined> {
    const size = Math.min(plan.limit, shortSize)
    const rows = await shortRows(lists, run, parts, size + 1)
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
    const parts = partsOf(maxVisits < Infinity && sort ? { ...plan, sort } : plan, narrow)
    const visits = narrow ? Infinity : maxVisits
    const snapshot = visits < Infinity ? await openSnapshot() : { run, free () {} }
    let counted = 0
    try {
      for await (const window of windowsOf(lists, snapshot.run, parts, () => visits, Date.now() + timeout)) {
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
  async function narrowest (plan: Part['plan']): Promise<Condition | undefined> {
    if (maxVisits === Infinity || !indexOnly({ plan })) return
    const counts = await Promise.all(plan.conditions.map(async condition => {
      const part = { plan: { ...lists.plan({}), conditions: [condition], limit: shortSize + 1 }, narrow: condition }
      const [[found] = []] = await run(selectCount(part))
      return { condition, found: Number(found) }
    }))
    const [least] = counts.filter(({ found }) => found <= shortSize).sort((one, other) => one.found - other.found)
    return least?.condition
  }

  /**
   * Returns a page as a stream that reads one piece at a time. The snapshot is freed when the stream ends, when the client
   * disconnects, or when the client is too slow.
   */
  async function longPage ({ run, free, track }: Snapshot, plan: Plan, parts: Part[]): Promise<Page> {
    const list = Readable.from(pieces(), { objectMode: false }).on('close', free)
    const onPiece = track(list)
    const stalled = closeIfUnread(list, timeout)
    try {
      const last = plan.limit === Infinity ? undefined : await lastPlace(lists, run, windowsOf(lists, run, parts, visitsOf, Date.now() + timeout), plan.limit)
      return { list, ...last && { next: plan.cursorOf(last) } }
    } catch (error) {
      list.destroy()
      throw error
    }

    async function * pieces () {
      let [before, given] = ['[', 0]
      for await (const rows of rowsOf(lists, run, windowsOf(lists, run, parts, visitsOf), plan.limit)) {
        stalled.refresh()
        if (rows.length === 0) continue
        const piece = before + rows.map(encodeRow).join(',')
        onPiece(piece.length)
        yield piece
        before = ','
        given += rows.length
      }
      if (plan.isPlain && plan.limit === Infinity) wasLong = given > shortSize
      yield `${before.replace(',', '')}]` // `[]` if there are no records
    }
  }
}

/** Closes a list that its client does not read. Returns the timer to refresh when the client reads. */
function closeIfUnread (list: Readable, timeout: number) {
  const close = () => list.destroy(new Error('The client does not read the list'))
  const stalled = setTimeout(close, timeout * stalledListTimeouts).unref()
  const late = setTimeout(close, timeout * stalledListTimeouts * 10).unref()
  // Without a listener, the error of a stream that nobody reads would end the process.
  list.on('error', () => {}).on('close', function clear () {
    clearTimeout(stalled)
    clearTimeout(late)
  })
  return stalled
}

/** Some rows of a short list; undefined if they are too large to be read at once. */
async function shortRows ({ selectPiece }: Lists, run: Run, parts: Part[], count: number) {
  const rows: Row[] = []
  for (const part of parts) {
    const found = await run(selectPiece(part, count - rows.length))
    if (found.length === 0 && (await run(selectPiece(part, 1))).length > 0) return
    rows.push(...found)
    if (rows.length === count) break
  }
  return rows
}

/** Parts in windows, each of which a statement can read without delaying other requests. They must be read before the deadline. */
async function * windowsOf ({ selectPlaces, placeOf }: Lists, run: Run, parts: Part[], visitsOf: (part: Part) => number, deadline = Infinity): AsyncGenerator<Part> {
  for (const part of parts) {
    let { after } = part
    do {
      const visits = visitsOf(part)
      const [end] = visits < Infinity ? await run(selectPlaces({ ...indexOnly(part) ?? part, after }, 1, visits - 1)) : []
      const until = end && placeOf(end, part.plan)
      yield { ...part, after, until }
      after = until
      if (after && Date.now() > deadline) throw new StoreUnavailableError(new Error('The query took too long'))
    } while (after)
  }
}

/** The place of the last of so many records, if there are more. */
async function lastPlace ({ selectPlaces, placeOf }: Lists, run: Run, windows: AsyncIterable<Part>, limit: number) {
  const places: Place[] = []
  for await (const window of windows) {
    places.push(...(await run(selectPlaces(window, limit + 1 - places.length))).map(row => placeOf(row, window.plan)))
    if (places.length > limit) return places[limit - 1]
  }
}

/** The rows in some windows, up to a limit, as many at once as are not too large together. */
async function * rowsOf ({ selectPiece, placeOf }: Lists, run: Run, windows: AsyncIterable<Part>, limit: number) {
  let [given, size] = [0, pieceSize]
  for await (let window of windows) {
    for (let isEnd = false; !isEnd && given < limit;) {
      const count = Math.min(size, limit - given)
      const rows = await run(selectPiece(window, count))
      const last = rows.at(-1)
      if (!last && count > 1) { // they are too large together, or there are no more
        size = Math.ceil(count / 4)
        continue
      }
      isEnd = rows.length < count
      size = Math.min(pieceSize, Math.ceil(count * 1.125)) // the next records are probably of the same size
      given += rows.length
      if (last) window = { ...window, after: placeOf(last, window.plan) }
      yield rows
    }
    if (given === limit) break
  }
}
