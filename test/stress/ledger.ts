import { deepStrictEqual, ok } from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { connection, written } from '../support/connection.js'
import type { Scope } from './service.js'

/**
 * Clients that create users, read some of them and delete some, and keep account of what was acknowledged to them. No
 * answer may be another than these.
 */
export function ledger (scope: Scope, answersAllowed: (number | 'dropped')[], name = 'somebody') {
  const asked = new Set([1])
  const created = new Set<number>()
  const deleted = new Set<number>()
  const answers: Record<string, number> = {}
  let next = 2
  let slowest = 0

  return {
    /** How many answers there were of each status, and how many connections were dropped. */
    answers,
    write,
    compare,
    /** The longest that an answer took, in milliseconds. */
    slowest: () => Math.round(slowest)
  }

  /**
   * Has clients write to a service, until they are told to stop; what is under way then is waited for. Between two
   * users, a client pauses for so many milliseconds.
   */
  function write (url: string, { clients = 16, pause = 0 } = {}) {
    const stopping = new AbortController()
    const done = Array.from({ length: clients }, writeOn)
    scope.teardown(() => stopping.abort())
    return async function stop () {
      stopping.abort()
      await Promise.all(done)
    }

    async function writeOn () {
      let client = connection(url)
      while (!stopping.signal.aborted) {
        if (pause) await sleep(pause)
        const id = next++
        asked.add(id)
        if (await send('POST', '/api/users', JSON.stringify({ id, name })) !== 201) continue
        created.add(id)
        if (id % 3 === 0) await send('GET', `/api/users/${id}`)
        if (id % 50 === 0) await send('GET', '/api/users?limit=1000')
        if (id % 5 !== 0) continue
        created.delete(id)
        if (await send('DELETE', `/api/users/${id}`) === 204) deleted.add(id)
      }
      client.socket.destroy()

      async function send (method: string, target: string, body?: string) {
        const began = performance.now()
        const { status, headers } = await client.send(written(method, target, body)).catch(dropped)
        slowest = Math.max(slowest, performance.now() - began)
        answers[status] = (answers[status] ?? 0) + 1
        if (headers.connection === 'close') client = connection(url)
        if (status === 503) await sleep(50)
        return status
      }

      async function dropped () {
        await sleep(20)
        return { status: 'dropped', headers: { connection: 'close' } }
      }
    }
  }

  /** Holds what a service has against what was acknowledged: all of it is there, once, and nothing that nobody asked for. */
  async function compare (url: string) {
    const others = Object.keys(answers).filter(answer => !answersAllowed.map(String).includes(answer))
    deepStrictEqual(others.map(answer => [answer, answers[answer]]), [], 'there are no other answers')
    ok(created.size + deleted.size > 100, 'enough was done')
    const users = await (await fetch(`${url}/api/users`)).json() as { id: number }[]
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
