import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'tap'
import { Config } from '../../schemas/config.js'
import { misspelled, readCommandLine, readConfig, storageOf } from '../../src/config.js'
import { open } from '../support/connection.js'
import { checkedFetch as fetch } from '../support/document.js'
import { newFolder } from '../support/folder.js'
import { start, takenPort, withoutPackage } from '../support/process.js'
import { until } from '../support/until.js'

const defaults = {
  HOST: '127.0.0.1',
  LOG_LEVEL: 'info',
  ID_SOURCE: 'client',
  DATABASE_URL: 'memory',
  DATABASE_TIMEOUT: 5000,
  DATABASE_POOL_SIZE: 10,
  SEED: true,
  RATE_LIMIT_WINDOW: 60_000,
  SECURITY_HEADERS: false,
  METRICS_HOST: '127.0.0.1',
  SHUTDOWN_DELAY: 0,
  SHUTDOWN_TIMEOUT: 8000
}

test('each invalid variable is reported with what it must be', async t => {
  for (const [env, message] of [
    [{ HOST: '' }, 'HOST must not be empty'],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent, not "loud"'],
    [{ PORT: '-1' }, 'PORT must be at least 0, not -1'],
    [{ PORT: '70000' }, 'PORT must be at most 65535, not 70000'],
    [{ REDIS_URL: 'redis://:sesame@host' }, 'REDIS_URL needs RATE_LIMIT_MAX'],
    [{ METRICS_PORT: '3000' }, 'METRICS_PORT and PORT must be different']
  ] as const) t.throws(() => readConfig(env), { message: new RegExp(`^  ${message}$`, 'm') })
})

test('the configuration has defaults, reads its variables and ignores others', async t => {
  t.same(readConfig({}), {
    ...defaults, PORT: 3000, API_PREFIX: '/api', BODY_LIMIT: 1048576, DOCS: true
  })
  t.same(readConfig({ PORT: '0', API_PREFIX: '/api/v1', DOCS: 'false', BODY_LIMIT: '1', PATH: '/bin', port: '1' }), {
    ...defaults, PORT: 0, API_PREFIX: '/api/v1', BODY_LIMIT: 1, DOCS: false
  })
  t.equal(readConfig().PORT, 3000)
  t.match(readConfig({ PORT: '0', METRICS_PORT: '0' }), { PORT: 0, METRICS_PORT: 0 })
})

test('an invalid configuration ends the process with one message that lists all problems', async t => {
  const server = start(t, { HOST: '', PORT: '80x', LOG_LEVEL: 'loud', API_PREFIX: 'api/', DATABASE_URL: 'mysql://ada:sesame@db/items', DATABASE_POOL_SIZE: '1', BODY_LIMIT: '0', DOCS: 'yes' }, { built: true })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), [
    'Invalid configuration:',
    '  HOST must not be empty',
    '  PORT must be an integer, not "80x"',
    '  LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent, not "loud"',
    '  API_PREFIX must be a path such as /api, or several paths separated by commas',
    '  DATABASE_URL must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE',
    '  DATABASE_POOL_SIZE must be at least 2, not 1',
    '  BODY_LIMIT must be at least 1, not 0',
    '  DOCS must be true or false, not "yes"',
    ''
  ].join('\n'))
})

test('--help shows the options, all variables with their defaults and units, and examples', async t => {
  const server = start(t, { PORT: 'invalid' }, { args: ['--help'] })
  t.same(await server.exit, [0, null])
  t.equal(server.errors(), '')
  const help = server.output()
  t.match(help, /^Usage: fastify-items-users \[options\]\n/)
  for (const option of ['--host HOST', '--port PORT', '--database DATABASE_URL', '--collections COLLECTIONS_FILE', '-h, --help', '-v, --version']) t.match(help, `\n  ${option} `)
  const words = help.replaceAll(/\s+/g, ' ')
  for (const [name, { default: value, description }] of Object.entries(Config.properties)) {
    t.match(words, ` ${name} ${String(description).replaceAll('`', '')}${value === undefined ? '' : ' ('}`)
    if (value !== undefined) t.match(words, `default: ${value})`)
  }
  t.match(words, 'Maximum time for the database operations of a request, in milliseconds (default: 5000)')
  t.match(words, '(one of client, server; default: client)')
  t.match(help, /\nExamples:\n {2}fastify-items-users --port 8080\n/)
  t.ok(help.split('\n').every(line => line.length <= 80))
  t.same(readCommandLine(['-h']), { text: help.trimEnd() })
})

test('--version shows the version of the package, and of a build also a digest of its sources', async t => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  for (const option of ['--version', '-v']) t.same(readCommandLine([option]), { text: version })
  const server = start(t, {}, { built: true, args: ['--version'] })
  await server.exit
  t.equal(server.output(), `${version}+${readFileSync('dist/.stamp', 'utf8').slice(0, 8)}\n`)
})

test('a service whose dependencies are not installed ends with one clear line', async t => {
  const server = start(t, {}, { script: withoutPackage('close-with-grace') })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot find package .+\. Install the dependencies with: npm ci\n$/)
})

