import type { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { loadOptional, StartupError } from '../../startup.js'
import { digestOf } from '../digests.js'
import { StoreUnavailableError } from '../errors.js'
import type { EngineOptions } from '../store.js'

export type Connections = Awaited<ReturnType<typeof openConnections>>

/** A client that sends a statement without waiting for the result of the previous one. */
export interface Client {
  /** Runs a statement, whose text is always the same, and returns its rows as arrays. */
  run (text: string, ...values: unknown[]): Promise<unknown[][]>
  /** Runs a statement and returns the number of rows that it has written. */
  write (text: string, ...values: unknown[]): Promise<number>
}

/** Opens a pool of connections, each of which is checked to be able to write. */
export async function openConnections (url: string, { timeout, poolSize, onUnavailable }: EngineOptions) {
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

  // A plan that was made for an empty table is kept. All statements of transactions have an index, which must be used.
  const off = ['seqscan', 'hashjoin', 'mergejoin'].map(name => `set local enable_${name} = off`)
  const begin = ['begin', `set local lock_timeout = ${timeout}`, ...off].join(';')

  return {
    transaction,
    read,
    newClient: () => new pg.Client(login).on('error', () => {}),
    usage: () => ({ used: pool.totalCount - pool.idleCount, idle: pool.idleCount, waiting: pool.waitingCount }),
    end: () => pool.end()
  }

  /** A read does not wait longer for a lock, so that a locked table does not take all connections. */
  async function onConnect (client: pg.ClientBase) {
    await client.query(`set lock_timeout = ${timeout}`)
    await refuseReadOnly(client)
  }

  async function read (text: string, values: unknown[], isPlain: boolean) {
    try {
      const client = await pool.connect()
      try {
        const name = isPlain ? nameOf(text) : undefined
        const { rows } = await client.query<unknown[]>({ text, values, name, rowMode: 'array' })
        client.release()
        return rows
      } catch (error) {
        client.release(isBroken(error))
        throw error
      }
    } catch (error) {
      throw failure(error)
    }
  }

  /** Runs work in a transaction. It starts again after what another transaction has done meanwhile. */
  async function transaction<R> (deadline: number, work: (client: Client) => Promise<R>) {
    for (;;) {
      try {
        return await attempt(work)
      } catch (error) {
        if (!/^(40001|40P01|23505|23503|25006)$/.test(codeOf(error)) || Date.now() > deadline) throw failure(error)
        await sleep(Math.random() * 20)
      }
    }
  }

  async function attempt<R> (work: (client: Client) => Promise<R>) {
    const client = await pool.connect()
    try {
      const begun = client.query(begin)
      const result = await Promise.all([begun, work(clientOf(client))])
      client.release()
      return result[1]
    } catch (error) {
      // The rollback follows all statements, so that none is in progress when the connection is used again.
      if (isBroken(error)) client.release(true)
      else client.query('rollback').then(() => client.release(), lost => client.release(lost))
      throw error
    }
  }

  /** Converts errors that may be temporary: those of the connection, which have no code, and some of the server. */
  function failure (error: unknown) {
    if (error instanceof StoreUnavailableError) onUnavailable?.(error.cause)
    const isOfHost = error instanceof Error && 'code' in error && !('severity' in error) && !('syscall' in error)
    if (isOfHost || !temporary.test(codeOf(error))) return error
    onUnavailable?.(error)
    return new StoreUnavailableError(error)
  }
}

/** The codes of errors that may be temporary. 42703: a newer release has removed a column. */
const temporary = /^(|(08|25|26|28|3D|40|53|55|57|58)...|235..|42703)$/

function clientOf (client: pg.PoolClient): Client {
  const query = (text: string, values: unknown[]) => {
    // Statements of the same turn are sent together.
    const { stream } = (client as pg.PoolClient & { connection: { stream: Writable } }).connection
    stream.cork()
    process.nextTick(() => stream.uncork())
    return client.query<unknown[]>({ text, values, rowMode: 'array', name: nameOf(text) })
  }
  return {
    run: async (text, ...values) => (await query(text, values)).rows,
    write: async (text, ...values) => Number((await query(text, values)).rowCount)
  }
}

const names = new Map<string, string>()

/** The name of a prepared statement. */
function nameOf (text: string) {
  const name = names.get(text) ?? digestOf(text).slice(0, 16)
  names.set(text, name)
  return name
}

/** Whether a connection cannot be used any more: it is lost, or leads to a server that does not write. */
function isBroken (error: unknown) {
  return !(error instanceof Error && 'severity' in error && error.severity === 'ERROR') || codeOf(error) === '25006'
}

/** The code of an error that the server has sent. */
export function codeOf (error: unknown) {
  return error instanceof Error && 'severity' in error && 'code' in error ? String(error.code) : ''
}

export async function refuseReadOnly (client: pg.ClientBase) {
  const { rows: [row] } = await client.query({ text: 'show transaction_read_only', rowMode: 'array' })
  if (row?.[0] === 'on') throw new Error('The server in the option store is read-only (a standby)')
}

/** The driver does not support several hosts, and reports an invalid URL with its password. A socket needs no host. */
function checkUrl (url: string) {
  if (/^\w+:\/\/([^/?#@]*@)?[^/?#@]*,/.test(url)) {
    throw new StartupError('The option store must have one host, because the driver does not support several. ' +
      'Use the address of HAProxy or PgBouncer, or a virtual IP address, that leads to the primary.')
  }
  if (URL.canParse(url.replace('@/', '@localhost/'))) return
  throw new StartupError('The option store is not a valid URL. ' +
    'Percent-encode special characters in the user name and password, such as %23 for #.')
}

/** Returns whether a server cannot be used at the moment: it is not reachable, busy, or a table is locked. */
export function isUnreachable (error: unknown): boolean {
  if (error instanceof StartupError) return false
  if (codeOf(error)) return /^(08|40|53|57|55P03)/.test(codeOf(error))
  // A host name with several addresses fails with one error for each address.
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  const { syscall, message } = first as NodeJS.ErrnoException
  return syscall !== undefined || /timeout|terminated|read-only/i.test(message)
}

/** Turns errors that a restart would not solve into a message for the operator. */
export function startupError (error: unknown) {
  const { message } = error as Error
  switch (codeOf(error)) {
    case '42P07': return new StartupError(`Cannot create the tables in the option store: ${message}, ` +
      'and this service has not created it. Use another database or a separate schema (docs/persistence.md#schemas).')
    case '42501': return new StartupError(
      `The role in the option store lacks a privilege: ${message}. See docs/persistence.md#privileges.`)
    default: return error
  }
}
