import pg from 'pg'
import { batch } from './batch.js'
import { digestOf, expiredBefore, oneCallPerKey, type KeyUse } from './idempotency.js'
import {
  hasId, IdempotencyKeyInUseError, IdempotencyKeyReusedError, maxCountedId, NoIdLeftError, stalledListTimeouts, StoreUnavailableError, NotStorableError,
  type Collection, type Engine, type EngineOptions, type HasId, type NewRecord, type Store
} from './store.js'
import { idempotencyTable, lastIdsTable, migrate, tableOf, type Snapshot, type Row } from './sql-table.js'

/** pg returns a bigint as text. Our values are safe integers, so they become numbers. */
const types = {
  getTypeParser: (oid: number) => oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid)
}

/** Connects to PostgreSQL. Any number of instances can share a database. */
export async function postgres (url: string, { timeout, poolSize, onUnavailable }: EngineOptions): Promise<Engine> {
  const login = { connectionString: url, connectionTimeoutMillis: timeout, application_name: 'fastify-items-users', types }
  // The server cancels a statement that takes too long. If the server hangs, the client gives up.
  const limits = {
    ...login,
    statement_timeout: timeout,
    query_timeout: timeout,
    idle_in_transaction_session_timeout: timeout * stalledListTimeouts * 2
  }
  const queries = new pg.Pool({ ...limits, max: Math.ceil(poolSize / 2) })
  // A long list holds its connection while the client reads, so lists have their own pool.
  const lists = new pg.Pool({ ...limits, max: Math.max(1, Math.floor(poolSize / 2)) })
  for (const pool of [queries, lists]) {
    // A lost connection fails its query. If it is idle, the pool replaces it.
    pool.on('error', () => {})
    pool.on('connect', client => client.on('error', () => {}))
  }

  return { open, check, connections, close }

  async function open<T extends HasId> (collection: Collection<T>): Promise<Store<T>> {
    const { name, seed } = collection
    const { table, types, columns, definition, encode, sizeOf, valuesOf, encodeRow, checkText, pieceSelection, endSelection, sizeSelection, shortPage, longPage } = tableOf(collection)
    const given = `
      unnest(${types.map((type, n) => `$${n + 1}::${type}[]`).join(', ')}) with ordinality as given (${columns}, position)`
    const insertGiven = {
      name: `insert ${table}`,
      text: `insert into ${table} (${columns}) select ${columns} from ${given} order by position`
    }
    // The row lock on the counter serializes inserts with generated ids.
    const insertNumbered = {
      name: `number ${table}`,
      text: `
        with _last as (select id from last_ids where collection = '${name}' for update),
        _following as (
          select generate_series(
            1 + greatest(id, (select max(id) from ${table} where id <= ${maxCountedId})), ${Number.MAX_SAFE_INTEGER}) as id
          from _last
        ),
        _free as (
          select id from _following where (select count(*) from ${table} as taken where taken.id = _following.id) = 0
          limit cardinality($1::${types[0]}[])
        ),
        _counted as (update last_ids set id = greatest(id, (select max(id) from _free)) where collection = '${name}'),
        _numbers as (select id, row_number() over (order by id) as position from _free)
        insert into ${table} (${columns}) select ${columns.replace('"id"', '_numbers.id')}
        from ${given} join _numbers using (position) order by position returning id`
    }

    await inTransaction(async function createOrUpgrade (client) {
      const query = async (sql: string) => (await client.query(sql)).rows
      await query(`select ${lock('migrations')}`) // instances that start at the same time wait for each other
      const created = await migrate(query, collection, [
        `create table ${table} (position bigint generated always as identity primary key, ${definition})`,
        `create index on ${table} (id, position)`
      ])
      if (created) await client.query(insertGiven.text, columnsOf(seed))
      await migrate(query, idempotencyTable, idempotencyTable.creation)
      await migrate(query, lastIdsTable, lastIdsTable.creation)
      await query(`insert into last_ids select '${name}', 0 where not exists (select from last_ids where collection = '${name}')`)
    })

    const insert = inserterOf(insertGiven)
    const insertAndNumber = inserterOf(insertNumbered)

    const selectFirst = batch(async function selectAll (ids: number[]) {
      const { rows } = await query({
        name: `first ${table}`,
        text: `
          select found.*, asked.place from unnest($1::bigint[]) with ordinality as asked (id, place),
          lateral (select ${columns} from ${table} as t where t.id = asked.id order by position limit 1) as found`,
        values: [ids],
        rowMode: 'array'
      })
      const found = new Array<string | undefined>(ids.length)
      for (const row of rows) found[Number(row.at(-1)) - 1] = encodeRow(row)
      return found
    }, { concurrency: 2 })

    const deleteFirst = batch(async function deleteAll (ids: number[]) {
      // Two statements in one transaction: the second one sees the changes of previous holders of the lock.
      const results = await query(`
        select ${lock(collection.name)};
        with _asked as (select id, count(*) from unnest('{${ids}}'::bigint[]) as id group by id),
        _found as (
          select firsts.position from _asked,
          lateral (select position from ${table} as t where t.id = _asked.id order by position limit _asked.count) as firsts
        )
        delete from ${table} where position in (select position from _found) returning id`)
      const deleted = [results].flat().flatMap(({ rows }) => rows).map(({ id }) => id)
      return ids.map(id => {
        const n = deleted.indexOf(id)
        return n >= 0 && deleted.splice(n, 1).length === 1
      })
    })

    const selectPiece = { name: `piece ${table}`, text: pieceSelection('$1::bigint', '$2::int'), rowMode: 'array' as const }
    const selectEnd = { text: endSelection('$1::bigint', '$2::int'), rowMode: 'array' as const }

    return {
      append: oneCallPerKey<T>(async function append (record, key) {
        checkText(record)
        if (key !== undefined) return insertOnce(key, record)
        return hasId(record) ? insert(record) : insertAndNumber(record)
      }),

      async first (id) {
        return Number.isSafeInteger(id) ? selectFirst(id) : undefined
      },

      async list () {
        return (await page(Infinity)).list
      },

      page,

      async removeFirst (id) {
        return Number.isSafeInteger(id) && deleteFirst(id)
      },

      async size () {
        const { rows } = await query({ text: sizeSelection, rowMode: 'array' })
        return Math.round(Number(rows[0]))
      }
    }

    async function page (limit: number, after = 0) {
      const page = await shortPage(async (...values) => (await query({ ...selectPiece, values })).rows, limit, after)
      return page ?? longPage(await openSnapshot(), timeout * stalledListTimeouts, limit, after)
    }

    /** Inserts records in one statement. If one of them is rejected, it splits the batch to find out which. */
    function inserterOf (statement: { name: string, text: string }) {
      return batch(async function insertAll (records: NewRecord<T>[]): Promise<(string | Error)[]> {
        try {
          const { rows } = await query({ ...statement, values: columnsOf(records) })
          return records.map((record, n) => {
            const stored = withId(record, rows[n])
            return stored instanceof NoIdLeftError ? stored : encode(stored)
          })
        } catch (error) {
          if (!isRefusal(error)) throw error
          if (records.length === 1) return [refused()]
          const half = Math.ceil(records.length / 2)
          return [...await insertAll(records.slice(0, half)), ...await insertAll(records.slice(half))]
        }
      }, { sizeOf })
    }

    /** The record with its own id, or with the generated one. */
    function withId (record: NewRecord<T>, generated?: HasId) {
      if (hasId(record)) return record
      return generated ? { ...record, ...generated } : new NoIdLeftError()
    }

    /** Inserts a record while its transaction holds the lock of the key. If the key is locked, the call fails. */
    async function insertOnce (key: string, given: NewRecord<T>) {
      const digest = digestOf(encode(given))
      const record = await answer(withConnection(async client => {
        await client.query('begin')
        const { rows: [locked] } = await client.query('select pg_try_advisory_xact_lock(hashtextextended($1, 0)) as free',
          [`fastify-items-users ${name} ${key}`])
        const outcome = locked.free ? await insertOrRecall(client) : new IdempotencyKeyInUseError()
        await client.query('commit')
        return outcome
      }))
      if (record instanceof Error) throw record
      return encode(record)

      async function insertOrRecall (client: pg.PoolClient) {
        const { rows: [use] } = await client.query<KeyUse>(
          'select digest, id from idempotency_keys where collection = $1 and key = $2 and at >= $3', [name, key, expiredBefore()])
        if (use) return use.digest === digest ? { ...given, id: use.id } : new IdempotencyKeyReusedError()
        const statement = hasId(given) ? insertGiven : insertNumbered
        const { rows: [row] } = await client.query<HasId>({ ...statement, values: columnsOf([given]) })
        const record = withId(given, row)
        if (record instanceof NoIdLeftError) return record
        await client.query(`
          insert into idempotency_keys values ($1, $2, $3, $4, $5)
          on conflict (collection, key) do update set digest = excluded.digest, id = excluded.id, at = excluded.at`,
        [name, key, digest, record.id, Date.now()])
        await client.query(`
          delete from idempotency_keys where (collection, key) in (
            select collection, key from idempotency_keys where at < $1 order by at limit 10 for update skip locked)`,
        [expiredBefore()])
        return record
      }
    }

    function columnsOf (records: object[]) {
      const rows = records.map(valuesOf)
      return types.map((_, n) => rows.map(row => row[n]))
    }

    /** Starts a read transaction. It sees the collection as of now. */
    async function openSnapshot (): Promise<Snapshot> {
      // The pool has its own timeout. With a second one, a connection that arrives later would be lost.
      const client = await lists.connect().catch(error => { throw failure(error) })
      const free = () => { client.query('rollback').then(() => client.release(), error => client.release(error)) }
      try {
        // The first statement determines what the transaction sees.
        await answer(client.query('begin isolation level repeatable read read only; select 1'))
      } catch (error) {
        free()
        throw error
      }
      return {
        select: async (...values) => (await answer(client.query<Row>({ ...selectPiece, values }))).rows,
        selectEnd: async (...values) => (await answer(client.query<Row>({ ...selectEnd, values }))).rows,
        free
      }
    }
  }

  async function check () {
    await query('select 1')
  }

  function connections () {
    return { queries: poolUsage(queries), lists: poolUsage(lists) }
  }

  async function close () {
    await Promise.all([queries.end(), lists.end()])
  }

  function query (config: pg.QueryArrayConfig): Promise<pg.QueryArrayResult>
  function query (config: string | pg.QueryConfig): Promise<pg.QueryResult<HasId>>
  function query (config: string | pg.QueryConfig) {
    return answer(run(config))
  }

  /** Runs a query on a pooled connection. The connection is kept if only the statement failed. */
  async function run (config: string | pg.QueryConfig) {
    const client = await queries.connect()
    try {
      const result = await client.query(config)
      client.release()
      return result
    } catch (error) {
      client.release(!(error instanceof pg.DatabaseError && error.severity === 'ERROR'))
      throw error
    }
  }

  /** Runs several statements on one connection. If they fail, the connection is closed. */
  async function withConnection<R> (work: (client: pg.PoolClient) => Promise<R>) {
    const client = await queries.connect()
    try {
      const result = await work(client)
      client.release()
      return result
    } catch (error) {
      client.release(true)
      throw isRefusal(error) ? refused() : error
    }
  }

  /** Waits for a result, not longer than the timeout, and converts errors. */
  async function answer<R> (pending: Promise<R>) {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`The database did not answer within ${timeout} ms (DATABASE_TIMEOUT)`)), timeout)
    })
    return Promise.race([pending, late])
      .catch(error => { throw failure(error) })
      .finally(() => clearTimeout(timer))
  }

  /** Converts errors that may be temporary. Rejected data, invalid statements and internal errors of the server are not. */
  function failure (error: unknown) {
    if (isRefusal(error) || error instanceof NotStorableError || /^(42|XX)/.test(codeOf(error))) return error
    onUnavailable?.(error)
    return new StoreUnavailableError(error)
  }

  /** Uses its own connection without timeouts, because an upgrade can take long. */
  async function inTransaction (work: (client: pg.Client) => Promise<void>) {
    const client = new pg.Client(login)
    client.on('error', () => {})
    try {
      await client.connect()
      await client.query('begin')
      await work(client)
      await client.query('commit')
    } finally {
      await client.end()
    }
  }
}

/** An expression that waits for an advisory lock. The lock is held until the end of the transaction. */
function lock (name: string) {
  return `pg_advisory_xact_lock(hashtext('fastify-items-users'), hashtext('${name}'))`
}

function poolUsage ({ totalCount, idleCount, waitingCount }: pg.Pool) {
  return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount }
}

function refused () {
  return new NotStorableError('', 'is rejected by the database')
}

/** Returns whether the database rejects the data: because of its value, size, a constraint, a view or a trigger. */
function isRefusal (error: unknown) {
  return /^(22|23|44|54|P0)/.test(codeOf(error))
}

function codeOf (error: unknown) {
  return error instanceof pg.DatabaseError ? String(error.code) : ''
}
