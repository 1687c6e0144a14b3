import tap, { test, type Test } from 'tap'
import { newFolder } from './folder.js'
import { startPostgres, type Postgres } from './postgres.js'
import { runSql } from './sql.js'

const postgres = await startPostgres(tap)

interface TestDatabase {
  url: string
  /** Runs SQL on another connection. */
  sql (sql: string): Promise<Record<string, unknown>[]>
}

/** Runs a test on a new SQLite file and on a new PostgreSQL database. */
export function onDatabases (name: string, run: (t: Test, database: TestDatabase) => Promise<void>) {
  const runOn = (t: Test, url: string) => run(t, { url, sql: sql => runSql(url, sql) })
  test(`on SQLite, ${name}`, t => runOn(t, `sqlite:${newFolder(t)}/items.db`))
  onPostgres(name, (t, server) => runOn(t, server.database()))
}

/** Runs a test on the PostgreSQL server. */
export function onPostgres (name: string, run: (t: Test, server: Postgres) => Promise<void>) {
  test(`on PostgreSQL, ${name}`, { skip: !postgres && 'PostgreSQL does not start' }, async t => {
    if (postgres) await run(t, postgres)
  })
}
