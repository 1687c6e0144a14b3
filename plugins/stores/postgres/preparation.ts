import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { StartupError } from '../../common/startup.js'
import type { EngineOptions } from '../engine.js'
import type { Connection } from '../sql/connection.js'
import { prepareTables } from '../sql/schema-changes.js'
import { tableFor } from '../sql/tables.js'
import { connectionOn, refuseReadOnly } from './pool.js'
import { codeOf } from './postgres-errors.js'

/** What another instance that starts or writes meanwhile causes: the transaction starts again. */
const repeatable = /^(40001|40P01|23505|42P07|42710)$/

/** Checks the database, and creates and changes its tables. */
export async function prepareDatabase (client: pg.Client, options: EngineOptions) {
  try {
    await client.connect()
    await refuseReadOnly(client)
    await checkSettings(client, options)
    const tables = Array.from(options.collections.values(), tableFor)
    await prepareTables(work => schemaTransaction(client, options.timeout, work), tables, options)
  } finally {
    await client.end().catch(() => {})
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

/** Runs a transaction of a schema change. */
async function schemaTransaction<R> (client: pg.Client, timeout: number, work: (connection: Connection) => Promise<R>) {
  for (let attempts = 1; ; attempts++) {
    try {
      await client.query(`begin isolation level read committed; set local lock_timeout = ${timeout}`)
      const result = await work(connectionOn(client))
      await client.query('commit')
      return result
    } catch (error) {
      await client.query('rollback').catch(() => {}) // the connection may be lost
      if (attempts === 5 || !repeatable.test(codeOf(error))) throw error
      await sleep(Math.random() * 100)
    }
  }
}
