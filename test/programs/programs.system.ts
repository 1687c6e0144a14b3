import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { request, type RequestOptions } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { Redis } from 'ioredis'
import { test, type Test } from 'tap'
import { Item } from '../../schemas/item.js'
import { countingTests } from '../guards/counting.js'
import { cert, key } from '../support/certificate.js'
import { newFolder } from '../support/folder.js'
import { build, followed } from '../support/helper.js'
import { examplesIn } from '../support/markdown.js'
import { ownPaths, startNginx } from '../support/nginx.js'
import { freePort, startPgBouncer, startPostgres } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { startRedis } from '../support/redis.js'
import { openStore } from '../support/stores.js'
import { until } from '../support/until.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

interface Place { folder: string, plain: number, secure: number }

/** The programs of the configurations in docs/production.md, each with its arguments and what it needs here. */
const programs = {
  nginx: {
    language: 'nginx',
    args (folder: string) {
      const own = `daemon off; pid ${folder}/pid; error_log ${folder}/errors;`
      return ['-p', folder, '-c', `${folder}/config`, '-g', own]
    },
    adapt (config: string, { folder, plain, secure }: Place) {
      const adapted = config
        .replace('listen 443', `listen 127.0.0.1:${secure}`)
        .replace('listen 80', `listen 127.0.0.1:${plain}`)
        .replace(/ssl_certificate .+;/, `ssl_certificate ${folder}/cert.pem;`)
        .replace(/ssl_certificate_key .+;/, `ssl_certificate_key ${folder}/key.pem;`)
      return `events {} http { ${ownPaths(folder)} ${adapted} }`
    }
  },
  caddy: {
    language: 'caddyfile',
    args: (folder: string) => ['run', '--adapter', 'caddyfile', '--config', `${folder}/config`],
    adapt: (config: string, { folder, plain, secure }: Place) => `
      {
        admin off
        default_bind 127.0.0.1
        http_port ${plain}
        https_port ${secure}
        storage file_system ${folder}
      }
      ${config.replace('{', `{\n tls ${folder}/cert.pem ${folder}/key.pem`)}`
  }
}

/** Starts a proxy with the configuration in docs/production.md, with other ports and a certificate for localhost. */
async function startProxy (t: Test, program: keyof typeof programs, servicePort: number) {
  const { language, args, adapt } = programs[program]
  const folder = newFolder(t)
  chmodSync(folder, 0o755) // as root, nginx handles requests as another user
  const [plain, secure] = [await freePort(), await freePort()]
  const config = examplesIn('docs/production.md').find(example => example.language === language)?.code ?? ''
  const adapted = config
    .replaceAll('items.example.com', 'localhost')
    .replace('127.0.0.1:3000', `127.0.0.1:${servicePort}`)
  writeFileSync(`${folder}/config`, adapt(adapted, { folder, plain, secure }))
  writeFileSync(`${folder}/cert.pem`, cert)
  writeFileSync(`${folder}/key.pem`, key)
  const env = { ...process.env, HOME: folder }
  const proxy = spawn(program, args(folder), { stdio: ['ignore', 'ignore', 'pipe'], env })
  let errors = ''
  proxy.stderr.on('data', chunk => { errors += chunk })
  t.teardown(() => proxy.kill('SIGTERM'))
  await until(async () => {
    if (proxy.exitCode !== null) throw new Error(errors)
    return await fetch(`http://localhost:${plain}`, { redirect: 'manual' }).then(() => true, () => false)
  })
  return { plain, secure }
}

/** Sends a request over TLS to localhost, from one of the loopback addresses, and checks the certificate. */
function send (port: number, localAddress: string, options: RequestOptions & { body?: string }) {
  const { body, headers, ...rest } = options
  const host = `localhost:${port}`
  const tls = { host: '127.0.0.1', port, servername: 'localhost', ca: cert, localAddress }
  return new Promise<{ status?: number, body: string }>((resolve, reject) => {
    request({ ...rest, ...tls, headers: { ...headers, host } }, async response => {
      resolve({ status: response.statusCode, body: await text(response) })
    }).on('error', reject).end(body)
  })
}

for (const program of ['nginx', 'caddy'] as const) {
  const skip = without(program)
  test(`behind the ${program} of docs/production.md, clients keep their addresses and origins`, { skip }, async t => {
    const app = build(t, { TRUST_PROXY: '127.0.0.1', RATE_LIMIT_MAX: '2', DOCS: 'false' })
    await app.listen({ port: 0 })
    const { plain, secure } = await startProxy(t, program, (app.server.address() as AddressInfo).port)
    const body = JSON.stringify(item)
    const post = { method: 'POST', path: '/api/items', body }
    const lamp = { status: 200, body: '{"id":1,"name":"Lamp","price":42.5}' }
    t.same(await send(secure, '127.0.0.2', { path: '/api/items/1' }), lamp)
    t.match(await send(secure, '127.0.0.2', { path: '/api/items/9' }), { status: 404 })
    t.match(await send(secure, '127.0.0.2', { path: '/api/items/1' }), { status: 429 })
    const own = { origin: `https://localhost:${secure}`, 'content-length': body.length }
    t.match(await send(secure, '127.0.0.3', { ...post, headers: own }), { status: 201, body }, 'another client')
    const foreign = { ...own, origin: 'https://example.com' }
    t.match(await send(secure, '127.0.0.4', { ...post, headers: foreign }), { status: 403 })
    t.match(await send(secure, '127.0.0.5', { ...post, body: ' '.repeat(1024 * 1024 + 1) }), { status: 413 })
    const redirect = await fetch(`http://localhost:${plain}/api/items?limit=1`, { redirect: 'manual' })
    t.equal(redirect.status, 308)
    t.match(redirect.headers.get('location'), /^https:\/\/localhost(:\d+)?\/api\/items\?limit=1$/)
  })
}

test('Location and Link work through an nginx that strips a path prefix', { skip: without('nginx') }, async t => {
  const service = await build(t).listen({ port: 0, host: '127.0.0.1' })
  const { port } = await startNginx(t, (port, folder) => `events {} http { ${ownPaths(folder)}
    server { listen 127.0.0.1:${port}; location /shop/ { proxy_pass ${service}/; } } }`)
  const base = `http://127.0.0.1:${port}/shop`
  await until(async () => (await fetch(`${base}/readyz`).catch(() => undefined))?.ok === true)
  for (const url of [`${base}/api/items`, `${base}/api/items/`]) {
    const created = await fetch(url, { method: 'POST', body: JSON.stringify(item) })
    const record = await fetch(new URL(String(created.headers.get('location')), created.url))
    t.same(await record.json(), item)
    t.equal(record.url, `${base}/api/items/7`)
    const page = await fetch(`${url}?limit=1`)
    const [, link = ''] = /<(.+)>; rel="next"/.exec(String(page.headers.get('link'))) ?? []
    t.same(await (await fetch(new URL(link, page.url))).json(), [item])
  }
  const home = await fetch(`${base}/`, { headers: { accept: 'text/html' } })
  t.same([home.status, home.url], [200, `${base}/docs`])
})

const skip = without('redis-server')

// A busy machine takes longer than the timeouts of the service.
const timeouts = { connectTimeout: 60_000, commandTimeout: 60_000, socketTimeout: 60_000 }
const clients: Redis[] = []
const { connect } = Redis.prototype
Redis.prototype.connect = function (callback) {
  clients.push(Object.assign(this, { options: { ...this.options, ...timeouts } }))
  return connect.call(this, callback)
}

test('in Redis', { skip }, async t => {
  const { url } = await startRedis(t)
  let database = 0
  countingTests(t, () => `${url}/${database++}`, [{ instances: 1, connections: 1 }, { instances: 2, connections: 20 }])
})

test('with Redis, all instances share the limit; without it, they keep serving', { skip }, async t => {
  const redis = await startRedis(t)
  const lines: string[] = []
  const limit = { RATE_LIMIT_MAX: '4', RATE_LIMIT_WINDOW: '3600000', REDIS_URL: redis.url }
  const env = { AUTH_TOKENS: 'one', LOG_LEVEL: 'info', ...limit }
  const apps = [1, 2].map(() => build(t, env, { write: line => lines.push(line) }))
  const statuses = async (times: number) => {
    const answers = []
    for (let n = 0; n < times; n++) {
      const headers = { authorization: 'Bearer one' }
      answers.push((await apps[n % 2]?.inject({ url: '/api/items', headers }))?.statusCode)
    }
    return answers
  }
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  await redis.stop()
  t.same(await statuses(6), Array(6).fill(200))
  await until(() => lines.join().split('Redis is disconnected').length >= 3)
  await redis.run()
  await until(() => lines.join().split('Redis is connected').length >= 5)
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  for (const client of clients) Object.assign(client.options, { commandTimeout: 500, socketTimeout: 500 })
  redis.signal('SIGSTOP')
  t.same(await statuses(4), Array(4).fill(200))
  await until(() => lines.join().split('Redis is disconnected').length >= 5)
  redis.signal('SIGCONT')
  t.notMatch(lines.join(), 'Bearer')
})

const numbered = (id: number) => ({ id, name: `number ${id}`, price: 1.5 })

/** Older versions forget prepared statements in transaction mode. */
const oldest = 21

for (const mode of ['session', 'transaction']) {
  const isTooOld = mode === 'transaction' && minorVersion() < oldest && `PgBouncer is older than 1.${oldest}`
  test(`PgBouncer in ${mode} mode works`, { skip: without('pgbouncer') || isTooOld }, async t => {
    const server = await startPostgres(t)
    if (!server) return t.plan(0, 'PostgreSQL does not start')
    const bouncer = await startPgBouncer(t, server, mode)
    for (const ID_SOURCE of ['client', 'server']) {
      await server.query(`create database bounced_${ID_SOURCE}`)
      const env = { DATABASE_URL: bouncer.url(`bounced_${ID_SOURCE}`), ID_SOURCE, DATABASE_POOL_SIZE: '4' }
      const apps = [1, 2].map(() => build(t, env))
      const send = (n: number, headers = {}, payload: object = numbered(n)) =>
        (apps[n % 2] ?? build(t)).inject({ method: 'POST', url: '/api/items', payload, headers })
      const created = await Promise.all(Array.from({ length: 200 }, (_, n) => send(n)))
      t.ok(created.every(({ statusCode }) => statusCode === 201))
      const first = await send(1, { 'idempotency-key': ID_SOURCE })
      t.equal((await send(2, { 'idempotency-key': ID_SOURCE }, numbered(1))).body, first.body)
      t.equal((await send(3, { 'idempotency-key': ID_SOURCE })).statusCode, 422)
      const [app] = apps as [ReturnType<typeof build>]
      for (const url of ['/api/items/1', '/readyz', '/api/items']) t.equal((await app.inject(url)).statusCode, 200)
      const user = { id: 7, name: 'Grace' }
      t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: user })).statusCode, 201)
      t.equal((await app.inject({ method: 'DELETE', url: '/api/users/1' })).statusCode, 204)
      let pages = 0
      for (let url: string | undefined = '/api/items?limit=50'; url; pages++) {
        const page: Awaited<ReturnType<typeof app.inject>> = await app.inject(url)
        t.equal(page.statusCode, 200)
        const [, next] = /<(.+)>/.exec(String(page.headers.link)) ?? []
        url = next && followed(next, '/api/items')
      }
      t.ok(pages >= 4)
    }
    const store = await openStore<Item>(t, bouncer.url('bounced_client'), { name: 'things', schema: Item, seed: [] })
    await Promise.all(Array.from({ length: 3000 }, (_, n) => store.append(numbered(n))))
    t.equal((await store.select({})).records.length, 3000)
  })
}

/** The second number of the version, such as 18 in "PgBouncer 1.18.0". */
function minorVersion () {
  const { stdout = '' } = spawnSync('pgbouncer', ['--version'], { encoding: 'utf8' })
  return Number(/ \d+\.(\d+)/.exec(String(stdout))?.[1])
}
