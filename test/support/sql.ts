import Database from 'libsql'
import pg from 'pg'

/** Runs SQL on another connection. */
export async function runSql (url: string, sql: string): Promise<Record<string, unknown>[]> {
  if (url.startsWith('sqlite:')) {
    const database = new Database(url.slice('sqlite:'.length), { timeout: 5000 })
    try {
      return database.prepare(sql).all() as Record<string, unknown>[]
    } finally {
      database.close()
    }
  }
  const client = new pg.Client(url)
  await client.connect()
  try {
    return (await client.query(sql)).rows
  } finally {
    await client.end()
  }
}
