import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import type { FastifyInstance, FastifyPluginAsync } from 'fastify'
import { test } from 'tap'
import itemsUsers, { auth, rateLimit } from '../../src/index.js'
import { build, host } from '../support/helper.js'
import { until } from '../support/until.js'
import { countingTests } from './counting.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const item = { id: 7, name: 'Kettle', price: 19.99 }

test('in memory', async t => countingTests(t, () => undefined, [{ instances: 1, connections: 20 }]))

test('the limit applies to each IP address, also on unknown paths', async t => {
  const app = build(t, { RATE_LIMIT_MAX: '3', RATE_LIMIT_WINDOW: '3600000' })
  const get = (url: string, remoteAddress = '10.0.0.1') => app.inject({ url, remoteAddress })
  for (const [n, url] of ['/api/items', '/api/nope', '/api/users/1'].entries()) {
    t.match((await get(url)).headers, {
      'x-ratelimit-limit': '3', 'x-ratelimit-remaining': String(2 - n), 'x-ratelimit-reset': /^(3600|35\d\d)$/
    })
  }
  for (const url of ['/api/items', '/api/nope']) {
    const refused = await get(url)
    t.same([refused.statusCode, refused.json()], [429, { detail: 'Too many requests' }])
    t.match(refused.headers, { 'retry-after': /^3600|35\d\d$/, 'x-ratelimit-remaining': '0' })
  }
  t.equal((await get('/api/items', '10.0.0.2')).statusCode, 200)
  for (const url of ['/livez', '/docs']) t.equal((await get(url)).statusCode, 200, url)
})

test('a client that got 429 is served again after the time window', async t => {
  const app = build(t, { RATE_LIMIT_MAX: '1', RATE_LIMIT_WINDOW: '100' })
  const isServed = async () => (await app.inject('/api/items')).statusCode === 200
  await until(async () => (await Promise.all([isServed(), isServed()])).includes(false))
  await until(isServed)
  t.pass('it is')
})

