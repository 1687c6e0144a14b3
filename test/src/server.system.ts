import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'tap'
import { connection, open, written } from '../support/connection.js'
import { checkedFetch as fetch } from '../support/document.js'
import { start, takenPort, withoutPackage } from '../support/process.js'
import { until } from '../support/until.js'

type Server = ReturnType<typeof start>

const created = /^HTTP\/1.1 201 .*\r\n\r\n{"id":2,"name":"x","price":1}$/s

/** Sends a request without the end of its body, which the returned function sends. */
async function sendPartly (server: Server) {
  const url = await server.url
  const client = open(url)
  client.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
  await fetch(`${url}/livez`) // until that has come
  return async function sendRest () {
    client.write('"name":"x","price":1}')
    return String(await client.received)
  }
}

async function stop (server: Server, signal: NodeJS.Signals = 'SIGTERM') {
  server.process.kill(signal)
  return server.exit
}

test('a service that cannot start ends with one clear line', async t => {
  const { port } = await takenPort(t)
  const inUse = `Cannot listen on 127.0.0.1:${port}: the port is in use. Set PORT or --port to another port.\n`
  // what has started already does not keep the process running
  const more = { METRICS_PORT: '0', RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1', LOG_LEVEL: 'silent' }
  for (const [env, script, line] of [
    [{}, withoutPackage('close-with-grace'), /^Cannot find package .+\. Install the dependencies with: npm ci\n$/],
    [{ PORT: String(port) }, '', inUse],
    [{ PORT: String(port), ...more }, '', inUse],
    [{ HOST: '/dev/null/x' }, '', /^Cannot listen on \/dev\/null\/x:0: .+\.\n$/]
  ] as const) {
    const server = start(t, env, { script })
    t.same(await server.exit, [1, null])
    t.match(server.errors(), line)
  }
})

test('the service logs its address and one line per request, except probes, and stops on SIGINT', async t => {
  const server = start(t, { DOCS: 'true' })
  const url = await server.url
  for (const [path, status] of [['/api/items?x=1', 200], ['/api/items/%zz', 400], ['/livez', 200], ['/readyz', 200]]) {
    t.equal((await fetch(`${url}${path}`)).status, status)
  }
  t.same(await stop(server, 'SIGINT'), [0, null])
  const lines = server.output().trim().split('\n').map(line => JSON.parse(line))
  const pages = `documentation at ${url}/docs and ${url}/redoc`
  t.match(lines, [
    { msg: `API at ${url}/api, ${pages}. Collections: items, users. Storage: memory (data is lost on exit)` },
    { req: { method: 'GET', url: '/api/items?x=1', remoteAddress: '127.0.0.1' }, res: { statusCode: 200 } },
    { req: { method: 'GET', url: '/api/items/%zz', remoteAddress: '127.0.0.1' }, res: { statusCode: 400 } },
    { msg: 'closing on SIGINT' }
  ])
  t.equal(lines.length, 4)
})

test('with DOCS=false, the documentation pages are not served or mentioned', async t => {
  const server = start(t, { DOCS: 'false', API_PREFIX: '/v2' })
  const url = await server.url
  t.match(server.output(), `API at ${url}/v2. Collections: items, users.`)
  t.equal((await fetch(`${url}/v2/items`)).status, 200)
  for (const path of ['/docs', '/redoc', '/openapi.json', '/api/items']) t.equal((await fetch(url + path)).status, 404)
})

test('after SIGTERM, open requests finish, and the process exits without waiting for others', async t => {
  const server = start(t)
  const url = await server.url
  const [probe, unused] = [open(url), open(url)]
  await once(unused, 'connect')
  probe.write('GET /readyz HTTP/1.1\r\n')
  const sendRest = await sendPartly(server)
  server.process.kill('SIGTERM')
  await server.says('closing on SIGTERM')
  await until(() =>
    fetch(`${url}/livez`).then(
      () => false,
      () => true
    )
  )
  probe.write('Host: x\r\n\r\n')
  const readiness = String(await probe.received)
  t.match(readiness, /^HTTP\/1.1 503 .*connection: close.*\r\n\r\n{"detail":"Shutting down"}$/is)
  t.match(await sendRest(), created)
  t.same(await server.exit, [0, null])
  t.equal(String(await unused.received), '')
  t.equal(server.errors(), '')
})

test('two signals at once, as with Ctrl-C and npm, count as one', async t => {
  // so that a busy machine does not make the pause longer
  const server = start(t, {}, { script: 'const now = Date.now(); Date.now = () => now' })
  const sendRest = await sendPartly(server)
  server.process.kill('SIGINT')
  await server.says('closing on SIGINT')
  server.process.kill('SIGINT')
  await sleep(50)
  t.match(await sendRest(), created)
  t.same(await server.exit, [0, null])
})

test('a second signal exits at once', async t => {
  const server = start(t)
  await sendPartly(server)
  server.process.kill('SIGTERM')
  await server.says('closing on SIGTERM')
  await sleep(600) // for a signal that comes sooner is the same one
  t.same(await stop(server), [1, null])
  t.match(server.output(), /second SIGTERM, exiting/)
  t.equal(server.errors(), '', 'not after SHUTDOWN_TIMEOUT')
})

test('a request that does not end is aborted after SHUTDOWN_TIMEOUT', async t => {
  const server = start(t, { SHUTDOWN_TIMEOUT: '300' })
  await sendPartly(server)
  t.same(await stop(server), [1, null])
  t.equal(server.errors(), 'killed by timeout (300ms)\n')
})

test('an uncaught error is logged and ends the process', async t => {
  const server = start(t, {}, { script: 'process.on("SIGWINCH", () => { throw new Error("boom") })' })
  await server.url
  t.same(await stop(server, 'SIGWINCH'), [1, null])
  t.match(server.output(), /"level":60.*boom.*"msg":"closing after an error"/)
})

test('an unexpected error during startup is shown with its stack', async t => {
  const script = 'import net from "node:net"; net.Server.prototype.listen = () => { throw new Error("boom") }'
  const server = start(t, {}, { script })
  t.same(await server.exit, [1, null])
  t.match(server.output(), /Error: boom\\n +at /)

  const silent = start(t, { LOG_LEVEL: 'silent' }, { script })
  t.same(await silent.exit, [1, null])
  t.match(silent.errors(), /^Error: boom\n +at /)
})

test('for SHUTDOWN_DELAY after SIGTERM, the service keeps serving with readiness at 503', async t => {
  const serving = start(t, { SHUTDOWN_DELAY: '600000' })
  const url = await serving.url
  serving.process.kill('SIGTERM')
  await until(async () => (await fetch(`${url}/readyz`)).status === 503)
  t.same(await (await fetch(`${url}/readyz`)).json(), { detail: 'Shutting down' })
  t.equal((await fetch(`${url}/livez`)).status, 200)
  const { status, headers } = await fetch(`${url}/api/items`)
  t.equal(status, 200)
  t.equal(headers.get('connection'), 'close', 'whoever keeps a connection finds another one')

  const closing = start(t, { SHUTDOWN_DELAY: '700' })
  await closing.url
  const began = performance.now()
  t.same(await stop(closing), [0, null])
  t.ok(performance.now() - began >= 700)
})

test('for SHUTDOWN_DELAY after SIGTERM, a client that still sends a body gets the response', async t => {
  const server = start(t, { SHUTDOWN_DELAY: '600000' })
  const url = await server.url
  server.process.kill('SIGTERM')
  await until(async () => (await fetch(`${url}/readyz`)).status === 503)
  for (const [method, target, status] of [['POST', '/nowhere', 404], ['PUT', '/api/items', 405]] as const) {
    for (let n = 0; n < 20; n++) {
      const { socket, send } = connection(url)
      const answer = send(written(method, target, undefined, { 'content-length': '100000' }))
      await sleep(5)
      for (let part = 0; part < 10 && socket.writable; part++) socket.write(' '.repeat(10_000))
      t.equal((await answer).status, status)
      t.equal((await send(written('GET', '/livez'))).headers.connection, 'close', 'it is closed afterwards')
    }
  }
})

test('a signal during startup exits at once', async t => {
  const { server: taken, port } = await takenPort(t)
  const DATABASE_URL = `postgres://127.0.0.1:${port}/x`
  const server = start(t, { SHUTDOWN_DELAY: '600000', DATABASE_URL, DATABASE_TIMEOUT: '600000' })
  await Promise.race([once(taken, 'connection'), server.exit])
  t.same(await stop(server), [0, null], 'it does not wait for the database')
  t.notMatch(server.output(), 'API at')
})

test('if nobody reads the log any more, the service runs and closes', async t => {
  const server = start(t)
  const url = await server.url
  server.process.stdout.destroy()
  for (let n = 0; n < 3; n++) t.equal((await fetch(`${url}/api/items`)).status, 200)
  t.same(await stop(server), [0, null])
  t.equal(server.errors(), '')
})
