import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { answersIn, connection, open, written } from '../support/connection.js'
import { until } from '../support/until.js'
import { seedOf, serve, type Scope, type Service } from './service.js'

const json = { 'content-type': 'application/json' }
const chunked = 'POST /api/users HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n' +
  '8\r\n{"id":2,\r\ne\r\n"name":"Alan"}\r\n0\r\n\r\n'

/** Complete requests, and their expected responses. */
const whole = [
  { status: 200, bytes: written('GET', '/api/items/1') },
  { status: 200, bytes: written('GET', '/api/users?limit=2') },
  { status: 404, bytes: written('GET', '/nowhere') },
  { status: 405, bytes: written('PUT', '/api/items', '{}') },
  { status: 400, bytes: written('POST', '/api/items', '{"id":') },
  { status: 201, bytes: written('POST', '/api/users', '{"id":2,"name":"Grace"}', json) },
  { status: 201, bytes: Buffer.from(chunked) }
]

/** Ways in which requests can be corrupted. */
const harm = fc.record({
  at: fc.nat(),
  remove: fc.nat({ max: 20 }),
  insert: fc.oneof(
    fc.uint8Array({ maxLength: 5 }),
    fc.constantFrom('', '\r\n', '\n', '\0', ':', '0\r\n\r\n', 'Content-Length: 0\r\n', '\r\nContent-Length: 99')
      .map(text => Buffer.from(text))
  )
})

/**
 * Sends many requests on each of many connections, cut into pieces anywhere. They are answered in their order. If they
 * are corrupted, the answers are still answers, and there is a record for every 201.
 */
export async function mangled (url: string, runs: number) {
  const before = await count()
  let created = 0
  let unread = 0
  const cuts = fc.array(fc.nat(), { maxLength: 12 })
  const requests = fc.array(fc.constantFrom(...whole), { minLength: 1, maxLength: 6 })
  const sent = fc.asyncProperty(requests, cuts, fc.option(harm, { freq: 2 }), async (requests, cuts, harm) => {
    const sound = Buffer.concat(requests.map(({ bytes }) => bytes))
    const at = harm ? harm.at % sound.length : sound.length
    const rest = harm ? [harm.insert, sound.subarray(at + harm.remove)] : []
    const received = await send(url, Buffer.concat([sound.subarray(0, at), ...rest]), cuts)
    const statuses = received ? answersIn(received).map(({ status }) => status) : []
    created += statuses.filter(status => status === 201).length
    // Node answers what it cannot parse before the requests that are still in progress.
    if (harm) unread += requests.length
    else deepStrictEqual(statuses, requests.map(({ status }) => status))
    ok(statuses.every(status => status < 500 || status === 501), statuses.join())
  })
  await fc.assert(sent, { numRuns: runs, ...seedOf() })
  const difference = await count() - before - created
  ok(difference >= 0 && difference <= unread, `${difference} records came from nowhere`)

  async function count () {
    return (await (await fetch(`${url}/api/users`)).json() as unknown[]).length
  }
}

/** Sends bytes in pieces and returns the answers, or nothing if the system has cut off the connection before. */
async function send (url: string, bytes: Buffer, cuts: number[]) {
  const socket = open(url)
  const ends = [...cuts.map(cut => cut % bytes.length), bytes.length].sort((a, b) => a - b)
  for (const [n, end] of ends.entries()) {
    socket.write(bytes.subarray(ends[n - 1] ?? 0, end))
    await nextTurn()
  }
  socket.end() // closes one side of the connection; requests that were sent still get responses
  const received = await Promise.race([socket.received, sleep(60_000, undefined, { ref: false })])
  ok(received, 'the connection is ended')
  return socket.errored ? undefined : received
}

/** Clients that request a long list and do not read it use little memory for it, and others are served. */
export async function neverReads (scope: Scope, records: number, name: string) {
  const readers = 10
  const service = await serve(scope)
  const { url } = service
  const { socket, send } = connection(url)
  for (let count = 1; count < records;) {
    const item = () => send(written('POST', '/api/items', JSON.stringify({ id: ++count, name, price: 1.5 })))
    const answers = await Promise.all(Array.from({ length: Math.min(200, records - count) }, item))
    for (const { status } of answers) equal(status, 201)
  }
  const before = residentOf(service)
  const idle = Array.from({ length: readers }, () => {
    const socket = open(url).pause()
    socket.write(written('GET', '/api/items'))
    return socket
  })
  scope.teardown(() => idle.forEach(socket => socket.destroy()))
  for (let n = 0; n < 20; n++) equal((await fetch(`${url}/api/items/1`)).status, 200)
  const megabytes = (residentOf(service) - before) / 1024
  const lists = records * name.length * readers / 1024 / 1024
  ok(megabytes < lists / 2, `${megabytes} MB more, and the lists have ${lists} MB`)
  const { body } = await send(written('GET', '/api/items'))
  equal(JSON.parse(String(body)).length, records, 'who reads it gets all of it')
  socket.destroy()
}

/** The memory of a service, in kilobytes. */
function residentOf ({ process }: Service) {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.pid}/status`, 'utf8'))?.[1])
}

/** Makes a service report its memory and timers after a signal. */
const reporter = `process.on('SIGWINCH', () => {
  gc()
  const { heapUsed: heap, rss } = process.memoryUsage()
  const timers = process.getActiveResourcesInfo().filter(name => name === 'Timeout').length
  process.stderr.write(JSON.stringify({ heap, rss, timers }) + '\\n')
})`

/** Loads a service for so many seconds. Returns how its memory, handles and timers have grown since the first half. */
export async function growth (scope: Scope, url: string, seconds: number) {
  const service = await serve(scope, { DATABASE_URL: url }, { script: reporter, flags: ['--expose-gc'] })
  await load(service, seconds / 2)
  const first = await measure(service)
  await load(service, seconds / 2)
  const last = await measure(service)
  return {
    heap: last.heap / first.heap,
    rss: last.rss / first.rss,
    handles: last.handles - first.handles,
    timers: last.timers - first.timers
  }
}

/** Clients that send requests of all kinds for so many seconds. What they create, they also delete. */
async function load ({ url }: Service, seconds: number) {
  const end = performance.now() + seconds * 1000
  await Promise.all(Array.from({ length: 32 }, async (_, n) => {
    const { socket, send } = connection(url)
    const id = 1000 + n
    const cycle = [
      { status: 201, request: written('POST', '/api/users', JSON.stringify({ id, name: `client ${n}` })) },
      { status: 200, request: written('GET', `/api/users/${id}`) },
      { status: 200, request: written('GET', '/api/users') },
      { status: 200, request: written('GET', '/api/items?limit=10') },
      { status: 400, request: written('POST', '/api/items', '{"id":"1"}') },
      { status: 404, request: written('GET', '/api/items/8') },
      { status: 204, request: written('DELETE', `/api/users/${id}`) }
    ]
    while (performance.now() < end) {
      for (const { status, request } of cycle) equal((await send(request)).status, status)
    }
    socket.destroy()
  }))
}

async function measure ({ process, errors }: Service) {
  const before = errors().length
  process.kill('SIGWINCH')
  await until(() => errors().length > before && errors().endsWith('\n'))
  const handles = readdirSync(`/proc/${process.pid}/fd`).length
  return { ...JSON.parse(errors().slice(before)) as { heap: number, rss: number, timers: number }, handles }
}
