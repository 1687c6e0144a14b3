import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { StartupError } from '../../startup.js'
import { batches } from '../batches.js'
import type { Collection } from '../collection.js'
import type { Engine, EngineOptions, Reader, Transaction, TransactionOptions } from '../engine.js'
import type { Connection, RowStatement } from '../sql/connection.js'
import { SqlReader } from '../sql/reader.js'
import { prepareTables } from '../sql/schema-changes.js'
import { tableFor } from '../sql/tables.js'
import { SqlTransaction } from '../sql/transaction.js'
import { StoreUnavailableError } from '../store-errors.js'
import type { Id, MaybePromise } from '../store.js'
import { connectionOn, dialect, openPool, refuseReadOnly } from './pool.js'
import { codeOf, isUnreachable, startupError } from './postgres-errors.js'

/** How the requests of a collection read and write. */
interface Lane {
  whenFree: ReturnType<typeof limited>
  first (id: Id): Promise<string | undefined>
}

/** Opens a PostgreSQL database, which several instances can use. */
export async function postgres (url: string, options: EngineOptions): Promise<Engine> {
  const { collections, timeout, poolSize, log } = options
  const pool = await openPool(url, options)
  const lanes = new Map<Collection, Lane>()
  let prepared: Promise<void> | undefined

  return {
    start,
    check,
    reader: {
      first: (collection, id) => laneOf(collection).first(id),
      whole: () => undefined,
      piece: (collection, range) => read(collection, reader => reader.piece(collection, range)),
      summarize: (collection, plan, summary) => read(collection, reader => reader.summarize(collection, plan, summary)),
      count: (collection, plan) => read(collection, reader => reader.count(collection, plan)),
      lastPosition: collection => read(collection, reader => reader.lastPosition(collection))
    },
    transaction,
    connections: pool.usage,
    close: pool.end
  }

  /** Prepares the tables. If the server cannot be used at the moment, the first operation tries again. */
  async function start () {
    await whenPrepared().catch(error => {
      if (!(error instanceof StoreUnavailableError)) throw error
      log?.warn(`The database is unavailable: ${(error.cause as Error).message}`)
    })
  }

  async function whenPrepared () {
    prepared ??= prepare()
    try {
      await prepared
    } catch (error) {
      prepared = undefined
      throw isUnreachable(error) ? new StoreUnavailableError(error) : startupError(error)
    }
  }

  async function prepare () {
    const client = pool.newClient()
    try {
      await client.connect()
      await refuseReadOnly(client)
      await checkSettings(client, options)
      const tables = Array.from(collections.values(), tableFor)
      await prepareTables(work => schemaTransaction(client, timeout, work), tables, options)
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Writes, and compares the schemas with those of the database, because a newer release may have changed them. */
  async function check () {
    await whenPrepared()
    await pool.transaction(Date.now() + timeout, async ({ run }) => {
      const [current] = await Promise.all([
        run('select name, digest from collections'),
        run(
          `insert into idempotency_keys (key, collection, digest, response, at) values ('', '', '', $1, 0)
          on conflict (key, collection) do update set response = excluded.response`,
          [String(Math.random()).repeat(400)]
        ),
        run('commit')
      ])
      const digests = new Map(current.map(({ name, digest }) => [name, digest]))
      for (const collection of collections.values()) {
        const { name, digest } = tableFor(collection)
        if (digests.get(name) !== digest) throw new StoreUnavailableError(new Error(`${name} has a newer schema`))
      }
    })
  }

  async function transaction<R> (work: (transaction: Transaction) => Promise<R>, options: TransactionOptions) {
    const { deadline, collection } = options
    await whenPrepared()
    const run = () => pool.transaction(deadline, async connection => {
      const transaction = new SqlTransaction(connection)
      const result = await work(transaction)
      await Promise.all([transaction.written(), connection.run('commit')])
      return result
    })
    return collection ? laneOf(collection).whenFree(run) : run()
  }

  async function read<R> (collection: Collection, work: (reader: Reader) => MaybePromise<R>) {
    await whenPrepared()
    return laneOf(collection).whenFree(() => pool.read(async connection => work(new SqlReader(connection))))
  }

  /** A collection uses at most half of the connections, so that a lock on its table does not stop other collections. */
  function laneOf (collection: Collection): Lane {
    const lane = lanes.get(collection) ?? {
      whenFree: limited(Math.max(1, Math.floor(poolSize / 2))),
      first: batches((ids: Id[]) => firstRecords(collection, ids), { timeout, concurrency: 2 })
    }
    lanes.set(collection, lane)
    return lane
  }

  /** The records of requests that arrive together. */
  async function firstRecords (collection: Collection, ids: Id[]) {
    await whenPrepared()
    const { table, columns } = tableFor(collection)
    const type = columns.find(({ field }) => field === 'id')?.type ?? 'integer'
    const write = (): RowStatement => ({
      columns: { n: 'int', id: dialect.types[type] },
      text: given => `select (select record from ${table} where id = ${given.of('id')} order by position limit 1)
        ${given.table('from')} order by n`
    })
    const rows = await laneOf(collection).whenFree(() => pool.read(async ({ runFor }) =>
      runFor(`first ${collection.name}`, ids.map((id, n) => [n, id]), write)))
    return rows.map(({ record }) => ({ response: record as string ?? undefined }))
  }
}

/** Returns a function that runs at most so much work at once. */
function limited (max: number) {
  const waiting: (() => void)[] = []
  let free = max

  return async function whenFree<R> (work: () => Promise<R>) {
    if (free > 0) free--
    else await new Promise<void>(resolve => waiting.push(resolve))
    try {
      return await work()
    } finally {
      const next = waiting.shift()
      if (next) next()
      else free++
    }
  }
}

async function checkSettings (client: pg.Client, { log }: EngineOptions) {
  const { rows: [row] } = await client.query(`select current_setting('server_encoding') as encoding,
    current_setting('synchronous_commit') as commit, current_setting('synchronous_standby_names') as standbys`)
  const { encoding, commit, standbys } = row
  if (encoding !== 'UTF8') {
    throw new StartupError(`The database in the option store has the encoding ${encoding}. ` +
      'Create a database with the encoding UTF8.')
  }
  if (commit === 'off') log?.warn('synchronous_commit is off: PostgreSQL can lose acknowledged writes when it crashes')
  if (commit === 'local' && standbys) {
    log?.warn('synchronous_commit is local: a failover can lose acknowledged writes, ' +
      'because they do not wait for the standby')
  }
}

/** Runs a transaction of a schema change. It starts again if it conflicts with others that start or write meanwhile. */
async function schemaTransaction<R> (client: pg.Client, timeout: number, work: (connection: Connection) => Promise<R>) {
  for (let attempts = 1; ; attempts++) {
    try {
      await client.query(`begin isolation level read committed; set local lock_timeout = ${timeout}`)
      const result = await work(connectionOn(client))
      await client.query('commit')
      return result
    } catch (error) {
      await client.query('rollback')
      if (attempts === 5 || !/^(40001|40P01|23505|42P07|42710)$/.test(codeOf(error))) throw error
      await sleep(Math.random() * 100)
    }
  }
}