test('--host, --port and --database override the environment, and an .env file sets variables', async t => {
  const folder = newFolder(t)
  writeFileSync(`${folder}/.env`, 'HOST=192.0.2.1\nPORT=1\nDATABASE_URL=memory\nAPI_PREFIX=/v2\nDOCS=false # no pages\n')
  const server = start(t, { PORT: undefined }, {
    built: true,
    flags: [`--env-file=${folder}/.env`],
    args: ['--host', '127.0.0.1', '--port=0', '--database', `sqlite:${folder}/items.db`]
  })
  t.equal((await fetch(`${await server.url}/v2/items`)).status, 200)
  t.ok(existsSync(`${folder}/items.db`))
  t.match(server.output(), `. Storage: sqlite:${folder}/items.db"`)
  t.same(readCommandLine([]), { set: {} })
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
})

test('an invalid option ends the process with one line that says what to do', async t => {
  const server = start(t, {}, { built: true, args: ['--prot', '80'] })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), "Unknown option '--prot'. The options are --host, --port, --database, --collections, --help, --version.\n")
  for (const [args, message] of [
    [['--log-level=debug'], "Unknown option '--log-level'. Set the environment variable LOG_LEVEL instead."],
    [['--port'], "Option '--port <value>' argument missing. The options are"],
    [['--port', '--host', 'x'], "Option '--port' argument is ambiguous. The options are"],
    [['--help=yes'], "Option '-h, --help' does not take an argument. The options are"],
    [['-1'], "Unknown option '-1'. The options are"],
    [['8080'], "Unexpected argument '8080'. The options are"]
  ] as const) {
    t.throws(() => readCommandLine([...args]), { message })
  }
  for (const [args, message] of [
    [['--port', '-1'], '--port must be at least 0, not -1'],
    [['--port', '80x', '--host', ''], '--host must not be empty\n  --port must be an integer, not "80x"'],
    [['--database', 'mysql://ada:sesame@db'], '--database must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE']
  ] as const) t.throws(() => readConfig({}, readCommandLine([...args]).set), { message: `Invalid configuration:\n  ${message}` })
})

test('a PORT that is in use ends the process with one clear line', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { PORT: String(port) }, { built: true })
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

test('the start line names the host of PostgreSQL without user and password', async t => {
  for (const [address, host] of [
    ['postgres://ada:sesame@db:5433/shop?password=sesame', ' at db:5433'],
    ['postgresql://ada:se@same@db', ' at db'],
    ['postgres://[::1]/shop', ' at [::1]'],
    ['postgres://ada:sesame@/shop?host=/run', '']
  ]) t.equal(storageOf(readConfig({ DATABASE_URL: address })), `PostgreSQL${host}`)
})

test('a variable that looks like a misspelled one is logged', async t => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, '{"items":null,"users":null}')
  const server = start(t, { DATABSE_URL: 'sqlite:x', port: '1', COLLECTIONS_FILE: file, COLLECTION_FILE: 'x', HOSTS: 'x', HOST: '127.0.0.1' })
  await server.url
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
  const lines = server.output().trim().split('\n').map(line => JSON.parse(line))
  t.same(lines.filter(({ level }) => level === 40).map(({ msg }) => msg), ['There is no variable DATABSE_URL. Did you mean DATABASE_URL?'])
  t.match(lines[1].msg, '. Collections: none. Storage: memory')
  t.same(misspelled({ port: '1' }), ['There is no variable port. Did you mean PORT?'])
  t.same(misspelled({ HOME: '/', PATH: '/bin', HOSTNAME: 'x', SHELL: 'x', TERM: 'x', USER: 'x', LANG: 'x' }), [])
})

test('with DOCS=false, the documentation pages are not served or mentioned', async t => {
  const server = start(t, { DOCS: 'false', API_PREFIX: '/v2' }, { built: true })
  const url = await server.url
  t.equal(JSON.parse(server.output().trim()).msg, `API at ${url}/v2. Collections: items, users. Storage: memory (data is lost on exit)`)
  t.equal((await fetch(`${url}/v2/items`)).status, 200)
  for (const path of ['/docs', '/redoc', '/openapi.json', '/api/items']) t.equal((await fetch(url + path)).status, 404)
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
})

test('after SIGTERM, readiness is 503, open requests finish, and the process exits with 0 without waiting for unused connections', async t => {
  const server = start(t, {}, { built: true })
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
    const server = start(t, {}, { built: true, script: 'const now = Date.now(); Date.now = () => now' }) // so that a busy machine does not make the pause longer
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
    built: true,
    script: `import { register } from 'node:module'
      register('data:text/javascript,' + encodeURIComponent(\`export function load (url, context, next) {
        if (url.endsWith('/src/app.js')) process.kill(process.pid, 'SIGTERM')
        return next(url, context)
      }\`))`
  })
  t.same(await server.exit, [0, null])
})

test('if nobody reads the log any more, the service runs and closes', async t => {
  const server = start(t, {}, { built: true })
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
