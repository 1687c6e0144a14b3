import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'tap'
import { Config } from '../../schemas/config.js'
import { readConfig } from '../../src/config.js'
import { open } from '../support/connection.js'
import { checkedFetch as fetch } from '../support/document.js'
import { start, takenPort } from '../support/process.js'
import { until } from '../support/until.js'

const defaults = {
  HOST: '127.0.0.1',
  LOG_LEVEL: 'info',
  ID_SOURCE: 'client',
  DATABASE_URL: 'memory',
  DATABASE_TIMEOUT: 5000,
  DATABASE_POOL_SIZE: 10,
  RATE_LIMIT_WINDOW: 60_000,
  SECURITY_HEADERS: false,
  SHUTDOWN_DELAY: 0,
  SHUTDOWN_TIMEOUT: 8000
}

test('a fault in the configuration is named with what the variable must be', async t => {
  for (const [env, message] of [
    [{ HOST: '' }, 'HOST must not be empty'],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent'],
    [{ PORT: '-1' }, 'PORT must be at least 0'],
    [{ PORT: '70000' }, 'PORT must be at most 65535']
  ] as const) t.throws(() => readConfig(env), { message: new RegExp(`^  ${message}$`, 'm') })
})

test('the configuration has its defaults, reads its variables and ignores all others', async t => {
  t.same(readConfig({}), {
    ...defaults, PORT: 3000, API_PREFIX: '/api', BODY_LIMIT: 1048576, DOCS: true
  })
  t.same(readConfig({ PORT: '0', API_PREFIX: '/api/v1', DOCS: 'false', BODY_LIMIT: '1', PATH: '/bin', port: '1' }), {
    ...defaults, PORT: 0, API_PREFIX: '/api/v1', BODY_LIMIT: 1, DOCS: false
  })
  t.equal(readConfig().PORT, 3000)
})

test('the README lists every variable with its default and description', async t => {
  const readme = await readFile('README.md', 'utf8')
  for (const [name, { default: value, description }] of Object.entries(Config.properties)) {
    t.match(readme, `| \`${name}\` | ${value === undefined ? '–' : `\`${value}\``} | ${description} |`)
  }
  t.equal(readme.match(/^\| `[A-Z_]+` \|/gm)?.length, Object.keys(Config.properties).length)
})

test('a bad configuration ends the process with one message that names every fault', async t => {
  const server = start(t, { HOST: '', PORT: '80x', LOG_LEVEL: 'loud', API_PREFIX: 'api/', DATABASE_URL: 'mysql://ada:sesame@db/items', DATABASE_POOL_SIZE: '1', BODY_LIMIT: '0', DOCS: 'yes' }, { built: true })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), [
    'The environment does not configure the service:',
    '  HOST must not be empty',
    '  PORT must be an integer',
    '  LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent',
    '  API_PREFIX must be a path such as `/api`, or several between commas, under which the collections are served',
    '  DATABASE_URL must be `memory`, `sqlite:PATH` or `postgres://…`, where the collections are kept',
    '  DATABASE_POOL_SIZE must be at least 2',
    '  BODY_LIMIT must be at least 1',
    '  DOCS must be a boolean',
    ''
  ].join('\n'))
})

test('a port that is taken is one clear line', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { PORT: String(port) }, { built: true })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), `Cannot listen on 127.0.0.1:${port}: the port is taken; set PORT to another one.\n`)
})

