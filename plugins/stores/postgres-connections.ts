import { connect as connectSocket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { loadOptional, StartupError } from '../startup.js'
import { StoreUnavailableError } from './errors.js'
import { codeOf, isOutOfDate, isRefusal, isSerializationFailure, isUnknownStatement, isUnreachable, ReadOnlyError, startupError } from './postgres-errors.js'
import { stalledListTimeouts } from './sql-lists.js'
import type { Row } from './sql-table.js'
import type { EngineOptions } from './store.js'
import { lock } from './postgres-statements.js'

/** Connects to PostgreSQL. `prepare` creates the tables, in a transaction before the first statement. */
export async function connectPostgres (url: string, { timeout, poolSize, timeLeft, onUnavailable }: EngineOptions, prepare: (client: pg.Client) => Promise<void>) {
  // The driver does not support several hosts, and would report a URL that it cannot parse with the password in it. A socket needs no host.
  if (/^\w+:\/\/([^/?#@]*@)?[^/?#@]*,/.test(url)) throw new StartupError('The option store must have one host, because the driver does not support several. Use the address of HAProxy or PgBouncer, or a virtual IP address, that leads to the primary.')
  if (!URL.canParse(url.replace('@/', '@localhost/'))) throw new StartupError('The option store is not a valid URL. Percent-encode special characters in the user name and password, such as %23 for #.')
  const { default: pg } = await loadOptional('pg', 'store', () => import('pg'))
  // pg returns a bigint as text. Our values are safe integers, so they become numbers.
  const types = { getTypeParser: (oid: number) => oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid) }
  const login = { connectionString: url, connectionTimeoutMillis: timeout, application_name: 'fastify-items-users', types }
  let pools = newPools()
  let isPrepared = false
  let preparing: Promise<void> | undefined
  /** Whether prepared statements have names. Some connection poolers do not support that. */
  let usesNames = true

  return { start, read, write, openSnapshot, withTimeout, usage, close }

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
      await client.query({ text: `begin; set local lock_timeout = ${timeout}`, ...limit })
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
  function read (config: pg.QueryConfig) {
    return run(config, cancel).catch(fail)
  }

  /** Runs a statement that may be committing when it takes too long. Cancelling it then could make it visible before a standby has it. */
  function write (config: pg.QueryConfig) {
    return run(config, () => {}).catch(fail)
  }

  /** Runs a statement. If it failed without effect and can succeed the next time, it runs it again. */
  async function run (config: pg.QueryConfig, giveUp: (client: pg.PoolClient) => void) {
    if (!isPrepared) await prepareOnce()
    const deadline = Date.now() + timeout
    for (;;) {
      const used = pools
      const client = await connect('queries')
      try {
        const result = await client.query<Row>({ ...config, name: usesNames ? config.name : undefined, rowMode: 'array' })
        client.release()
        return result
      } catch (error) {
        if (!(error instanceof pg.DatabaseError)) giveUp(client)
        client.release(!(error instanceof pg.DatabaseError && error.severity === 'ERROR'))
        if (isOutOfDate(error)) replacePools(used)
        if (isUnknownStatement(error)) usesNames = false
        if (Date.now() > deadline || !(isOutOfDate(error) || isUnknownStatement(error) || isSerializationFailure(error))) throw error
        await sleep(Math.random() * 10)
      }
    }
  }

  /** Starts a read transaction. It sees the database as of now. */
  async function openSnapshot () {
    const client = await connect('lists').catch(fail)
    const free = () => { client.query('rollback').then(() => client.release(), error => client.release(error)) }
    try {
      // The first statement determines what the transaction sees.
      await client.query(`
        begin isolation level repeatable read read only;
        set local statement_timeout = ${timeout};
        set local idle_in_transaction_session_timeout = ${timeout * stalledListTimeouts * 2};
        select 1`).catch(fail)
    } catch (error) {
      free()
      throw error
    }
    return { free, select: async (config: pg.QueryConfig) => (await client.query<Row>({ ...config, name: undefined, rowMode: 'array' }).catch(fail)).rows }
  }

  /** A connection from a pool. If the server does not allow more connections, it waits for one. */
  async function connect (pool: keyof typeof pools) {
    const deadline = Date.now() + timeout
    for (;;) {
      try {
        return await pools[pool].connect()
      } catch (error) {
        if (codeOf(error) !== '53300' || Date.now() > deadline) throw error
        const other = pool === 'lists' ? pools.queries : pools.lists
        if (other.idleCount > 0) (await other.connect()).release(true) // closes a connection that is not used
        await sleep(20)
      }
    }
  }

  /** Waits for a result, not longer than the timeout of the request or the operation. */
  async function withTimeout<R> (pending: Promise<R>, limit = timeLeft?.() ?? timeout) {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<void>(resolve => { timer = setTimeout(resolve, limit) })
      .then(() => fail(new Error(`The database did not answer within ${timeout} ms`)))
    return Promise.race([pending, late]).finally(() => clearTimeout(timer))
  }

  /** Converts errors that may be temporary. Rejected data, invalid statements and internal errors of the server are not. */
  function fail (error: unknown): never {
    if (isRefusal(error) || /^(23|42|XX)/.test(codeOf(error))) throw error
    onUnavailable?.(error)
    throw new StoreUnavailableError(error)
  }

  function newPools () {
    // A long list holds its connection while the client reads, so lists have their own pool.
    return { queries: newPool(Math.ceil(poolSize / 2)), lists: newPool(Math.max(1, Math.floor(poolSize / 2))) }
  }

  function newPool (max: number) {
    const pool = new pg.Pool({ ...login, query_timeout: timeout, onConnect: rejectReadOnly, max })
    // A lost connection fails its query. If it is idle, the pool replaces it.
    pool.on('error', () => {})
    pool.on('connect', client => client.on('error', () => {}))
    return pool
  }

  /** Replaces all connections, because they lead to a standby or have statements that are out of date. */
  async function replacePools (used: typeof pools) {
    if (used !== pools) return
    pools = newPools()
    // A pool that is ended does not serve calls that wait for a connection.
    while (used.queries.waitingCount + used.lists.waitingCount > 0) await sleep(10)
    await close(used).catch(() => {})
  }

  async function close ({ queries, lists } = pools) {
    await Promise.all([queries.end(), lists.end()])
  }

  function usage () {
    return Object.fromEntries(Object.entries(pools).map(([name, { totalCount, idleCount, waitingCount }]) =>
      [name, { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount }]))
  }
}

async function rejectReadOnly (client: pg.ClientBase) {
  const { rows: [row] } = await client.query({ text: 'show transaction_read_only', rowMode: 'array' })
  if (row?.[0] === 'on') throw new ReadOnlyError('The server in the option store is read-only (a standby)')
}

/** Asks the server to cancel the statement of a connection. Closing the connection alone would not stop it. */
function cancel (client: pg.PoolClient & { host?: string, port?: number, processID?: number, secretKey?: number }) {
  const { host = '', port = 0, processID = 0, secretKey = 0 } = client
  const request = Buffer.alloc(16)
  for (const [n, value] of [16, 80877102, processID, secretKey].entries()) request.writeInt32BE(value, n * 4)
  const socket = host.startsWith('/') ? connectSocket(`${host}/.s.PGSQL.${port}`) : connectSocket(port, host)
  socket.on('error', () => {}).end(request)
}
