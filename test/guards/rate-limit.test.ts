import type { OwnStores } from '../../plugins/host-stores.js'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { type FastifyInstance, type FastifyPluginAsync } from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { auth, metrics, rateLimit, type Metrics, type OwnStore } from '../../src/index.js'
import { onEveryEngine } from '../support/engines.js'
import * as helper from '../support/helper.js'
import { until } from '../support/until.js'
import { countingTests } from './counting.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const item = { id: 7, name: 'Kettle', price: 19.99 }
const rate = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']

onEveryEngine((t, address) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv) => helper.build(t, { DATABASE_URL: address(), ...env })

  t.test('the limit applies to each IP address, also on unknown paths', async t => {
    const app = build(t, { RATE_LIMIT_MAX: '3', RATE_LIMIT_WINDOW: '3600000' })
    const get = (url: string, remoteAddress = '10.0.0.1') => app.inject({ url, remoteAddress })
    for (const [n, url] of ['/api/items', '/api/nope', '/api/users/1'].entries()) {
      const { headers } = await get(url)
      t.match(rate.map(name => headers[name]), ['3', String(2 - n), '3600|35\\d\\d'].map(value => new RegExp(`^(${value})$`)))
    }
    for (const url of ['/api/items', '/api/nope']) {
      const refused = await get(url)
      t.equal(refused.statusCode, 429)
      t.same(refused.json(), { detail: 'Too many requests' })
      t.match(refused.headers['retry-after'], /^3600|35\d\d$/)
      t.equal(refused.headers['x-ratelimit-remaining'], '0')
    }
    t.equal((await get('/api/items', '10.0.0.2')).statusCode, 200)
    t.equal((await get('/livez')).statusCode, 200)
    t.equal((await get('/docs')).statusCode, 200)
  })

  t.test('a client that got 429 is served again after the time window', async t => {
    const app = build(t, { RATE_LIMIT_MAX: '1', RATE_LIMIT_WINDOW: '100' })
    const isServed = async () => (await app.inject('/api/items')).statusCode === 200
    await until(async () => (await Promise.all([isServed(), isServed()])).includes(false))
    await until(isServed)
    t.pass('it is')
  })

  t.test('an overloaded API answers 503 and stores nothing', async t => {
    const app = build(t, { MAX_EVENT_LOOP_DELAY: '100' })
    await app.ready()
    const busy = setInterval(() => {
      const end = performance.now() + 300
      while (performance.now() < end);
    }, 310)
    let last
    let users = 0
    do {
      users++
      last = await app.inject({ method: 'POST', url: '/api/users', payload: { id: 2, name: 'x' } })
    } while (last.statusCode === 201)
    clearInterval(busy)
    t.equal(last.statusCode, 503)
    t.equal(last.body, '{"detail":"The service is overloaded"}')
    await until(async () => (last = await app.inject('/api/users')).statusCode === 200)
    t.equal(last.json().length, users)
  })
})

