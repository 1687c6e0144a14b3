import { equal } from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { connection, written, type Connection } from '../support/connection.js'
import { until } from '../support/until.js'
import { quantile } from './figures.js'
import { serve, type Scope, type Service } from './service.js'

/** Measurements of a service: memory after garbage collection, handles, active timers, and latency. */
interface Look {
  heap: number
  rss: number
  handles: number
  timers: number
  median: number
  p99: number
}

interface Options {
  seconds: number
  /** Number of measurements. The first third is for warming up and is ignored. */
  looks: number
}

/** A connection and the requests that it repeats. What it creates, it also deletes. */
interface Client extends Connection {
  cycle: { request: Buffer, status: number }[]
  step: number
}

/** Makes the service report its memory, handles and timers after a signal. */
const teller = `process.on('SIGWINCH', () => {
  gc()
  const { heapUsed: heap, rss } = process.memoryUsage()
  const timers = process.getActiveResourcesInfo().filter(name => name === 'Timeout').length
  process.stderr.write(JSON.stringify({ heap, rss, timers }) + '\\n')
})`

/** Loads a service at 70 % of its capacity for a long time, and compares the first measurements with the last. */
export async function soak (scope: Scope, url: string, { seconds, looks }: Options) {
  const service = await serve(scope, { DATABASE_URL: url }, { script: teller, flags: ['--expose-gc'] })
  const clients = Array.from({ length: 32 }, (_, n) => clientOf(service, n))
  const trial = Math.min(seconds / 3, 5)
  await load(clients, trial) // warms up
  const most = (await load(clients, trial)).length / trial
  const rate = 0.7 * most
  const seen: Look[] = []
  let served = 0
  for (let n = 1; n <= looks; n++) {
    scope.comment(`look ${n} of ${looks}, at ${Math.round(rate)} requests a second`)
    const latencies = await load(clients, seconds / looks, rate)
    served += latencies.length
    seen.push({ ...await lookAt(service), median: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) })
  }
  for (const { socket } of clients) socket.destroy()

  const third = Math.floor(looks / 3)
  const [first, last] = [seen.slice(third, 2 * third), seen.slice(-third)].map(typical) as [Look, Look]
  return {
    requests: served,
    /** The share of the load that was served. On a busy machine, it is less than 1. */
    share: served / (rate * seconds),
    heap: last.heap / first.heap,
    rss: last.rss / first.rss,
    median: last.median / first.median,
    p99: last.p99 / first.p99,
    handles: last.handles - first.handles,
    timers: last.timers - first.timers
  }
}

/** The median of each measurement. */
function typical (looks: Look[]) {
  const median = (name: keyof Look) => quantile(looks.map(look => look[name]), 0.5)
  return { heap: median('heap'), rss: median('rss'), handles: median('handles'), timers: median('timers'), median: median('median'), p99: median('p99') }
}

function clientOf ({ url }: Service, n: number): Client {
  const id = 1000 + n
  const cycle = [
    { status: 201, request: written('POST', '/api/users', JSON.stringify({ id, name: `client ${n}` })) },
    { status: 200, request: written('GET', `/api/users/${id}`) },
    { status: 200, request: written('GET', '/api/items/1') },
    { status: 200, request: written('GET', '/api/users') },
    { status: 200, request: written('GET', '/api/items?limit=10') },
    { status: 400, request: written('POST', '/api/items', '{"id":"1"}') },
    { status: 404, request: written('GET', '/api/items/8') },
    { status: 204, request: written('DELETE', `/api/users/${id}`) }
  ]
  return { ...connection(url), cycle, step: 0 }
}

/** Sends requests at a rate, or as fast as possible, and returns their latencies from the time at which they were due. */
async function load (clients: Client[], seconds: number, rate = Infinity) {
  const latencies: number[] = []
  const idle = [...clients]
  const began = performance.now()
  let sent = 0
  let failure: unknown
  for (let elapsed = 0; elapsed < seconds * 1000 || idle.length < clients.length; elapsed = performance.now() - began) {
    const due = elapsed < seconds * 1000 ? rate === Infinity ? rate : elapsed / 1000 * rate : 0
    for (; sent < due && idle.length > 0; sent++) sendNext().catch(error => { failure = error })
    await sleep(1)
    if (failure) throw failure
  }
  return latencies

  async function sendNext () {
    const client = idle.pop() as Client
    const { request, status } = client.cycle[client.step++ % client.cycle.length] as Client['cycle'][0]
    const due = rate === Infinity ? performance.now() : began + sent / rate * 1000
    equal((await client.send(request)).status, status)
    latencies.push(performance.now() - due)
    idle.push(client)
    if (rate === Infinity && performance.now() - began < seconds * 1000) await sendNext()
  }
}

async function lookAt ({ process, errors }: Service) {
  const before = errors().length
  process.kill('SIGWINCH')
  await until(async () => errors().length > before && errors().endsWith('\n'))
  const handles = readdirSync(`/proc/${process.pid}/fd`).length
  return { ...JSON.parse(errors().slice(before)) as Pick<Look, 'heap' | 'rss' | 'timers'>, handles }
}
