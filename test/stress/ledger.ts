import { deepStrictEqual, ok } from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { connection, written } from '../support/connection.js'
import { until } from '../support/until.js'
import type { Scope } from './service.js'

/** A request other than those that create, read and delete, and the status of its response. */
export interface Other {
  status: number
  method: string
  target: string
  body?: string
  headers?: Record<string, string>
}

interface Load {
  clients?: number
  pause?: number
  /** Requests that are sent in turn, one after each record that is created. */
  others?: Other[]
}

/**
 * Clients that create users, read some of them and delete some, and record what was acknowledged to them. Every response
 * must have the status of its request or one of those that are tolerated.
 */
export function ledger (scope: Scope, tolerated: (number | 'dropped')[], { name = 'somebody', headers }: { name?: string, headers?: Other['headers'] } = {}) {
  const asked = new Set([1])
  const created = new Set<number>()
  const deleted = new Set<number>()
  const answers: Record<string, number> = {}
  const unexpected: Record<string, number> = {}
  let next = 2
  let slowest = 0

  return {
    /** The number of responses of each status, and of dropped connections. */
    answers,
    write,
    compare,
    /** The longest response time, in milliseconds. */
    slowest: () => Math.round(slowest)
  }

  /**
   * Has clients write to a service, until they are told to stop; what is under way then is waited for. Between two
   * users, a client pauses for so many milliseconds.
   */
  function write (url: string, { clients = 16, pause = 0, others = [] }: Load = {}) {
    const stopping = new AbortController()
    const served = Array.from({ length: clients }, () => 0)
    const done = served.map((_, n) => writeOn(n))
    scope.teardown(() => stopping.abort())
    return { stop, turn }

    async function stop () {
      stopping.abort()
      await Promise.all(done)
    }

    /** Waits until every request that is in progress has its response. */
    async function turn () {
      const before = [...served]
      await until(() => served.every((count, n) => count > (before[n] ?? 0)))
    }

    async function writeOn (n: number) {
      let client = connection(url)
      while (!stopping.signal.aborted) {
        if (pause) await sleep(pause)
        const id = next++
        asked.add(id)
        if (await send({ status: 201, method: 'POST', target: '/api/users', body: JSON.stringify({ id, name }) }) !== 201) continue
        created.add(id)
        if (id % 3 === 0) await send({ status: 200, method: 'GET', target: `/api/users/${id}` })
        if (id % 50 === 0) await send({ status: 200, method: 'GET', target: '/api/users?limit=1000' })
        const other = others[id % others.length]
        if (other) await send(other)
        if (id % 5 !== 0) continue
        created.delete(id)
        if (await send({ status: 204, method: 'DELETE', target: `/api/users/${id}` }) === 204) deleted.add(id)
      }
      client.socket.destroy()

      async function send ({ status: expected, method, target, body, headers: own }: Other) {
        const began = performance.now()
        const { status, headers: received } = await client.send(written(method, target, body, { ...headers, ...own })).catch(dropped)
        slowest = Math.max(slowest, performance.now() - began)
        count(answers, status)
        if (status !== expected && !tolerated.some(one => one === status)) count(unexpected, `${method} ${url}${target}: ${status} instead of ${expected}`)
        if (received.connection === 'close') client = connection(url)
        if (status === 503) await sleep(50)
        served[n] = (served[n] ?? 0) + 1
        return status
      }

      async function dropped () {
        await sleep(20)
        return { status: 'dropped', headers: { connection: 'close' } }
      }
    }
  }

  /** Compares the stored records with the acknowledged writes: all are stored, once, and nothing else. */
  async function compare (url: string) {
    deepStrictEqual(unexpected, {}, 'every response has the status of its request')
    ok(created.size + deleted.size > 100, 'enough was done')
    let response = await fetch(`${url}/api/users`, { headers })
    await until(async () => response.ok || (response = await fetch(`${url}/api/users`, { headers })).ok)
    const users = await response.json() as { id: number }[]
    const ids = new Set(users.map(({ id }) => id))
    deepStrictEqual({
      lost: [...created].filter(id => !ids.has(id)),
      returned: [...deleted].filter(id => ids.has(id)),
      invented: [...ids].filter(id => !asked.has(id)),
      doubled: users.length - ids.size,
      altered: users.filter(user => JSON.stringify(user) !== JSON.stringify({ id: user.id, name: user.id === 1 ? 'Ada' : name })).length
    }, { lost: [], returned: [], invented: [], doubled: 0, altered: 0 })
    return { created: created.size + deleted.size, deleted: deleted.size }
  }
}

function count (counts: Record<string, number>, key: string | number) {
  counts[key] = (counts[key] ?? 0) + 1
}
