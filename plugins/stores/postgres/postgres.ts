import type { Collection, Collections } from '../collection.js'
import type { Engine, EngineOptions, Reader, Transaction, TransactionOptions } from '../engine.js'
import type { Connection } from '../sql/connection.js'
import { SqlReader } from '../sql/reader.js'
import { tableFor } from '../sql/tables.js'
import { SqlTransaction } from '../sql/transaction.js'
import { StoreUnavailableError } from '../store-errors.js'
import type { MaybePromise } from '../store.js'
import { lanes } from './lanes.js'
import { openPool } from './pool.js'
import { isUnreachable, startupError } from './postgres-errors.js'
import { prepareDatabase } from './preparation.js'

/** Opens a PostgreSQL database, which several instances can use. */
export async function postgres (url: string, options: EngineOptions): Promise<Engine> {
  const { collections, timeout, poolSize, log } = options
  const pool = await openPool(url, options)
  const laneOf = lanes({ pool, poolSize, timeout, whenPrepared })
  let prepared: Promise<void> | undefined

  return {
    start,
    check,
    reader: { ...readerWith(read), first: (collection, id) => laneOf(collection).first(id) },
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
    prepared ??= prepareDatabase(pool.newClient(), options)
    try {
      await prepared
    } catch (error) {
      prepared = undefined
      throw isUnreachable(error) ? new StoreUnavailableError(error) : startupError(error)
    }
  }

  async function check () {
    await whenPrepared()
    await pool.transaction(Date.now() + timeout, connection => probe(connection, collections))
  }

  async function transaction<R> (work: (transaction: Transaction) => Promise<R>, options: TransactionOptions) {
    const { deadline, collection } = options
    await whenPrepared()
    const inPool = () => pool.transaction(deadline, async connection => {
      const transaction = new SqlTransaction(connection)
      const result = await work(transaction)
      await Promise.all([transaction.written(), connection.run('commit')])
      return result
    })
    return collection ? laneOf(collection).whenFree(inPool) : inPool()
  }

  async function read<R> (collection: Collection, work: (reader: Reader) => MaybePromise<R>) {
    await whenPrepared()
    return laneOf(collection).whenFree(() => pool.read(async connection => work(new SqlReader(connection))))
  }
}

type Read = <R>(collection: Collection, work: (reader: Reader) => MaybePromise<R>) => Promise<R>

function readerWith (read: Read): Omit<Reader, 'first'> {
  return {
    keptList: () => undefined,
    piece: (collection, range) => read(collection, reader => reader.piece(collection, range)),
    summarize: (collection, plan, summary) => read(collection, reader => reader.summarize(collection, plan, summary)),
    count: (collection, plan) => read(collection, reader => reader.count(collection, plan)),
    lastPosition: collection => read(collection, reader => reader.lastPosition(collection))
  }
}

/** Writes, and compares the schemas with those of the database, because a newer release may have changed them. */
async function probe ({ run }: Connection, collections: Collections) {
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
}
