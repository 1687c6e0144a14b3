import { AsyncResource } from 'node:async_hooks'
import { batches } from '../batches.js'
import { changes, type Change } from '../changes.js'
import { referrersOf } from '../collection.js'
import type { Outcome, Rules } from '../facts.js'
import { insertOf, inserts, type Insert } from '../inserts.js'
import { lists } from '../lists.js'
import type { HasId, MaybePromise, Store } from '../store.js'
import { counter, entriesReader, type Statement } from './queries.js'
import type { Dialect, Table } from './tables.js'

/** What a store needs of a database. */
export interface Backend {
  dialect: Dialect
  timeout: number
  /** Runs a statement that reads, and returns its rows as arrays. */
  run (statement: Statement): MaybePromise<unknown[][]>
  first (id: number): MaybePromise<string | undefined>
  /** Decides a batch and writes in one transaction. It may start again with new rules. */
  transact (rules: () => Rules, deadline: number): Promise<Outcome[]>
}

/** The store of a collection in a database. */
export function databaseStore<T extends HasId> (tables: Map<string, Table>, table: Table, backend: Backend): Store<T> {
  const { collection } = table
  const { dialect, timeout, run, first, transact } = backend
  const insert = batches<Insert>((calls, deadline) =>
    transact(() => inserts(collection, calls), deadline), { timeout, sizeOf: ({ size }) => size })
  const change = batches<Change>((calls, deadline) =>
    transact(() => changes(collection, referrersOf(tables, table.name), calls), deadline), { timeout })
  const count = counter(table, dialect, run)
  const select = lists(collection, {
    entries: entriesReader(table, dialect, run),
    async lastPosition () {
      const [row] = await run({ text: `select max(position) from ${table.table}`, values: [], isPlain: true })
      return Number(row?.[0] ?? 0)
    }
  })

  return {
    schema: collection.schema,
    append: async (record, key, digest) => await insert(insertOf(collection, record, key, digest)) as string,
    appendAll: async (records, key, digest) => await insert(insertOf(collection, records, key, digest)) as string,
    first: id => Number.isSafeInteger(id) ? first(id) : undefined,
    select: query => select(query as object),
    async change (id, changeOf) {
      if (!Number.isSafeInteger(id)) return
      // It runs in the async context of its call, not in that of the batch.
      const context = new AsyncResource('change')
      return change({ id, change: current => context.runInAsyncScope(changeOf, undefined, current) })
    },
    count: async ({ where, limit }) => count(collection.plan({ where, limit }))
  }
}