test('the limit applies to each valid token, otherwise to the IP address, in any order of the plugins', async t => {
  const service = build(t, { AUTH_TOKENS: 'one,two', RATE_LIMIT_MAX: '2' })
  const outer = host(t)
  outer.register(auth, { tokens: ['one', 'two'] })
  outer.register(async function inner (scope) {
    scope.register(rateLimit, { max: 2 })
    scope.register(itemsUsers, { prefix: '/api' })
  })
  for (const app of [service, outer]) {
    const statuses = []
    for (const token of ['one', 'one', 'one', 'two', 'guess', 'another', 'a third', 'two']) {
      statuses.push((await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode)
    }
    t.same(statuses, [200, 200, 429, 200, 401, 401, 429, 429], 'who guesses is held to the rate of the address')
  }
})

test('X-Forwarded-For is used only if it comes from a trusted proxy', async t => {
  const statuses = async (TRUST_PROXY: string | undefined, ...forwarded: string[]) => {
    const app: FastifyInstance = build(t, { RATE_LIMIT_MAX: '1', ...TRUST_PROXY && { TRUST_PROXY } })
    const answers = []
    for (const address of forwarded) {
      const headers = { 'x-forwarded-for': address }
      answers.push((await app.inject({ url: '/api/items', remoteAddress: '10.1.1.1', headers })).statusCode)
    }
    return answers
  }
  t.same(await statuses('::1,10.0.0.0/8', '1.1.1.1', '2.2.2.2', '1.1.1.1'), [200, 200, 429])
  t.same(await statuses('10.0.0.0/8', '1.1.1.1:50001', '1.1.1.1:50002', '1.1.1.1'), [200, 429, 429])
  t.same(await statuses('10.0.0.0/8', '[2001:db8::1]:50001', '2001:db8::1'), [200, 429], 'a port is not another client')
  t.same(await statuses('10.2.0.0/16', '1.1.1.1', '2.2.2.2'), [200, 429])
  t.same(await statuses(undefined, '1.1.1.1', '2.2.2.2'), [200, 429])
  for (const TRUST_PROXY of ['1', 'true', '10.0.0.0/33', '0.0.0.0/0', '10.0.0', 'example.com', '10.0.0.1, 10.0.0.2']) {
    t.throws(() => build(t, { TRUST_PROXY }), { message: /TRUST_PROXY must be IP addresses or ranges/ })
  }
})

test('the service starts without a reachable Redis, and does not limit requests', async t => {
  const app = build(t, { RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1' })
  for (let n = 0; n < 2; n++) t.equal((await app.inject('/api/items')).statusCode, 200)
})

test('a lost connection to Redis is logged once, and once more when it is back', async t => {
  // Answers every command with OK. test/programs/redis-and-pgbouncer.system.ts counts with a real Redis.
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {}).on('data', commands => {
      socket.write('+OK\r\n'.repeat(String(commands).match(/^\*/gm)?.length ?? 0))
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const lines: string[] = []
  const REDIS_URL = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`
  const env = { RATE_LIMIT_MAX: '1', REDIS_URL, LOG_LEVEL: 'info' }
  const app = build(t, env, { write: line => lines.push(JSON.parse(line).msg) })
  await app.ready()
  for (const socket of sockets) socket.destroy()
  await until(() => lines.length >= 3)
  await app.close()
  const expected = ['Redis is connected', 'Redis is disconnected; requests are not limited until it is connected again']
  t.same(lines, lines.map((_, n) => expected[n % 2])) // on a busy machine, it can happen more than once
})

test('while the event loop is delayed, the API answers 503 at once, and the probes do not', async t => {
  const lines: string[] = []
  const app = build(t, { MAX_EVENT_LOOP_DELAY: '100', LOG_LEVEL: 'warn' }, { write: line => lines.push(line) })
  await app.ready()
  const busy = setInterval(() => {
    const end = performance.now() + 300
    while (performance.now() < end);
  }, 310)
  await until(async () => (await app.inject('/api/items')).statusCode !== 200)
  const { statusCode, headers, body } = await app.inject({ method: 'POST', url: '/api/items', payload: item })
  t.same([statusCode, headers['retry-after'], body], [503, '1', '{"detail":"The service is overloaded"}'])
  for (const url of ['/livez', '/readyz']) t.equal((await app.inject(url)).statusCode, 200, url)
  clearInterval(busy)
  let list = ''
  await until(async () => (list = (await app.inject('/api/items')).body).startsWith('['))
  t.equal(JSON.parse(list).length, 1, 'nothing was stored')
  t.same(lines, [], 'who has too much to do does not write of it')
})

test('rateLimit below another rate limit is an error at startup', async t => {
  for (const plugin of [rateLimit, import('@fastify/rate-limit')] as FastifyPluginAsync<{ max: number }>[]) {
    const app = host(t)
    await app.register(plugin, { max: 1000 })
    app.register(async scope => scope.register(rateLimit, { max: 5 }))
    const message = 'The plugin rateLimit cannot be registered below another rate limit.'
    await t.rejects(async () => app.ready(), { message })
  }
})

test('REDIS_URL without RATE_LIMIT_MAX and an invalid REDIS_URL are reported, without the password', async t => {
  const message = /^[^:]+:\n {2}REDIS_URL must be a URL such as redis:\/\/host:6379$/
  for (const REDIS_URL of ['redis://:sesame@h:99999', 'redis://:sesame%@h', 'http://sesame', 'redis://']) {
    t.throws(() => build(t, { RATE_LIMIT_MAX: '1', REDIS_URL }), { message })
  }
  t.throws(() => build(t, { REDIS_URL: 'redis://127.0.0.1' }), { message: /^ {2}REDIS_URL needs RATE_LIMIT_MAX$/m })
})
