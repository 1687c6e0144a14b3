import Fastify, { type FastifyInstance, type FastifyPluginAsync } from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { metrics, rateLimit, type Metrics, type Store } from '../../src/index.js'
import { onEveryEngine } from '../support/engines.js'
import * as helper from '../support/helper.js'
import { startRedis } from '../support/redis.js'
import { until } from '../support/until.js'

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
      t.match(rate.map(name => headers[name]), ['3', String(2 - n), '3600|3599'].map(value => new RegExp(`^(${value})$`)))
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
    await until(async () => !await isServed())
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
    await until(async () => (await app.inject('/api/users')).statusCode === 200)
    t.equal((await app.inject('/api/users')).json().length, users)
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
  t.same(await status(helper.build(t, { ...limit, TRUST_PROXY: '10.2.0.0/16' }), '1.1.1.1', '2.2.2.2'), [200, 429])
  t.same(await status(helper.build(t, limit), '1.1.1.1', '2.2.2.2'), [200, 429])
  for (const TRUST_PROXY of ['1', 'true', '', '10.0.0.0/33', '0.0.0.0/0', '10.0.0', '10.0.0.1/8/8', 'example.com', '::/129', '10.0.0.0/x', '10.0.0.1, 10.0.0.2']) {
    t.throws(() => helper.build(t, { TRUST_PROXY }), { message: /TRUST_PROXY must be IP addresses or ranges/ })
  }
})

test('with Redis, all instances share the limit; without it, they keep serving', { timeout: 60_000 }, async t => {
  const redis = await startRedis(t).catch((error: NodeJS.ErrnoException) => error)
  if (redis instanceof Error) {
    if (redis.code !== 'ENOENT') throw redis
    return t.plan(0, 'no redis-server is installed')
  }
  const lines: string[] = []
  const env = { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '4', RATE_LIMIT_WINDOW: '3600000', REDIS_URL: redis.url, LOG_LEVEL: 'info' }
  const apps = [1, 2].map(() => helper.build(t, env, { write: line => lines.push(line) }))
  const statuses = async (times: number) => {
    const answers = []
    for (let n = 0; n < times; n++) answers.push((await apps[n % 2]?.inject({ url: '/api/items', headers: bearer('one') }))?.statusCode)
    return answers
  }
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  await redis.stop()
  t.same(await statuses(6), Array(6).fill(200))
  await until(() => lines.join().split('Redis is disconnected').length >= 3)
  await redis.run()
  await until(() => lines.join().split('Redis is connected again').length >= 3)
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  redis.signal('SIGSTOP')
  t.same(await statuses(4), Array(4).fill(200))
  await until(() => lines.join().split('Redis is disconnected').length >= 5)
  redis.signal('SIGCONT')
  t.notMatch(lines.join(), 'Bearer')
})

test('the service starts without a reachable Redis', async t => {
  const app = helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/api/items')).statusCode, 200)
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
  await until(async () => (await app.inject('/api/items')).statusCode === 200)
  t.equal((await app.inject('/api/items')).json().length, 1)
  t.same(lines, [], 'who has too much to do does not write of it')
})

test('a host can register each guard separately', async t => {
  const own: Store<{ id: number }> = {
    append: () => '1', first: () => '2', list: () => '[3]', page: () => ({ list: '[4]', next: 5 }), removeFirst: () => false, size: () => 1
  }
  const app = host(t)
  await app.register(metrics, { port: 0 })
  app.register(async function guarded (scope) {
    await scope.register(rateLimit, { max: 2 })
    scope.register(itemsUsers, { prefix: '/api', store: { items: scope.getDecorator<Metrics>('metrics').observeStore('items', own), users: own } })
    scope.get('/mine', { schema: { response: { 200: { type: 'string' } } } }, async () => 'mine')
  })
  app.get('/open', async () => 'open')
  const page = await app.inject('/api/items?limit=1')
  t.equal(page.body, '[4]')
  t.equal(page.headers.link, '<?limit=1&after=NQ>; rel="next"')
  t.equal((await app.inject('/mine')).body, 'mine')
  t.equal((await app.inject('/api/items')).statusCode, 429)
  t.equal((await app.inject('/open')).headers['x-ratelimit-limit'], undefined)
})

test('rateLimit cannot be registered below another rate limit, because it would use that one for wrong tokens', async t => {
  for (const plugin of [rateLimit, import('@fastify/rate-limit')] as FastifyPluginAsync<{ max: number }>[]) {
    const app = host(t)
    await app.register(plugin, { max: 1000 })
    app.register(async function inner (scope) {
      scope.register(rateLimit, { max: 5 })
    })
    await t.rejects(async () => app.ready(), { message: 'The plugin rateLimit cannot be registered in a scope that has @fastify/rate-limit or rateLimit already.' })
  }
})

test('REDIS_URL without RATE_LIMIT_MAX and an invalid REDIS_URL are reported, without the password', async t => {
  for (const REDIS_URL of ['redis://:sesame@h:99999', 'redis://:sesame%@h', 'http://sesame', 'redis://']) {
    t.throws(() => helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL }), { message: /^[^:]+:\n {2}REDIS_URL must be a URL such as redis:\/\/host:6379$/ })
  }
  t.throws(() => helper.build(t, { REDIS_URL: 'redis://127.0.0.1' }), { message: /^ {2}REDIS_URL needs RATE_LIMIT_MAX$/m })
})

function host (t: Test, options = {}) {
  const app = Fastify(options)
  t.teardown(() => app.close())
  return app
}
