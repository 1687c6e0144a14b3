import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { answersIn, connection, open, written } from '../support/connection.js'
import { quantile } from './figures.js'
import { seedOf } from './seed.js'
import { serve, type Scope, type Service } from './service.js'

/** Complete requests, and their expected responses. */
const whole = [
  { status: 200, bytes: written('GET', '/api/items/1') },
  { status: 200, bytes: written('GET', '/api/users?limit=2') },
  { status: 404, bytes: written('GET', '/nowhere') },
  { status: 405, bytes: written('PUT', '/api/items', '{}') },
  { status: 400, bytes: written('POST', '/api/items', '{"id":') },
  { status: 400, bytes: written('POST', '/api/users', Buffer.from('{"id":1,"name":"\xff"}', 'latin1')) },
  { status: 201, bytes: written('POST', '/api/users', '{"id":2,"name":"Grace"}', { 'content-type': 'application/json' }) },
  { status: 201, bytes: Buffer.from('POST /api/users HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"id":2,\r\ne\r\n"name":"Alan"}\r\n0\r\n\r\n') }
]

/** Ways in which a request can be corrupted. */
const harm = fc.oneof(
  fc.record({ at: fc.nat(), remove: fc.nat({ max: 20 }), insert: fc.constant(Buffer.alloc(0)) }),
  fc.record({ at: fc.nat(), remove: fc.constant(0), insert: fc.uint8Array({ maxLength: 5 }) }),
  fc.record({
    at: fc.nat(),
    remove: fc.constant(0),
    insert: fc.constantFrom('\r\n', '\n', '\r', '\0', ' ', '\t', ':', '0\r\n\r\n', 'Content-Length: 0\r\n', 'Transfer-Encoding: chunked\r\n', '\r\nContent-Length: 99').map(text => Buffer.from(text))
  })
)

/**
 * Sends many requests on each of many connections, cut into pieces anywhere. They are answered in their order. If they
 * are corrupted, the answers are still answers, and there is a record for every 201.
 */
export async function mangled (url: string, { runs, progress }: { runs: number, progress? (done: number): void }) {
  const before = await count()
  let created = 0
  let unread = 0
  let cutOff = 0
  let reset = 0
  let done = 0

  const cuts = fc.array(fc.nat(), { maxLength: 12 })
  const requests = fc.array(fc.constantFrom(...whole), { minLength: 1, maxLength: 6 })
  const { failed, counterexample, errorInstance, seed } = await fc.check(fc.asyncProperty(requests, cuts, fc.option(harm, { freq: 2 }), fc.nat({ max: 9 }), async (requests, cuts, harm, fate) => {
    const sound = Buffer.concat(requests.map(({ bytes }) => bytes))
    const at = harm ? harm.at % sound.length : sound.length
    const bytes = harm ? Buffer.concat([sound.subarray(0, at), harm.insert, sound.subarray(at + harm.remove)]) : sound
    if (++done % 100 === 0) progress?.(done)
    const received = await send(bytes, cuts, fate === 0)
    if (received === undefined) {
      reset++
      unread += requests.length // they may have been served, but nobody has read the responses
      return
    }
    if (received === 'cut off') {
      cutOff++
      unread += requests.length
      ok(harm, 'only who comes to harm is cut off')
      return
    }
    const statuses = answersIn(received).map(({ status }) => status)
    created += statuses.filter(status => status === 201).length
    // Node answers what it cannot parse before the requests that are still in progress.
    if (harm) unread += requests.length
    else deepStrictEqual(statuses, requests.map(({ status }) => status))
    ok(statuses.every(status => status < 500 || status === 501), statuses.join())
  }), { numRuns: runs, ...seedOf() })
  if (failed) throw new Error(`${errorInstance}\n${described(counterexample)}\nTEST_SEED=${seed}`, { cause: errorInstance })

  const difference = await count() - before - created
  ok(difference >= 0 && difference <= unread, `${difference} records came from nowhere`)
  ok(cutOff < done / 20, `${cutOff} connections were cut off`)
  return { connections: done, reset, cutOff, created, seed }

  async function count () {
    return (await (await fetch(`${url}/api/users`)).json() as unknown[]).length
  }

  /**
   * Sends bytes in pieces, and gives all that comes back; or resets the connection before it does. Who goes on sending to
   * a connection that was ended with an answer is cut off by the system, seldom before the answer is there.
   */
  async function send (bytes: Buffer, cuts: number[], resets: boolean) {
    const socket = open(url)
    const ends = [...cuts.map(cut => cut % bytes.length), bytes.length].sort((a, b) => a - b)
    for (const [n, end] of ends.entries()) {
      socket.write(bytes.subarray(ends[n - 1] ?? 0, end))
      await nextTurn()
    }
    if (resets) {
      await nextTurn()
      socket.resetAndDestroy()
    } else {
      socket.end() // closes one side of the connection; requests that were sent still get responses
      const hangs = sleep(60_000, 'hangs', { ref: false })
      equal(await Promise.race([socket.received, hangs]) === 'hangs', false, 'the connection is not ended')
    }
    return resets ? undefined : socket.errored ? 'cut off' : socket.received
  }
}

