import pg from 'pg'
import { grouped } from './grouped.js'
import { patience, Unavailable, Unstorable, type Collection, type Engine, type EngineLimits, type Identified, type Store } from './store.js'
import { migrate, tableOf, type Row } from './table.js'

/** An integer comes as text, since it might be too large for a number; ours are not. */
const types = {
  getTypeParser: (oid: number) => oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid)
}

/** Keeps collections in PostgreSQL, where many instances of the service can share them. */
export async function postgres (url: string, { timeout, connections }: EngineLimits): Promise<Engine> {
  const login = { connectionString: url, connectionTimeoutMillis: timeout, application_name: 'fastify-items-users', types }
  // The server ends a statement that takes too long; where the server itself hangs, the client does.
  const limits = {
    ...login,
    statement_timeout: timeout,
    query_timeout: timeout,
    idle_in_transaction_session_timeout: timeout * patience * 2
  }
  const queries = new pg.Pool({ ...limits, max: Math.ceil(connections / 2) })
  // A list keeps its connection for as long as its reader likes, so lists do not get all of them.
  const lists = new pg.Pool({ ...limits, max: Math.max(1, Math.floor(connections / 2)) })
  for (const pool of [queries, lists]) {
    // Who uses a connection learns of its loss by the query; when nobody does, the pool replaces it.
    pool.on('error', () => {})
    pool.on('connect', client => client.on('error', () => {}))
  }

  return { open, check, close }

  async function open<T extends Identified> (collection: Collection<T>): Promise<Store<T>> {
    const { start } = collection
    const { table, types, columns, definition, encode, sizeOf, valuesOf, encodeRow, checkText, pageSelection, shortList, longList } = tableOf(collection)
    const insertion = `
      insert into ${table} (${columns})
      select ${columns} from unnest(${types.map((type, n) => `$${n + 1}::${type}[]`).join(', ')})
      with ordinality as given (${columns}, position) order by position`

    await inTransaction(async function createOrUpgrade (client) {
      await client.query(`select ${lock('migrations')}`) // instances that start together take turns
      const created = await migrate(async sql => (await client.query(sql)).rows, collection, [
        `create table ${table} (position bigint generated always as identity primary key, ${definition})`,
        `create index on ${table} (id, position)`
      ])
      if (created) await client.query(insertion, columnsOf(start))
    })

    const insert = grouped(async function insertAll (records: T[]): Promise<(string | Error)[]> {
      try {
        await query({ name: `insert ${table}`, text: insertion, values: columnsOf(records) })
        return records.map(encode)
      } catch (error) {
        if (!isRefusal(error)) throw error
        if (records.length === 1) return [new Unstorable('', 'is refused by the database')]
        const half = Math.ceil(records.length / 2)
        return [...await insertAll(records.slice(0, half)), ...await insertAll(records.slice(half))]
      }
    }, { sizeOf })

    const selectFirst = grouped(async function selectAll (ids: number[]) {
      const { rows } = await query({
        name: `first ${table}`,
        text: `
          select found.*, place from unnest($1::bigint[]) with ordinality as asked (id, place),
          lateral (select ${columns} from ${table} as t where t.id = asked.id order by position limit 1) as found`,
        values: [ids],
        rowMode: 'array'
      })
      const found = new Array<string | undefined>(ids.length)
      for (const row of rows) found[Number(row.at(-1)) - 1] = encodeRow(row)
      return found
    }, { lanes: 2 })

    const deleteFirst = grouped(async function deleteAll (ids: number[]) {
      // Two statements that are one transaction: the second sees what those did who had the lock before.
      const results = await query(`
        select ${lock(collection.name)};
        with asked as (select id, count(*) from unnest('{${ids}}'::bigint[]) as id group by id),
        found as (
          select firsts.position from asked,
          lateral (select position from ${table} as t where t.id = asked.id order by position limit asked.count) as firsts
        )
        delete from ${table} where position in (select position from found) returning id`)
      const deleted = [results].flat().flatMap(({ rows }) => rows).map(({ id }) => id)
      return ids.map(id => {
        const n = deleted.indexOf(id)
        return n >= 0 && deleted.splice(n, 1).length === 1
      })
    })

    const selectPage = { name: `page ${table}`, text: pageSelection('$1::bigint', '$2::int'), rowMode: 'array' as const }

    return {
      async append (record) {
        checkText(record)
        return insert(record)
      },

      async first (id) {
        return Number.isSafeInteger(id) ? selectFirst(id) : undefined
      },

      async list () {
        const list = await shortList(async (...values) => (await query({ ...selectPage, values })).rows)
        return list ?? listByTransaction()
      },

      async removeFirst (id) {
        return Number.isSafeInteger(id) && deleteFirst(id)
      }
    }

    function columnsOf (records: T[]) {
      const rows = records.map(valuesOf)
      return types.map((_, n) => rows.map(row => row[n]))
    }

    /** Reads in a transaction, which sees the collection as of now. */
    async function listByTransaction () {
      // It has a time-out of its own; a connection that came after ours would be lost.
      const client = await lists.connect().catch(error => { throw failure(error) })
      const free = () => { client.query('rollback').then(() => client.release(), error => client.release(error)) }
      try {
        // The transaction sees what is there when it first looks.
        await answer(client.query('begin isolation level repeatable read read only; select 1'))
      } catch (error) {
        free()
        throw error
      }
      return longList(async (...values) => (await answer(client.query<Row>({ ...selectPage, values }))).rows, free, timeout * patience)
    }
  }

  async function check () {
    await query('select 1')
  }

  async function close () {
    await Promise.all([queries.end(), lists.end()])
  }

  function query (config: pg.QueryArrayConfig): Promise<pg.QueryArrayResult>
  function query (config: string | pg.QueryConfig): Promise<pg.QueryResult<Identified>>
  function query (config: string | pg.QueryConfig) {
    return answer(run(config))
  }

  /** As the query of the pool, but that a connection is kept where only the statement failed. */
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

  /** Waits for an answer, not longer than the time-out, and says what went wrong. */
  async function answer<R> (pending: Promise<R>) {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error('The database takes too long')), timeout)
    })
    return Promise.race([pending, late])
      .catch(error => { throw failure(error) })
      .finally(() => clearTimeout(timer))
  }

  /** Has a connection of its own, without limits: to migrate may take long. */
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

/** Waits until no other transaction has the lock of this name. */
function lock (name: string) {
  return `pg_advisory_xact_lock(hashtext('fastify-items-users'), hashtext('${name}'))`
}

/** What may pass is not a failure of the service; a refusal, a fault in a statement and one inside the server will not. */
function failure (error: unknown) {
  return isRefusal(error) || /^(42|XX)/.test(codeOf(error)) ? error : new Unavailable(error)
}

/** Whether data is refused: for what it is, by a constraint, a view or a trigger, or for its size. */
function isRefusal (error: unknown) {
  return /^(22|23|44|54|P0)/.test(codeOf(error))
}

function codeOf (error: unknown) {
  return error instanceof pg.DatabaseError ? String(error.code) : ''
}
