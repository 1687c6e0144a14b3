import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'tap'
import { open } from '../support/connection.js'
import { checkedFetch as fetch } from '../support/document.js'
import { start, takenPort, withoutPackage } from '../support/process.js'
import { until } from '../support/until.js'

test('a service whose dependencies are not installed ends with one clear line', async t => {
  const server = start(t, {}, { script: withoutPackage('close-with-grace') })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot find package .+\. Install the dependencies with: npm ci\n$/)
})

test('a PORT that is in use ends the process with one clear line', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { PORT: String(port) })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), `Cannot listen on 127.0.0.1:${port}: the port is in use. Set PORT or --port to another port.\n`)
})

test('a HOST that cannot be used ends the process with one clear line', async t => {
  const server = start(t, { HOST: '/dev/null/x' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot listen on \/dev\/null\/x:0: .+\.\n$/)
})

test('the service logs its address and one line per request, except probes, and stops on SIGINT', async t => {
  const server = start(t, { DOCS: 'true' })
  const url = await server.url
  t.equal((await fetch(`${url}/api/items?x=1`)).status, 200)
  t.equal((await fetch(`${url}/api/items/%zz`)).status, 400)
  t.equal((await fetch(`${url}/livez`)).status, 200)
  t.equal((await fetch(`${url}/readyz`)).status, 200)
  server.process.kill('SIGINT')
  t.same(await server.exit, [0, null])
  const lines = server.output().trim().split('\n').map(line => JSON.parse(line))
  t.equal(lines[0].msg, `API at ${url}/api, documentation at ${url}/docs and ${url}/redoc. Collections: items, users. Storage: memory (data is lost on exit)`)
  t.match(lines.slice(1, -1), [
    { level: 30, req: { method: 'GET', url: '/api/items?x=1', remoteAddress: '127.0.0.1' }, res: { statusCode: 200 }, responseTime: Number },
    { level: 30, req: { method: 'GET', url: '/api/items/%zz', remoteAddress: '127.0.0.1' }, res: { statusCode: 400 } }
  ])
  t.equal(lines.at(-1).msg, 'closing on SIGINT')
  t.equal(lines.length, 4)
})

test('with DOCS=false, the documentation pages are not served or mentioned', async t => {
  const server = start(t, { DOCS: 'false', API_PREFIX: '/v2' })
  const url = await server.url
  t.equal(JSON.parse(server.output().trim()).msg, `API at ${url}/v2. Collections: items, users. Storage: memory (data is lost on exit)`)
  t.equal((await fetch(`${url}/v2/items`)).status, 200)
  for (const path of ['/docs', '/redoc', '/openapi.json', '/api/items']) t.equal((await fetch(url + path)).status, 404)
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
})

test('after SIGTERM, readiness is 503, open requests finish, and the process exits with 0 without waiting for unused connections', async t => {
  const server = start(t, {})
  const url = await server.url
  const { port } = new URL(url)
  const slow = open(Number(port))
  const probe = open(Number(port))
  const unused = open(Number(port))
  await once(unused, 'connect')
  slow.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
  probe.write('GET /readyz HTTP/1.1\r\n')
  await fetch(`${await server.url}/livez`) // until that has come
  server.process.kill('SIGTERM')
  await server.says('closing on SIGTERM')
  await until(() => fetch(`${url}/livez`).then(() => false, () => true))
  probe.write('Host: x\r\n\r\n')
  t.match(String(await probe.received), /^HTTP\/1.1 503 .*connection: close.*\r\n\r\n{"detail":"Shutting down"}$/is)
  slow.write('"name":"x","price":1}')
  t.match(String(await slow.received), /^HTTP\/1.1 201 .*\r\n\r\n{"id":2,"name":"x","price":1}$/s)
  t.same(await server.exit, [0, null])
  t.equal(String(await unused.received), '')
})

test('two signals at once, as with Ctrl-C and npm, count as one', async t => {
  for (const pause of [0, 1, 50]) {
    const server = start(t, {}, { script: 'const now = Date.now(); Date.now = () => now' }) // so that a busy machine does not make the pause longer
    const { port } = new URL(await server.url)
    const slow = open(Number(port))
    slow.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
    await fetch(`${await server.url}/livez`) // until that has come
    server.process.kill('SIGINT')
    if (pause) await sleep(pause)
    server.process.kill('SIGINT')
    await server.says('closing on SIGINT')
    slow.write('"name":"x","price":1}')
    t.match(String(await slow.received), /^HTTP\/1.1 201 /)
    t.same(await server.exit, [0, null])
  }
})

test('a second signal exits at once', async t => {
  const server = start(t)
  const { port } = new URL(await server.url)
  const hanging = open(Number(port))
  hanging.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
  await fetch(`${await server.url}/livez`) // until that has come
  server.process.kill('SIGTERM')
  await server.says('closing on SIGTERM')
  await sleep(600) // for a signal that comes sooner is the same one
  server.process.kill('SIGTERM')
  t.same(await server.exit, [1, null])
  t.match(server.output(), /second SIGTERM, exiting/)
  t.equal(server.errors(), '', 'not after SHUTDOWN_TIMEOUT')
})

test('an uncaught error is logged and ends the process', async t => {
  const server = start(t, {}, { script: 'process.on("SIGWINCH", () => { throw new Error("boom") })' })
  await server.url
  server.process.kill('SIGWINCH')
  t.same(await server.exit, [1, null])
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

test('a PORT that is in use ends the process, also if the metrics server has started', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { PORT: String(port), METRICS_PORT: '0', RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1', LOG_LEVEL: 'silent' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot listen on 127.0.0.1:\d+: the port is in use\. Set PORT or --port to another port\.\n$/)
})

test('after SIGTERM, the service keeps serving for SHUTDOWN_DELAY with readiness at 503, and then closes', async t => {
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
  closing.process.kill('SIGTERM')
  t.same(await closing.exit, [0, null])
  t.ok(performance.now() - began >= 700)
})

test('a signal during startup exits at once', async t => {
  const { server: taken, port } = await takenPort(t)
  const server = start(t, { SHUTDOWN_DELAY: '600000', DATABASE_URL: `postgres://127.0.0.1:${port}/x`, DATABASE_TIMEOUT: '600000' })
  await Promise.race([once(taken, 'connection'), server.exit])
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null], 'it does not wait for the database')
  t.notMatch(server.output(), 'API at')
})

test('a signal while the service is loading exits at once', async t => {
  const server = start(t, {}, {
    script: `import { register } from 'node:module'
      register('data:text/javascript,' + encodeURIComponent(\`export function load (url, context, next) {
        if (url.endsWith('/src/app.js')) process.kill(process.pid, 'SIGTERM')
        return next(url, context)
      }\`))`
  })
  t.same(await server.exit, [0, null])
})

test('if nobody reads the log any more, the service runs and closes', async t => {
  const server = start(t, {})
  const url = await server.url
  server.process.stdout.destroy()
  for (let n = 0; n < 3; n++) t.equal((await fetch(`${url}/api/items`)).status, 200)
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
  t.equal(server.errors(), '')
})

test('a request that does not end is aborted after SHUTDOWN_TIMEOUT', async t => {
  const server = start(t, { SHUTDOWN_TIMEOUT: '300' })
  const { port } = new URL(await server.url)
  const slow = open(Number(port))
  slow.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
  await fetch(`${await server.url}/livez`) // until that has come
  server.process.kill('SIGTERM')
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), 'killed by timeout (300ms)\n')
})