/** The sent text in readable form. */
function described (sent: [typeof whole, number[], unknown, number] | null) {
  const [requests = [], ...rest] = sent ?? []
  return JSON.stringify([requests.map(({ bytes }) => bytes.toString('latin1')), ...rest])
}

/**
 * Many clients send their headers or their bodies a byte at a time. Another client is served meanwhile. With `toTheEnd`,
 * each slow client must get a 408.
 */
export async function slowClients (scope: Scope, { clients, requests, toTheEnd = false }: { clients: number, requests: number, toTheEnd?: boolean }) {
  const { url } = await serve(scope)
  await latencies(url, requests / 2) // warms up
  const alone = await latencies(url, requests)
  const slow = Array.from({ length: clients }, (_, n) => {
    const socket = open(url)
    const told = new Promise<number[]>(resolve => {
      socket.on('data', data => resolve(answersIn(data).map(({ status }) => status))).on('close', () => resolve([]))
    })
    socket.write(n % 2 ? 'GET /api/items HTTP/1.1\r\nHost: x\r\nX: ' : 'POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n')
    return { socket, told }
  })
  scope.teardown(() => slow.forEach(({ socket }) => socket.destroy()))
  await Promise.all(slow.map(({ socket }) => once(socket, 'connect')))
  const dribble = setInterval(() => slow.forEach(({ socket }) => socket.write('x')), 500)
  scope.teardown(() => clearInterval(dribble))
  const beside = await latencies(url, requests)
  ok(slow.every(({ socket }) => !socket.destroyed), 'they are all there still')
  if (toTheEnd) for (const { told } of slow) deepStrictEqual(await told, [408])
  return { clients, ...compared(alone, beside) }
}

/** Clients that request a long list and do not read it use little memory for it, and others are served. */
export async function neverReads (scope: Scope, { records, name, readers, requests }: { records: number, name: string, readers: number, requests: number }) {
  const service = await serve(scope)
  const { url } = service
  await fill(scope, url, records, name)
  await latencies(url, requests / 2) // warms up
  const alone = await latencies(url, requests)
  const before = residentOf(service)
  const idle = Array.from({ length: readers }, () => {
    const socket = open(url).pause()
    socket.write(written('GET', '/api/items'))
    return socket
  })
  scope.teardown(() => idle.forEach(socket => socket.destroy()))
  const beside = await latencies(url, requests)
  const megabytes = (residentOf(service) - before) / 1024
  const lists = records * name.length * readers / 1024 / 1024
  ok(megabytes < lists / 2, `${megabytes} MB more, and the lists have ${lists} MB`)
  const { body } = await connection(url).send(written('GET', '/api/items', undefined, { connection: 'close' }))
  equal(JSON.parse(String(body)).length, records, 'who reads it gets all of it')
  return { records, readers, megabytes, ...compared(alone, beside) }
}

/** The latencies of a client that is served alone and next to others, and the ratio of their sums. */
function compared (alone: number[], beside: number[]) {
  return { alone: quantile(alone, 0.99), beside: quantile(beside, 0.99), longest: Math.max(...beside), slowdown: sum(beside) / sum(alone) }
}

function sum (values: number[]) {
  return values.reduce((total, value) => total + value, 0)
}

/** Creates items up to this number. */
async function fill (scope: Scope, url: string, records: number, name: string) {
  const { socket, send } = connection(url)
  for (let count = 1; count < records;) {
    scope.comment(`record ${count} of ${records}`)
    const item = () => send(written('POST', '/api/items', JSON.stringify({ id: ++count, name, price: 1.5 })))
    const answers = await Promise.all(Array.from({ length: Math.min(200, records - count) }, item))
    for (const { status } of answers) equal(status, 201)
  }
  socket.destroy()
}

/** The latencies of a client that sends one request after the other. All of them must be served. */
async function latencies (url: string, requests: number) {
  const { socket, send } = connection(url)
  const taken: number[] = []
  const request = written('GET', '/api/items/1')
  while (taken.length < requests) {
    const began = performance.now()
    equal((await send(request)).status, 200)
    taken.push(performance.now() - began)
    await sleep(1)
  }
  socket.destroy()
  return taken
}

/** The memory of a service, in kilobytes. */
function residentOf ({ process }: Service) {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.pid}/status`, 'utf8'))?.[1])
}
