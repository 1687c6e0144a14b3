import { readFileSync } from 'node:fs'
import pg from 'pg'
import tap, { test, type Test } from 'tap'
import { Item } from '../../schemas/item.js'
import { newFolder } from './folder.js'
import { startPostgres, type Postgres } from './postgres.js'
import { openSqlite, query, runSql } from './sql.js'

export const postgres = await startPostgres(tap)

interface TestDatabase {
  url: string
  /** Runs SQL on another connection. */
  sql (sql: string): Promise<Record<string, unknown>[]>
  /** Kills the server, if there is one, and starts it again. */
  crash (): Promise<void>
  /** The number of transactions that have written items. */
  transactions (): Promise<number>
  /** SQL that makes the database reject negative prices. */
  refuseNegative: string
  /** SQL that creates items with ids from 2 to this one, whose names have this length. */
  itemsTo (last: number, length?: number): string
  /** The number of lists with an open transaction. */
  openLists (): Promise<number>
  /** Blocks writes of items until the returned function is called. */
  hold (): Promise<() => Promise<void>>
}

/** Runs a test on a new SQLite file and on a new PostgreSQL database. */
export function onDatabases (name: string, run: (t: Test, database: TestDatabase) => Promise<void>) {
  test(`on SQLite, ${name}`, async t => {
    const path = `${newFolder(t)}/items.db`
    await run(t, {
      url: `sqlite:${path}`,
      sql: sql => runSql(`sqlite:${path}`, sql),
      crash: async () => {},
      transactions: async () => commits(readFileSync(`${path}-wal`)),
      refuseNegative: 'create trigger refuse before insert on items when new.price < 0 begin select raise(abort, \'negative\'); end',
      openLists: async () => {
        const database = openSqlite(path, 0)
        try {
          // A WAL can be truncated only if no transaction reads from it.
          database.exec('create table if not exists probe (n); insert into probe values (1)')
          return Number(query(database, 'pragma wal_checkpoint(truncate)')[0]?.busy)
        } finally {
          database.close()
        }
      },
      hold: async () => {
        const database = openSqlite(path, 5000)
        database.exec('begin immediate')
        return async () => {
          database.exec('commit')
          database.close()
        }
      },
      itemsTo: (last, length = 1600) => `
        insert into items (id, name, price)
        with recursive n (n) as (select 2 union all select n + 1 from n where n < ${last}) select n, printf('%-${length}s', n), n + 0.25 from n`
    })
  })

  onPostgres(name, async (t, server) => {
    const url = server.database()
    const sql = (sql: string) => server.query(sql, url)
    await run(t, {
      url,
      sql,
      crash: server.crash,
      transactions: async () => Number((await sql('select count(distinct xmin::text) from items'))[0]?.count),
      openLists: async () => {
        const [row] = await sql("select count(distinct pid) from pg_locks where relation = 'items'::regclass")
        return Number(row?.count)
      },
      refuseNegative: 'alter table items add check (price >= 0)',
      hold: async () => {
        const client = new pg.Client(url)
        await client.connect()
        await client.query('begin; lock table items in exclusive mode')
        return async () => {
          await client.query('commit')
          await client.end()
        }
      },
      itemsTo: (last, length = 1600) => `insert into items (id, name, price) select n, rpad(n::text, ${length}), n + 0.25 from generate_series(2, ${last}) as n`
    })
  })
}

/** Runs a test on the PostgreSQL server. */
export function onPostgres (name: string, run: (t: Test, server: Postgres) => Promise<void>) {
  test(`on PostgreSQL, ${name}`, { skip: !postgres && 'PostgreSQL does not start' }, async t => {
    if (postgres) await run(t, postgres)
  })
}

export const item = (id: number, price = 1.5) => ({ id, name: `number ${id}`, price })
export const things = { name: 'things', schema: Item, seed: [item(1)] }
export const unavailable = { code: 'ERR_STORE_UNAVAILABLE' }

/** The number of WAL frames that commit a transaction: they contain the size of the database. */
function commits (log: Buffer) {
  const pageSize = log.readUInt32BE(8)
  let count = 0
  for (let at = 32; at < log.length; at += 24 + pageSize) if (log.readUInt32BE(at + 4) > 0) count++
  return count
}
