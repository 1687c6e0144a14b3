import { once } from 'node:events'
import type { Socket } from 'node:net'
import { test, type Test } from 'tap'
import { httpServerOptions } from '../../src/index.js'
import { exchange, listen, open, request, written } from '../support/connection.js'
import { build, host } from '../support/helper.js'
import { start } from '../support/process.js'
import { until } from '../support/until.js'

const tiny = 'GET /livez HTTP/1.1\r\nHost:\r\n\r\n'

test('a body of a million chunks does not end a process with a heap of 128 MB', async t => {
  const { port, isAlive } = await startSmall(t)
  const socket = open(port)
  socket.write('POST /api/items HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n')
  const chunks = Buffer.from('1\r\n \r\n'.repeat(10_000))
  for (let n = 0; n < 100; n++) if (!socket.write(chunks)) await Promise.race([once(socket, 'drain'), socket.received])
  socket.write('2\r\n{}\r\n0\r\n\r\n')
  t.match(String(await socket.received), /^HTTP\/1\.1 400 [^]*id is required/)
  await isAlive()
})

test('pipelined requests of clients that do not read do not end a process with a heap of 128 MB', async t => {
  const { port, isAlive } = await startSmall(t)
  const clients = Array.from({ length: 60 }, () => open(port).pause())
  await Promise.all(clients.map(client => once(client, 'connect')))
  // All of them are read in one turn of the event loop, as far as the service allows it.
  for (const client of clients) client.write('GET /redoc/redoc.standalone.js HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(6) + tiny.repeat(4500))
  for (let n = 0; n < 10; n++) await isAlive()
  for (const client of clients) client.destroy()
  await isAlive()
})

test('while pipelined requests wait, no more of them are read', async t => {
  const app = build(t)
  let parsed = 0
  let handled = 0
  let ahead = 0
  app.server.on('request', () => { ahead = Math.max(ahead, ++parsed - handled) })
  app.addHook('onResponse', async () => { handled++ })
  const { port } = await listen(app)
  const client = open(port)
  const post = written('POST', '/api/items', '{"id":2,"name":"Teapot","price":24.5}')
  const count = 5000
  client.end(Buffer.concat([...Array.from({ length: count }, () => post), Buffer.from(request('GET', '/livez'))]))
  const answers = String(await client.received)
  t.equal(answers.match(/HTTP\/1.1 201/g)?.length, count, 'all are answered')
  t.ok(ahead <= 2 + 65536 / post.length, `${ahead} requests were parsed ahead, those of 64 KiB`)
})

test('connections that have more than 10 waiting requests are closed while all connections have 5,000', async t => {
  const lines: string[] = []
  const app = host(t, { ...httpServerOptions, logger: { stream: { write: line => lines.push(line) } } })
  let release = () => {}
  const released = new Promise<void>(resolve => { release = resolve })
  app.get('/livez', async () => {
    await released
    return 'answered'
  })
  const { port } = await listen(app)
  const connections: Socket[] = []
  app.server.on('connection', socket => connections.push(socket))
  const clients = []
  while (!connections.at(-1)?.destroyed) {
    const client = open(port)
    clients.push(client)
    client.write(tiny.repeat(2000) + request('GET', '/livez'))
    await until(() => Number(connections[clients.length - 1]?.bytesRead) > 0)
  }
  t.ok(clients.length > 2, 'one connection can have thousands')
  const few = exchange(port, tiny.repeat(10) + request('GET', '/livez'))
  await until(() => Number(connections[clients.length]?.bytesRead) > 0)
  release()
  const counts = await Promise.all(clients.map(async client => String(await client.received).match(/answered/g)?.length ?? 0))
  t.same(counts, [...Array(clients.length - 1).fill(2001), 0])
  t.equal((await few).match(/answered/g)?.length, 11)
  const closed = lines.map(line => JSON.parse(line)).filter(({ reason }) => reason)
  t.match(closed, [{ msg: 'connection closed', res: undefined, reason: 'Too many pipelined requests' }], 'no response was sent')
  t.match(await exchange(port, tiny.repeat(2000) + request('GET', '/livez')), /answered$/, 'after that, there is room again')
})

for (const later of [tiny, tiny.replace('Host:', 'Host:x\r\nExpect:x')]) {
  test('requests after a rejected one of a connection are ignored, and there can be 5,000 of them', async t => {
    const app = host(t, httpServerOptions)
    let connection: Socket | undefined
    app.server.on('connection', socket => { connection = socket })
    const { port } = await listen(app)
    const rejected = 'GET / HTTP/1.1\r\nHost: not a host\r\n\r\n'
    const few = open(port, { allowHalfOpen: true })
    few.end(rejected + later.repeat(100))
    t.match(String(await few.received).match(/^HTTP.*$/gm), ['HTTP/1.1 400 '], 'the response arrives')
    const many = open(port)
    many.write(rejected + later.repeat(20_000))
    await many.received
    t.ok(connection?.destroyed && connection.bytesRead < later.length * 9000, 'not all of them are read')
  })
}

/** Starts a service with little memory. */
async function startSmall (t: Test, env: NodeJS.ProcessEnv = {}) {
  const server = start(t, { DOCS: 'true', ...env }, { built: true, flags: ['--max-old-space-size=128'] })
  const port = Number(new URL(await server.url).port)
  return { port, isAlive: async () => t.match(await exchange(port, request('GET', '/livez')), /^HTTP\/1\.1 200/, 'it is alive') }
}