test('an address that cannot be listened on is one clear line', async t => {
  const server = start(t, { HOST: '/dev/null/x' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot listen on \/dev\/null\/x:0: .+\.\n$/)
})

test('it says where it is, logs one line a request, but for probes, and ends on SIGINT', async t => {
  const server = start(t)
  const url = await server.url
  t.equal((await fetch(`${url}/api/items?x=1`)).status, 200)
  t.equal((await fetch(`${url}/api/items/%zz`)).status, 400)
  t.equal((await fetch(`${url}/livez`)).status, 200)
  t.equal((await fetch(`${url}/readyz`)).status, 200)
  server.process.kill('SIGINT')
  t.same(await server.exit, [0, null])
  const lines = server.output().trim().split('\n').map(line => JSON.parse(line))
  t.equal(lines[0].msg, `API at ${url}/api, documentation at ${url}/docs and ${url}/redoc`)
  t.match(lines.slice(1, -1), [
    { level: 30, req: { method: 'GET', url: '/api/items?x=1', remoteAddress: '127.0.0.1' }, res: { statusCode: 200 }, responseTime: Number },
    { level: 30, req: { method: 'GET', url: '/api/items/%zz', remoteAddress: '127.0.0.1' }, res: { statusCode: 400 } }
  ])
  t.equal(lines.at(-1).msg, 'closing on SIGINT')
  t.equal(lines.length, 4)
})

test('without the pages, it does not speak of them', async t => {
  const server = start(t, { DOCS: 'false', API_PREFIX: '/v2' }, { built: true })
  const url = await server.url
  t.equal(JSON.parse(server.output().trim()).msg, `API at ${url}/v2`)
  t.equal((await fetch(`${url}/v2/items`)).status, 200)
  for (const path of ['/docs', '/redoc', '/openapi.json', '/api/items']) t.equal((await fetch(url + path)).status, 404)
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
})

test('on SIGTERM readiness turns 503, requests in flight finish and the process exits 0', async t => {
  const server = start(t, {}, { built: true })
  const url = await server.url
  const { port } = new URL(url)
  const slow = open(Number(port))
  const probe = open(Number(port))
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
})

test('connections that nobody has used do not hold it up', async t => {
  const server = start(t, { SHUTDOWN_TIMEOUT: '60000' }, { built: true })
  const { port } = new URL(await server.url)
  const unused = open(Number(port))
  await once(unused, 'connect')
  await fetch(await server.url)
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
  t.equal(String(await unused.received), '')
})

test('a signal that comes twice at once, as Ctrl-C does through npm, is one', async t => {
  for (const pause of [0, 1, 50]) {
    const server = start(t, { DOCS: 'false' }, { built: true })
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

test('a second signal ends it at once', async t => {
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
})

test('an error that nobody caught is logged and ends it', async t => {
  const server = start(t, {}, { script: 'process.on("SIGWINCH", () => { throw new Error("boom") })' })
  await server.url
  server.process.kill('SIGWINCH')
  t.same(await server.exit, [1, null])
  t.match(server.output(), /"level":60.*boom.*"msg":"closing after an error"/)
})

test('an error of our own at the start is shown with its stack', async t => {
  const server = start(t, {}, { script: 'import net from "node:net"; net.Server.prototype.listen = () => { throw new Error("boom") }' })
  t.same(await server.exit, [1, null])
  t.match(server.output(), /Error: boom\\n +at /)
})

test('a port that is taken is one clear line, and the end, whatever else has started', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { PORT: String(port), METRICS_PORT: '0', RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1', LOG_LEVEL: 'silent' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot listen on 127.0.0.1:\d+: the port is taken; set PORT to another one\.\n$/)
})

test('on SIGTERM it serves on for SHUTDOWN_DELAY, with readiness at 503, and then closes', async t => {
  const serving = start(t, { SHUTDOWN_DELAY: '600000' }, { built: true })
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
  closing.process.kill('SIGTERM')
  const began = performance.now()
  t.same(await closing.exit, [0, null])
  t.ok(performance.now() - began >= 700)
})

test('a signal that comes before it serves ends it at once', async t => {
  const { server: taken, port } = await takenPort(t)
  const server = start(t, { SHUTDOWN_DELAY: '600000', SHUTDOWN_TIMEOUT: '1000', DATABASE_URL: `postgres://127.0.0.1:${port}/x`, DATABASE_TIMEOUT: '4000' }, { built: true })
  await Promise.race([once(taken, 'connection'), server.exit])
  server.process.kill('SIGTERM')
  t.ok(await server.exit, 'not after ten minutes')
})

test('a request that never ends is given SHUTDOWN_TIMEOUT', async t => {
  const server = start(t, { SHUTDOWN_TIMEOUT: '300', DOCS: 'false' })
  const { port } = new URL(await server.url)
  const slow = open(Number(port))
  slow.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
  await fetch(`${await server.url}/livez`) // until that has come
  server.process.kill('SIGTERM')
  t.same(await server.exit, [1, null])
})
