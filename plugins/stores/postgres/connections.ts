import { connect as connectSocket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { loadOptional, StartupError } from '../../startup.js'
import { limited } from '../batch.js'
import { NotStorableError, rejection, StoreUnavailableError } from '../errors.js'
import { stalledListTimeouts } from '../sql/lists.js'
import { openLists } from '../sql/open-lists.js'
import type { Statement as ListStatement } from '../sql/queries.js'
import type { Row } from '../sql/table.js'
import type { EngineOptions } from '../store.js'
import { codeOf, isRefusal, isUnreachable, startupError } from './errors.js'
import { openPools, rejectReadOnly } from './pools.js'
import { lock } from './statements.js'

/** A client with the properties that the types of pg do not have. */
type BackendClient = pg.PoolClient & { host?: string, port?: number, processID?: number, secretKey?: number }

type Statement = pg.QueryConfig | (() => pg.QueryConfig)

/** Connects to PostgreSQL. `prepare` creates the tables, in a transaction before the first statement. */
export async function connectPostgres (url: string, options: EngineOptions, prepare: (client: pg.Client) => Promise<void>) {
  const { timeout, deadline: deadlineOfRequest, onUnavailable } = options
  checkUrl(url)
  const { default: pg } = await loadOptional('pg', 'store', () => import('pg'))
  // pg returns a bigint as text. Our values are safe integers, so they become numbers.
  const types = { getTypeParser: (oid: number) => oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid) }
  const login = { connectionString: url, connectionTimeoutMillis: timeout, application_name: 'fastify-items-users', types }
  const pools = openPools(pg, login, options)
  const { prepareAll, prepareOnce } = tablePreparer(() => new pg.Client(login), timeout, prepare)
  const run = statementRunner(pools, prepareOnce)
  const { track, closeSlowest } = openLists(timeout)

  return { start, write, ofCollection, openSnapshot, withTimeout, usage: pools.usage, close: pools.close }

  /** Prepares the tables. If the server cannot be used at the moment, the first statement tries again. */
  async function start () {
    try {
      await prepareAll()
    } catch (error) {
      if (!isUnreachable(error)) throw startupError(error)
      onUnavailable?.(error)
    }
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
      /** Runs a statement that changes nothing. If it takes too long, the server is asked to cancel it. */
      read: (config: pg.QueryConfig) => whenFree(deadline => run(config, cancel, deadline).catch(fail)),
      write: (statement: Statement) => whenFree(deadline => write(statement, deadline))
    }
  }

  /**
   * Ends a statement that waits for a lock, and is therefore not committing. Closing its connection would not end it. This
   * needs a connection of its own, because those of the pool may wait for the same lock.
   */
  function cancelIfWaiting ({ processID }: BackendClient) {
    const client = new pg.Client({ ...login, query_timeout: timeout }).on('error', () => {})
    const text = "select pg_cancel_backend(pid) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'"
    client.connect().then(() => client.query(text, [processID])).catch(() => {}).finally(() => client.end())
  }

  /** Starts a read transaction. It sees the database as of now. */
  async function openSnapshot () {
    const waiting = setInterval(() => { if (pools.lists.waitingCount > 0) closeSlowest() }, timeout / 10)
    const client = await pools.connect('lists').finally(() => clearInterval(waiting)).catch(fail)
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
}

/** The driver does not support several hosts, and would report a URL that it cannot parse with the password in it. A socket needs no host. */
function checkUrl (url: string) {
  if (/^\w+:\/\/([^/?#@]*@)?[^/?#@]*,/.test(url)) throw new StartupError('The option store must have one host, because the driver does not support several. Use the address of HAProxy or PgBouncer, or a virtual IP address, that leads to the primary.')
  if (!URL.canParse(url.replace('@/', '@localhost/'))) throw new StartupError('The option store is not a valid URL. Percent-encode special characters in the user name and password, such as %23 for #.')
}

/** Prepares the tables, in a transaction that excludes other instances. After a failure, `prepareOnce` tries again. */
function tablePreparer (newClient: () => pg.Client, timeout: number, prepare: (client: pg.Client) => Promise<void>) {
  let prepared: Promise<void> | undefined
  return { prepareAll, prepareOnce: () => prepared ?? prepareAll() }

  function prepareAll () {
    prepared = inTransaction().catch(error => {
      prepared = undefined
      throw error
    })
    return prepared
  }

  async function inTransaction () {
    const client = newClient().on('error', () => {})
    try {
      await client.connect()
      // A connection pooler may accept the login and then wait for a server, so the first statement has a limit. Upgrades have none.
      const limit = { query_timeout: timeout } // an option that the types of pg do not have
      await client.query({ text: `begin isolation level read committed; set local lock_timeout = ${timeout}`, ...limit })
      await client.query(`select ${lock('migrations', timeout)}`) // instances that start at the same time wait for each other
      await rejectReadOnly(client)
      await prepare(client)
      await client.query({ text: 'commit', ...limit }) // it may wait for a standby
    } finally {
      await client.end().catch(() => {})
    }
  }
}

/** Returns a function that runs a statement. If it failed without effect and can succeed the next time, the function runs it again. */
function statementRunner (pools: ReturnType<typeof openPools>, prepareOnce: () => Promise<void>) {
  /** Whether prepared statements have names. Some connection poolers do not support that. */
  let usesNames = true

  return async function run (statement: Statement, giveUp: (client: pg.PoolClient) => void, deadline: number) {
    await prepareOnce()
    for (;;) {
      const client = await pools.connect('queries', deadline)
      const config = typeof statement === 'function' ? statement() : statement
      try {
        const results = [await client.query<Row>({ ...config, name: usesNames ? config.name : undefined, rowMode: 'array' })].flat()
        client.release()
        return results.at(-1) as pg.QueryResult<Row> // several statements have several results
      } catch (error) {
        const { message, severity } = error as pg.DatabaseError
        const code = codeOf(error)
        if (!code) giveUp(client)
        client.release(severity !== 'ERROR')
        // The connection leads to a standby, or has a statement whose table has changed since. So do the others.
        const isOutOfDate = code === '25006' || (code === '0A000' && /cached plan/.test(message))
        if (isOutOfDate) pools.retire(client)
        // A connection pooler does not know a prepared statement, or knows it already.
        const isUnknown = /^(26000|42P05)$/.test(code)
        if (isUnknown) usesNames = false
        const isSerializationFailure = /^(40001|40P01)$/.test(code)
        if (Date.now() > deadline || !(isOutOfDate || isUnknown || isSerializationFailure)) throw error
        await sleep(Math.random() * 10)
      }
    }
  }
}

/** Asks the server to cancel the statement of a connection. Closing the connection alone would not stop it. */
function cancel (client: BackendClient) {
  const { host = '', port = 0, processID = 0, secretKey = 0 } = client
  const request = Buffer.alloc(16)
  for (const [n, value] of [16, 80877102, processID, secretKey].entries()) request.writeInt32BE(value, n * 4)
  const socket = host.startsWith('/') ? connectSocket(`${host}/.s.PGSQL.${port}`) : connectSocket(port, host)
  socket.on('error', () => {}).end(request)
}
