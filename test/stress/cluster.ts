import { deepStrictEqual, ok } from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../support/until.js'
import { collectionsFile, useInstances } from './history.js'
import { isComplete, primaryOf, startCluster, type Node } from './patroni.js'
import { serve, type Scope } from './service.js'

type Fault = (primary: Node, standbys: Node[]) => Promise<void>

/** How long a primary is paused or cut off, in milliseconds. That is longer than `ttl` in deploy/patroni.yaml. */
const absence = 30_000

/** Faults of the primary of a cluster. */
export const clusterFaults: Record<string, Fault> = {
  async 'is switched over as planned' ({ name, api }) {
    const response = await fetch(`${api}/switchover`, { method: 'POST', body: JSON.stringify({ leader: name }) })
    ok(response.ok, await response.text())
  },
  async 'is killed with kill -9' (primary, standbys) {
    await primary.kill()
    await until(async () => await primaryOf(standbys) !== undefined)
    primary.run()
  },
  async 'is paused for 30 s' (primary) {
    primary.signal('SIGSTOP')
    await sleep(absence)
    primary.signal('SIGCONT')
  },
  async 'is cut off from the network for 30 s' (primary) {
    const restore = primary.cut()
    await sleep(absence)
    restore()
  }
}

/**
 * Causes a fault of the primary while clients use two instances of the service. Writes are sent again with the same
 * idempotency key until they are acknowledged: all are stored, once.
 */
export async function clusterFault (scope: Scope, happen: Fault) {
  const { url, nodes } = await startCluster(scope)
  const env = { DATABASE_URL: url, COLLECTIONS_FILE: collectionsFile(scope) }
  const instances = await Promise.all([1, 2].map(() => serve(scope, env)))
  const { more, check } = await useInstances(scope, instances, { clients: 6, pause: 300 })
  const { stop } = write(instances.map(({ url }) => url))
  await more(100)
  const primary = await primaryOf(nodes)
  if (!primary) throw new Error('There is no primary')
  const standbys = nodes.filter(node => node !== primary)
  scope.comment(`the primary ${primary.name} has its fault`)
  await happen(primary, standbys)
  await until(async () => await primaryOf(standbys) !== undefined)
  await until(() => isComplete(nodes))
  await more(100)
  return { ...await stop(), ...await check() }
}

/** Clients that create items with idempotency keys. */
function write (urls: string[]) {
  const created = new Map<number, number>()
  const failed: Record<string, number> = {}
  const failures: number[] = []
  const stopping = new AbortController()
  let next = 2
  const done = Promise.all(Array.from({ length: 8 }, client))
  done.catch(() => {}) // `stop` fails with it
  return { stop }

  async function client () {
    while (!stopping.signal.aborted) {
      const id = next++
      for (let attempt = id; !await create(id, attempt); attempt++) await sleep(50)
      await sleep(20)
    }
  }

  async function create (id: number, attempt: number) {
    const response = await fetch(`${urls[attempt % urls.length]}/api/items`, {
      method: 'POST', headers: { 'idempotency-key': `item-${id}` }, body: JSON.stringify({ id, name: 'something', price: 1.5 })
    })
    await response.text()
    if (response.status === 201) return created.set(id, performance.now())
    failures.push(performance.now())
    failed[response.status] = (failed[response.status] ?? 0) + 1
  }

  /** Compares the stored items with the acknowledged ones. Returns for how long writes have failed. */
  async function stop () {
    stopping.abort()
    await done
    for (const url of urls) {
      const stored = await (await fetch(`${url}/api/items`)).json() as { id: number }[]
      const ids = new Set(stored.map(({ id }) => id))
      deepStrictEqual({ lost: [...created.keys()].filter(id => !ids.has(id)), doubled: stored.length - ids.size }, { lost: [], doubled: 0 })
    }
    const times = [...created.values()].sort((a, b) => a - b)
    const [first = Infinity, last = 0] = [failures[0], failures.at(-1)]
    return {
      created: created.size,
      failed,
      /** The longest time between two acknowledged writes, in milliseconds. */
      longest: Math.max(...times.slice(1).map((time, n) => time - (times[n] ?? 0))),
      /** The time from the first failed write to the first acknowledged one after the last failed one. */
      failing: Math.max(0, (times.find(time => time > last) ?? 0) - first)
    }
  }
}