test('the limit applies to each valid token, otherwise to the IP address', async t => {
  const app = helper.build(t, { AUTH_TOKENS: 'one,two', RATE_LIMIT_MAX: '2' })
  const statuses = async (...tokens: string[]) => {
    const answers = []
    for (const token of tokens) answers.push((await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode)
    return answers
  }
  t.same(await statuses('one', 'one', 'one'), [200, 200, 429])
  t.same(await statuses('two', 'two', 'two'), [200, 200, 429])
  t.same(await statuses('guess', 'another', 'a third'), [401, 401, 429], 'who guesses is held to the rate of the address')
})

test('X-Forwarded-For is used only if it comes from a trusted proxy', async t => {
  const status = async (app: FastifyInstance, ...forwarded: string[]) => {
    const answers = []
    for (const address of forwarded) {
      answers.push((await app.inject({ url: '/api/items', remoteAddress: '10.1.1.1', headers: { 'x-forwarded-for': address } })).statusCode)
    }
    return answers
  }
  const limit = { RATE_LIMIT_MAX: '1' }
  t.same(await status(helper.build(t, { ...limit, TRUST_PROXY: '::1,10.0.0.0/8' }), '1.1.1.1', '2.2.2.2', '1.1.1.1'), [200, 200, 429])
  for (const addresses of [['1.1.1.1:50001', '1.1.1.1:50002', '1.1.1.1'], ['[2001:db8::1]:50001', '[2001:db8::1]:50002', '2001:db8::1']]) {
    t.same(await status(helper.build(t, { ...limit, TRUST_PROXY: '10.0.0.0/8' }), ...addresses), [200, 429, 429], 'a port is not another client')
  }
  t.same(await status(helper.build(t, { ...limit, TRUST_PROXY: '10.2.0.0/16' }), '1.1.1.1', '2.2.2.2'), [200, 429])
  t.same(await status(helper.build(t, limit), '1.1.1.1', '2.2.2.2'), [200, 429])
  for (const TRUST_PROXY of ['1', 'true', '', '10.0.0.0/33', '0.0.0.0/0', '10.0.0', '10.0.0.1/8/8', 'example.com', '::/129', '10.0.0.0/x', '10.0.0.1, 10.0.0.2']) {
    t.throws(() => helper.build(t, { TRUST_PROXY }), { message: /TRUST_PROXY must be IP addresses or ranges/ })
  }
})

test('in memory', async t => countingTests(t, () => undefined, [{ instances: 1, connections: 20 }]))

test('auth and rateLimit work together in any order and nesting', async t => {
  const limit = { max: 2 }
  const tokens = { tokens: ['one'] }
  const arrangements: Record<string, (app: FastifyInstance) => void> = {
    'auth, then rateLimit' (app) {
      app.register(auth, tokens)
      app.register(rateLimit, limit)
      app.register(itemsUsers, { prefix: '/api' })
    },
    'auth in a scope within that of rateLimit' (app) {
      app.register(rateLimit, limit)
      app.register(async function inner (scope) {
        scope.register(auth, tokens)
        scope.register(itemsUsers, { prefix: '/api' })
      })
    },
    'rateLimit in a scope within that of auth' (app) {
      app.register(auth, tokens)
      app.register(async function inner (scope) {
        scope.register(rateLimit, limit)
        scope.register(itemsUsers, { prefix: '/api' })
      })
    }
  }
  for (const [name, arrange] of Object.entries(arrangements)) {
    const app = helper.host(t)
    arrange(app)
    const statuses = []
    for (const token of ['one', 'one', 'one', 'two', 'two', 'two', 'one']) {
      statuses.push((await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode)
    }
    t.same(statuses, [200, 200, 429, 401, 401, 429, 429], name)
  }
})

test('the service starts without a reachable Redis', async t => {
  const app = helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/api/items')).statusCode, 200)
})

test('a lost connection to Redis is logged once, and once more when it is back', async t => {
  // Answers every command with OK. test/programs/redis.test.ts counts with a real Redis.
  const server = createServer(socket => socket.on('error', () => {}).on('data', commands => {
    socket.write('+OK\r\n'.repeat(String(commands).match(/^\*/gm)?.length ?? 0))
  }))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const sockets = new Set<Socket>()
  server.on('connection', socket => sockets.add(socket))
  const lines: string[] = []
  const REDIS_URL = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`
  const app = helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL, LOG_LEVEL: 'info' }, { write: line => lines.push(JSON.parse(line).msg) })
  await app.ready()
  for (const socket of sockets) socket.destroy()
  await until(() => lines.length >= 3)
  await app.close()
  const expected = ['Redis is connected', 'Redis is disconnected; requests are not limited until it is connected again']
  t.same(lines, lines.map((_, n) => expected[n % 2])) // on a busy machine, it can happen more than once
})

test('while the event loop is delayed, the API answers 503 at once, and the probes do not', async t => {
  const lines: string[] = []
  const app = helper.build(t, { MAX_EVENT_LOOP_DELAY: '100', LOG_LEVEL: 'warn' }, { write: line => lines.push(line) })
  await app.ready()
  const busy = setInterval(() => {
    const end = performance.now() + 300
    while (performance.now() < end);
  }, 310)
  await until(async () => (await app.inject('/api/items')).statusCode !== 200)
  const response = await app.inject({ method: 'POST', url: '/api/items', payload: item })
  t.equal(response.statusCode, 503)
  t.same(response.json(), { detail: 'The service is overloaded' })
  t.equal(response.headers['retry-after'], '1')
  t.equal((await app.inject('/livez')).statusCode, 200)
  t.equal((await app.inject('/readyz')).statusCode, 200)
  clearInterval(busy)
  let list = ''
  await until(async () => (list = (await app.inject('/api/items')).body).startsWith('['))
  t.equal(JSON.parse(list).length, 1)
  t.same(lines, [], 'who has too much to do does not write of it')
})

test('a host can register each guard separately', async t => {
  const own: OwnStore<{ id: number }> = {
    append: records => records as never,
    first: () => ({ id: 2 }),
    select: ({ limit }) => limit === undefined ? { records: [{ id: 3 }] } : { records: [{ id: 4 }], next: '0' },
    change: () => undefined,
    count: () => 1
  }
  const app = helper.host(t)
  await app.register(metrics, { port: 0 })
  app.register(async function guarded (scope) {
    await scope.register(rateLimit, { max: 2 })
    scope.register(itemsUsers, { prefix: '/api', store: { items: scope.getDecorator<Metrics>('metrics').observeStore('items', own), users: own } as OwnStores })
    scope.get('/mine', { schema: { response: { 200: { type: 'string' } } } }, async () => 'mine')
  })
  app.get('/open', async () => 'open')
  const page = await app.inject('/api/items?limit=1')
  t.equal(page.body, '[{"id":4}]')
  t.equal(page.headers.link, '<?limit=1&after=0>; rel="next"')
  t.equal((await app.inject('/mine')).body, 'mine')
  t.equal((await app.inject('/api/items')).statusCode, 429)
  t.equal((await app.inject('/open')).headers['x-ratelimit-limit'], undefined)
})

test('rateLimit cannot be registered below another rate limit, because it would use that one for wrong tokens', async t => {
  for (const plugin of [rateLimit, import('@fastify/rate-limit')] as FastifyPluginAsync<{ max: number }>[]) {
    const app = helper.host(t)
    await app.register(plugin, { max: 1000 })
    app.register(async function inner (scope) {
      scope.register(rateLimit, { max: 5 })
    })
    await t.rejects(async () => app.ready(), { message: 'The plugin rateLimit cannot be registered below another rate limit.' })
  }
})

test('REDIS_URL without RATE_LIMIT_MAX and an invalid REDIS_URL are reported, without the password', async t => {
  for (const REDIS_URL of ['redis://:sesame@h:99999', 'redis://:sesame%@h', 'http://sesame', 'redis://']) {
    t.throws(() => helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL }), { message: /^[^:]+:\n {2}REDIS_URL must be a URL such as redis:\/\/host:6379$/ })
  }
  t.throws(() => helper.build(t, { REDIS_URL: 'redis://127.0.0.1' }), { message: /^ {2}REDIS_URL needs RATE_LIMIT_MAX$/m })
})
