import { loadDriver } from '../../plugins/stores/sqlite/sqlite-driver.js'
import { query as queryPostgres } from './postgres.js'

/**
 * Opens a SQLite file with the driver of the service: two copies of SQLite in one process do not see the locks of each
 * other.
 */
export const openSqlite = await loadDriver()

/** Runs SQL on another connection. */
export async function runSql (url: string, sql: string): Promise<Record<string, unknown>[]> {
  if (!url.startsWith('sqlite:')) return queryPostgres(sql, url)
  const database = openSqlite(url.slice('sqlite:'.length), 5000)
  try {
    return database.prepare(sql).all() as Record<string, unknown>[]
  } finally {
    database.close()
  }
}
