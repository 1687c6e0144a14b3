import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { EngineOptions } from '../store.js'
import { codeOf } from './errors.js'

/** Opens a pool for statements, and one for long lists, because a list holds its connection while the client reads. */
export function openPools ({ Pool }: typeof pg, login: pg.PoolConfig, { timeout, poolSize }: EngineOptions) {
  const pools = { queries: newPool(Math.ceil(poolSize / 2)), lists: newPool(Math.max(1, Math.floor(poolSize / 2))) }
  /** The connections that are not out of date. */
  let current = new WeakSet<pg.PoolClient>()
  return { ...pools, connect, retire, usage, close }

  function newPool (max: number) {
    const pool = new Pool({ ...login, query_timeout: timeout, onConnect: rejectReadOnly, max })
    // A lost connection fails its query. If it is idle, the pool replaces it.
    pool.on('error', () => {})
    pool.on('connect', client => { current.add(client.on('error', () => {})) })
    return pool
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

  /** Makes all connections out of date, because this one is. */
  function retire (client: pg.PoolClient) {
    if (current.has(client)) current = new WeakSet()
  }

  function usage () {
    return Object.fromEntries(Object.entries(pools).map(([name, { totalCount, idleCount, waitingCount }]) =>
      [name, { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount }]))
  }

  async function close () {
    await Promise.all([pools.queries.end(), pools.lists.end()])
  }
}

export async function rejectReadOnly (client: pg.ClientBase) {
  const { rows: [row] } = await client.query({ text: 'show transaction_read_only', rowMode: 'array' })
  if (row?.[0] === 'on') throw new Error('The server in the option store is read-only (a standby)')
}
