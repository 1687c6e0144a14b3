import { connect as connectSocket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { loadOptional, StartupError } from '../../startup.js'
import { limited } from '../batch.js'
import { NotStorableError, rejection, StoreUnavailableError } from '../errors.js'
import type { Row } from '../sql/database.js'
import { stalledListTimeouts } from '../sql/lists.js'
import { openLists } from '../sql/open-lists.js'
import type { Statement as ListStatement } from '../sql/queries.js'
import type { EngineOptions } from '../store.js'
import { lock } from './statements.js'

/** A client with the properties that the types of pg do not have. */
type BackendClient = pg.PoolClient & { host?: string, port?: number, processID?: number, secretKey?: number }

type Statement = pg.QueryConfig | (() => pg.QueryConfig)

/** Connects to PostgreSQL. `prepare` creates the tables, in a transaction before the first statement. */
export async function connectPostgres (url: string, { timeout, poolSize, deadline: deadlineOfRequest, onUnavailable }: EngineOptions, prepare: (client: pg.Client) => Promise<void>) {
  // The driver does not support several hosts, and would report a URL that it cannot parse with the password in it. A socket needs no host.
  if (/^\w+:\/\/([^/?#@]*@)?[^/?#@]*,/.test(url)) throw new StartupError('The option store must have one host, because the driver does not support several. Use the address of HAProxy or PgBouncer, or a virtual IP address, that leads to the primary.')
  if (!URL.canParse(url.replace('@/', '@localhost/'))) throw new StartupError('The option store is not a valid URL. Percent-encode special characters in the user name and password, such as %23 for #.')
  const { default: pg } = await loadOptional('pg', 'store', () => import('pg'))
  // pg returns a bigint as text. Our values are safe integers, so they become numbers.
  const types = { getTypeParser: (oid: number) => oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid) }
  const login = { connectionString: url, connectionTimeoutMillis: timeout, application_name: 'fastify-items-users', types }
  // A long list holds its connection while the client reads, so lists have their own pool.
  const pools = { queries: newPool(Math.ceil(poolSize / 2)), lists: newPool(Math.max(1, Math.floor(poolSize / 2))) }
  const { track, closeSlowest } = openLists(timeout)
  /** The connections that are not out of date. */
  let current = new WeakSet<pg.PoolClient>()
  let isPrepared = false
  let preparing: Promise<void> | undefined
  /** Whether prepared statements have names. Some connection poolers do not support that. */
  let usesNames = true

  return { start, write, ofCollection, openSnapshot, withTimeout, usage, close }

  /** Prepares the tables. If the server cannot be used at the moment, the first statement tries again. */
  async function start () {
    try {
      await prepareOnce()
    } catch (error) {
      if (!isUnreachable(error)) throw startupError(error)
      onUnavailable?.(error)
    }
  }

  function prepareOnce () {
    preparing ??= prepareTables().finally(() => { preparing = undefined })
    return preparing
  }

  async function prepareTables () {
    const client = new pg.Client(login)
    client.on('error', () => {})
    try {
      await client.connect()
      // A connection pooler may accept the login and then wait for a server, so the first statement has a limit. Upgrades have none.
      const limit = { query_timeout: timeout } // an option that the types of pg do not have
      await client.query({ text: `begin isolation level read committed; set local lock_timeout = ${timeout}`, ...limit })
      await client.query(`select ${lock('migrations', timeout)}`) // instances that start at the same time wait for each other
      await rejectReadOnly(client)
      await prepare(client)
      await client.query({ text: 'commit', ...limit }) // it may wait for a standby
      isPrepared = true
    } finally {
      await client.end().catch(() => {})
    }
  }

  /** Runs a statement that changes nothing. If it takes too long, the server is asked to cancel it. */
  function read (config: pg.QueryConfig, deadline: number) {
    return run(config, cancel, deadline).catch(fail)
  }

  /**
   * Runs a statement that may be committing when it takes too long. Cancelling it then could make it visible before a standby
   * has it. A function returns the statement when there is a connection for it.
   */
  function write (config: Statement, deadline = Date.now() + timeout) {
    return run(config, cancelIfWaiting, deadline).catch(error => fail(isRefusal(error) ? Object.assign(rejection(error.constraint ?? (error.routine === 'exec_stmt_raise' ? error.message : undefined)), { cause: error }) : error))
  }

  /** Runs the statements of one collection on at most half of the connections, so that a lock on its table does not stop other collections. */
  function ofCollection () {
    const whenFree = limited(Math.ceil(pools.queries.options.max / 2), timeout)
    return {
      read: (config: pg.QueryConfig) => whenFree(deadline => read(config, deadline)),
      write: (statement: Statement) => whenFree(deadline => write(statement, deadline))
    }
  }

  /** Ends a statement that waits for a lock, and is therefore not committing. Closing its connection would not end it. */
  function cancelIfWaiting ({ processID }: BackendClient) {
    pools.queries.query("select pg_cancel_backend(pid) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", [processID]).catch(() => {})
  }

  /** Runs a statement. If it failed without effect and can succeed the next time, it runs it again. */
  async function run (statement: Statement, giveUp: (client: pg.PoolClient) => void, deadline: number) {
    if (!isPrepared) await prepareOnce()
    for (;;) {
      const client = await connect('queries', deadline)
      const config = typeof statement === 'function' ? statement() : statement
      try {
        const results = [await client.query<Row>({ ...config, name: usesNames ? config.name : undefined, rowMode: 'array' })].flat()
        client.release()
        return results.at(-1) as pg.QueryResult<Row> // several statements have several results
      } catch (error) {
        if (!(error instanceof pg.DatabaseError)) giveUp(client)
        client.release(!(error instanceof pg.DatabaseError && error.severity === 'ERROR'))
        const code = codeOf(error)
        // The connection leads to a standby, or has a statement whose table has changed since. So do the others.
        const isOutOfDate = code === '25006' || (code === '0A000' && /cached plan/.test((error as Error).message))
        if (isOutOfDate && current.has(client)) current = new WeakSet()
        // A connection pooler does not know a prepared statement, or knows it already.
        const isUnknown = /^(26000|42P05)$/.test(code)
        if (isUnknown) usesNames = false
        const isSerializationFailure = /^(40001|40P01)$/.test(code)
        if (Date.now() > deadline || !(isOutOfDate || isUnknown || isSerializationFailure)) throw error
        await sleep(Math.random() * 10)
      }
    }
  }

  /** Starts a read transaction. It sees the database as of now. */
  async function openSnapshot () {
    const waiting = setInterval(() => { if (pools.lists.waitingCount > 0) closeSlowest() }, timeout / 10)
    const client = await connect('lists').finally(() => clearInterval(waiting)).catch(fail)
    const free = () => { client.query('rollback').then(() => client.release(), error => client.release(error)) }
    // The first statement determines what the transaction sees.
    await client.query(`
      begin isolation level repeatable read read only;
      set local statement_timeout = ${timeout};
      set local idle_in_transaction_session_timeout = ${timeout * stalledListTimeouts * 2};
      select 1`).catch(error => {
      free()
      fail(error)
    })
    return {
      run: async ({ text, values }: ListStatement) => (await client.query<Row>({ text, values, rowMode: 'array' }).catch(fail)).rows,
      free,
      track
    }
  }

  /** A connection from a pool that is not out of date. If the server does not allow more connections, it waits for one. */
  async function connect (pool: keyof typeof pools, deadline = Date.now() + timeout) {
    for (;;) {
      try {
        const client = await pools[pool].connect()
        if (current.has(client)) return client
        client.release(true) // closes it
      } catch (error) {
        if (codeOf(error) !== '53300' || Date.now() > deadline) throw error
        const other = pool === 'lists' ? pools.queries : pools.lists
        if (other.idleCount > 0) (await other.connect()).release(true) // closes a connection that is not used
        await sleep(20)
      }
    }
  }

  /** Waits for a result, not longer than the timeout of the request or the operation. */
  async function withTimeout<R> (pending: Promise<R>, deadline = deadlineOfRequest?.() ?? Date.now() + timeout) {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<void>(resolve => { timer = setTimeout(resolve, deadline - Date.now()) })
      .then(() => fail(new Error(`The database did not answer within ${timeout} ms`)))
    return Promise.race([pending, late]).finally(() => clearTimeout(timer))
  }

  /** Converts errors that may be temporary: those of the connection, which have no code, and those of the server with such a code. */
  function fail (error: unknown): never {
    if (error instanceof NotStorableError || !/^(|(08|25|26|28|3D|40|53|55|57|58)...)$/.test(codeOf(error))) throw error
    onUnavailable?.(error)
    throw new StoreUnavailableError(error)
  }

  function newPool (max: number) {
    const pool = new pg.Pool({ ...login, query_timeout: timeout, onConnect: rejectReadOnly, max })
    // A lost connection fails its query. If it is idle, the pool replaces it.
    pool.on('error', () => {})
    pool.on('connect', client => { current.add(client.on('error', () => {})) })
    return pool
  }

  async function close () {
    await Promise.all([pools.queries.end(), pools.lists.end()])
  }

  function usage () {
    return Object.fromEntries(Object.entries(pools).map(([name, { totalCount, idleCount, waitingCount }]) =>
      [name, { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount }]))
  }
}

async function rejectReadOnly (client: pg.ClientBase) {
  const { rows: [row] } = await client.query({ text: 'show transaction_read_only', rowMode: 'array' })
  if (row?.[0] === 'on') throw new Error('The server in the option store is read-only (a standby)')
}

/** Asks the server to cancel the statement of a connection. Closing the connection alone would not stop it. */
function cancel (client: BackendClient) {
  const { host = '', port = 0, processID = 0, secretKey = 0 } = client
  const request = Buffer.alloc(16)
  for (const [n, value] of [16, 80877102, processID, secretKey].entries()) request.writeInt32BE(value, n * 4)
  const socket = host.startsWith('/') ? connectSocket(`${host}/.s.PGSQL.${port}`) : connectSocket(port, host)
  socket.on('error', () => {}).end(request)
}

/** Turns errors that a restart would not solve into a message for the operator. */
function startupError (error: unknown) {
  const { message, cause } = error as Error
  if (error instanceof StartupError && codeOf(cause) !== '42501') return error
  switch (codeOf(error) || codeOf(cause)) {
    case '42P07': return new StartupError(`Cannot create the tables in the option store: ${message}, and this service has not created it. ` +
      'Use another database or a separate schema (docs/persistence.md#schemas).')
    case '42501': return new StartupError(`The role in the option store lacks a privilege: ${message}. See docs/persistence.md#privileges.`)
    default: return error
  }
}

/** Returns whether a server cannot be used at the moment: it is not reachable, busy, or a table is locked. */
function isUnreachable (error: unknown): boolean {
  if (error instanceof StartupError) return error.cause !== undefined && isUnreachable(error.cause)
  if (codeOf(error)) return /^(08|53|57|55P03)/.test(codeOf(error))
  // A host name with several addresses fails with one error for each address.
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  const { syscall, message } = first as NodeJS.ErrnoException
  return syscall !== undefined || /timeout|terminated|read-only/i.test(message)
}

/**
 * Returns whether the database rejects the data: because of its value, size, a constraint, a view or a trigger, which may have
 * a code of its own. A column without a value (23502) is not ours, because our values were validated.
 */
function isRefusal (error: unknown) {
  return /^(22|23(?!502)|44|54|[6-9I-WYZ])/.test(codeOf(error))
}

/** The code of an error that the server has sent. (Its class is not known here, because pg is loaded later.) */
export function codeOf (error: unknown) {
  return error instanceof Error && 'severity' in error && 'code' in error ? String(error.code) : ''
}
