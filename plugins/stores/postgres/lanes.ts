import { batches } from '../batches.js'
import type { Collection } from '../collection.js'
import type { RowStatement } from '../sql/connection.js'
import { tableFor } from '../sql/tables.js'
import type { Id } from '../store.js'
import { tooLate } from '../time-limits.js'
import { dialect, type openPool } from './pool.js'

/** The share of a collection in the connections, and its batches of reads. */
export interface Lane {
  whenFree: ReturnType<typeof limited>
  first (id: Id): Promise<string | undefined>
}

interface LaneOptions {
  pool: Awaited<ReturnType<typeof openPool>>
  poolSize: number
  timeout: number
  whenPrepared (): Promise<void>
}

/** A collection uses at most half of the connections, so that a lock on its table does not stop other collections. */
export function lanes ({ pool, poolSize, timeout, whenPrepared }: LaneOptions) {
  const known = new Map<Collection, Lane>()

  return function laneOf (collection: Collection): Lane {
    const lane = known.get(collection) ?? newLane(collection)
    known.set(collection, lane)
    return lane
  }

  function newLane (collection: Collection): Lane {
    const whenFree = limited(Math.max(1, Math.floor(poolSize / 2)), timeout)
    const write = () => firstStatement(collection)

    /** The records of requests that arrive together. */
    async function firstRecords (ids: Id[]) {
      await whenPrepared()
      const rows = await whenFree(() => pool.read(async ({ runFor }) =>
        runFor(`first ${collection.name}`, ids.map((id, n) => [n, id]), write)))
      return rows.map(({ record }) => ({ response: record as string ?? undefined }))
    }

    return { whenFree, first: batches(firstRecords, { timeout, concurrency: 2 }) }
  }
}

/** Finds the first record with each id, in the order of the ids. */
function firstStatement (collection: Collection): RowStatement {
  const { table, columns } = tableFor(collection)
  const type = columns.find(({ field }) => field === 'id')?.type ?? 'integer'
  return {
    columns: { n: 'int', id: dialect.types[type] },
    text: input => `select
      (select record from ${table} where id = ${input.column('id')} order by position limit 1) as record
      ${input.table('from')} order by n`
  }
}

/** Returns a function that runs at most so much work at once. Work that has waited too long does not start. */
function limited (max: number, timeout: number) {
  const waiting: (() => void)[] = []
  let free = max

  return async function whenFree<R> (work: () => Promise<R>) {
    const deadline = Date.now() + timeout
    if (free > 0) free--
    else await new Promise<void>(resolve => waiting.push(resolve))
    try {
      if (Date.now() > deadline) throw tooLate()
      return await work()
    } finally {
      const next = waiting.shift()
      if (next) next()
      else free++
    }
  }
}
