import type { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { loadOptional, StartupError } from '../../common/startup.js'
import { digestOf } from '../collection.js'
import type { EngineOptions } from '../engine.js'
import type { Connection, Dialect, Input, ResultRow, RowStatement } from '../sql/connection.js'
import { StoreUnavailableError } from '../store-errors.js'
import { codeOf, failure, isBroken } from './postgres-errors.js'

export const dialect: Dialect = {
  types: { integer: 'bigint', number: 'double precision', string: 'text', boolean: 'boolean' },
  positionType: 'bigint',
  collation: ' collate "C"',
  parameter: n => `$${n}`,
  lock: clause => clause,
  nullsFirst: ' nulls first',
  hasForeignKeys: true,
  columns: `select attname as name from pg_attribute
    where attrelid = to_regclass(quote_ident($1)) and attnum > 0 and not attisdropped`
}

/** What another transaction has done meanwhile: the transaction starts again. */
const repeatable = /^(40001|40P01|23505|23503|25006)$/

/** Opens a pool of connections, each of which is checked to be able to write. */
export async function openPool (url: string, { timeout, poolSize }: Pick<EngineOptions, 'timeout' | 'poolSize'>) {
  checkUrl(url)
  const { default: pg } = await loadOptional('pg', 'store', () => import('pg'))
  // pg returns a bigint as text. Our values are safe integers, so they become numbers.
  const { builtins, getTypeParser } = pg.types
  const login = {
    connectionString: url,
    connectionTimeoutMillis: timeout,
    application_name: 'fastify-items-users',
    types: { getTypeParser: (oid: number) => oid === builtins.INT8 ? Number : getTypeParser(oid) }
  }
  const options = { ...login, query_timeout: timeout, max: poolSize, pipeline: true, keepAlive: true, onConnect }
  const pool = new pg.Pool(options)
  // A lost connection fails its query. If it is idle, the pool replaces it.
  pool.on('error', () => {}).on('connect', client => { client.on('error', () => {}) })

  return {
    ...accessTo(pool, timeout),
    newClient: () => new pg.Client(login).on('error', () => {}),
    usage: () => ({ used: pool.totalCount - pool.idleCount, idle: pool.idleCount, waiting: pool.waitingCount }),
    end: () => pool.end()
  }

  /** A standby is refused. A read does not wait longer for a lock, so that a locked table takes few connections. */
  async function onConnect (client: pg.ClientBase) {
    await client.query(`set lock_timeout = ${timeout}`)
    await refuseReadOnly(client)
  }
}

/** Reads and transactions, each with a connection of the pool. */
function accessTo (pool: pg.Pool, timeout: number) {
  const texts = new Map<string, string>()
  // A query plan for an empty table is kept. All statements of transactions have an index, which must be used.
  const off = ['seqscan', 'hashjoin', 'mergejoin'].map(name => `set local enable_${name} = off`)
  const begin = ['begin', `set local lock_timeout = ${timeout}`, ...off].join(';')
  return { read, transaction }

  async function read<R> (work: (connection: Connection) => Promise<R>) {
    const client = await pool.connect().catch(fail)
    try {
      const result = await work(connectionOn(client, texts))
      client.release()
      return result
    } catch (error) {
      client.release(isBroken(error))
      throw error
    }
  }

  /**
   * Runs work in a transaction. The work sends `commit` itself, together with its last statements. After one that has
   * failed, PostgreSQL rolls back instead.
   */
  async function transaction<R> (deadline: number, work: (connection: Connection) => Promise<R>) {
    for (;;) {
      try {
        return await attempt(work)
      } catch (error) {
        if (!repeatable.test(codeOf(error)) || Date.now() > deadline) throw error
        await sleep(Math.random() * 20)
      }
    }
  }

  async function attempt<R> (work: (connection: Connection) => Promise<R>) {
    const client = await pool.connect().catch(fail)
    try {
      const begun = client.query(begin).catch(fail)
      const [, result] = await Promise.all([begun, work(connectionOn(client, texts))])
      client.release()
      return result
    } catch (error) {
      // The rollback follows all statements, so that none is in progress when the connection is used again.
      if (isBroken(error)) client.release(true)
      else client.query('rollback').then(() => client.release(), lost => client.release(lost))
      throw error
    }
  }
}

function fail (error: unknown): never {
  throw failure(error)
}

/** Statements on a client. Those of the same turn of the event loop are sent together. */
export function connectionOn (client: pg.ClientBase, texts = new Map<string, string>()): Connection {
  const { stream } = (client as pg.ClientBase & { connection: { stream: Writable } }).connection
  return {
    dialect,
    run,
    one: async (text, values, options) => (await run(text, values, options))[0],
    async runFor (name, rows, write, values = []) {
      if (rows.length === 0) return []
      const text = texts.get(name) ?? textOf(write(), values.length)
      texts.set(name, text)
      const columns = rows[0]?.map((_, n) => rows.map(row => row[n])) ?? []
      return run(text, [...columns, ...values])
    }
  }

  async function run (text: string, values: unknown[] = [], { isPrepared = true } = {}): Promise<ResultRow[]> {
    stream.cork()
    process.nextTick(() => stream.uncork())
    const { rows } = await client.query({ text, values, ...isPrepared && { name: nameOf(text) } }).catch(fail)
    return rows
  }
}

function textOf ({ columns, text }: RowStatement, values: number) {
  const names = Object.keys(columns)
  const arrays = Object.values(columns).map((type, n) => `$${n + 1}::${type}[]`)
  const parameters = Array.from({ length: values }, (_, n) => `$${names.length + n + 1}`)
  const table = `unnest(${arrays}) as input (${names})`
  const input: Input = { column: name => `input.${name}`, table: (before, after = '') => `${before} ${table}${after}` }
  return text(input, ...parameters)
}

const names = new Map<string, string>()

/** The name of a prepared statement. */
function nameOf (text: string) {
  const name = names.get(text) ?? digestOf(text).slice(0, 16)
  names.set(text, name)
  return name
}

export async function refuseReadOnly (client: pg.ClientBase) {
  const { rows: [row] } = await client.query('show transaction_read_only')
  if (row.transaction_read_only === 'on') {
    throw new StoreUnavailableError(new Error('The server in the option store is read-only (a standby)'))
  }
}

/** The driver does not support several hosts, and reports an invalid URL with its password. A socket needs no host. */
function checkUrl (url: string) {
  if (URL.canParse(url.replace('@/', '@localhost/'))) return
  throw new StartupError('The option store is not a valid URL with one host. ' +
    'Percent-encode special characters in the user name and password, such as %23 for #.')
}
