import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { connect, type AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import Fastify, { type FastifyInstance, type InjectOptions } from 'fastify'
import Database from 'libsql'
import { test, type Test } from 'tap'
import itemsUsers, { auth, docs, rateLimit, metrics, httpServer, httpServerOptions, type Store } from '../src/index.js'
import type { LogStream } from '../src/logger.js'
import { checkedFetch as fetch } from './document.js'
import { onEveryEngine } from './engines.js'
import { connection, written } from './stress/connection.js'
import { newFolder } from './folder.js'
import * as helper from './helper.js'
import { start, takenPort } from './process.js'
import { startRedis } from './redis.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const item = { id: 7, name: 'Kettle', price: 19.99 }
const rate = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']

/** Everything that can be on, on. */
const everything = {
  API_PREFIX: '/api,/api/v1',
  ID_SOURCE: 'server',
  AUTH_TOKENS: 'one',
  RATE_LIMIT_MAX: '1000',
  CORS_ORIGIN: 'https://example.com',
  SECURITY_HEADERS: 'true',
  MAX_EVENT_LOOP_DELAY: '10000'
}

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv, log?: LogStream) => helper.build(t, { DATABASE_URL: address(), ...env }, log)

  t.test('with tokens, everything under the prefix asks for one, and the pages and probes do not', async t => {
    const app = build(t, { AUTH_TOKENS: 'one,two+/=' })
    for (const url of ['/api/items', '/api/items/1', '/api/users', '/api/nope', '/api']) {
      const missing = await app.inject(url)
      t.equal(missing.statusCode, 401, url)
      t.equal(missing.headers['www-authenticate'], 'Bearer')
      t.same(missing.json(), { detail: 'A bearer token is required' })
      for (const authorization of ['Bearer three', 'Bearer', 'Bearer ', 'Bearer on', 'Bearer one,two+/=', 'Basic one', 'one']) {
        const wrong = await app.inject({ url, headers: { authorization } })
        t.equal(wrong.statusCode, 401, authorization)
        t.equal(wrong.headers['www-authenticate'], 'Bearer error="invalid_token"')
        t.same(wrong.json(), { detail: 'The bearer token is not known' })
      }
    }
    for (const authorization of ['Bearer one', 'bearer one', 'Bearer two+/=']) {
      t.equal((await app.inject({ url: '/api/items', headers: { authorization } })).statusCode, 200)
    }
    t.equal((await app.inject({ url: '/api/nope', headers: bearer('one') })).statusCode, 404)
    t.equal((await app.inject({ method: 'POST', url: '/api/items', payload: item })).statusCode, 401)
    t.equal((await app.inject({ method: 'POST', url: '/api/items', body: '{', headers: bearer('x') })).statusCode, 401)
    t.equal((await app.inject({ url: '/api/items', headers: bearer('one') })).json().length, 1)
    for (const url of ['/docs', '/redoc', '/openapi.json', '/livez', '/readyz']) t.equal((await app.inject(url)).statusCode, 200)
  })

  t.test('a rate is kept by each address, on unknown paths too', async t => {
    const app = build(t, { RATE_LIMIT_MAX: '3', RATE_LIMIT_WINDOW: '1000' })
    const get = (url: string, remoteAddress = '10.0.0.1') => app.inject({ url, remoteAddress })
    for (const [n, url] of ['/api/items', '/api/nope', '/api/users/1'].entries()) {
      const { headers } = await get(url)
      t.match(rate.map(name => headers[name]), ['3', String(2 - n), '1'].map(value => new RegExp(`^${value}$`)))
    }
    for (const url of ['/api/items', '/api/nope']) {
      const refused = await get(url)
      t.equal(refused.statusCode, 429)
      t.same(refused.json(), { detail: 'Too many requests' })
      t.equal(refused.headers['retry-after'], '1')
      t.equal(refused.headers['x-ratelimit-remaining'], '0')
    }
    t.equal((await get('/api/items', '10.0.0.2')).statusCode, 200)
    t.equal((await get('/livez')).statusCode, 200)
    t.equal((await get('/docs')).statusCode, 200)
    await sleep(1100)
    t.equal((await get('/api/items')).statusCode, 200)
  })

  t.test('under two prefixes, the collections are the same, and each answer is its own', async t => {
    const app = build(t, { API_PREFIX: '/api,/api/v1' })
    for (const [n, prefix] of ['/api', '/api/v1'].entries()) {
      const created = await app.inject({ method: 'POST', url: `${prefix}/items`, payload: { ...item, id: n + 2 } })
      t.equal(created.headers.location, `${prefix}/items/${n + 2}`)
    }
    for (const prefix of ['/api', '/api/v1']) {
      const page = await app.inject(`${prefix}/items?limit=2`)
      t.same(page.json().map(({ id }: { id: number }) => id), [1, 2])
      t.match(page.headers.link, new RegExp(`^<${prefix}/items\\?limit=2&after=\\w+>; rel="next"$`))
      t.equal((await app.inject(`${prefix}/nope`)).body, '{"detail":"Path not found"}')
    }
    const { paths } = (await app.inject('/openapi.json')).json()
    t.equal(paths['/api/items'].get.operationId, 'listItems')
    t.equal(paths['/api/v1/items'].get.operationId, 'listItemsApiV1')
    t.equal(paths['/api/v1/users/{id}'].delete.operationId, 'deleteUserApiV1')
  })

  t.test('with everything on, everything holds at once', async t => {
    const app = build(t, { ...everything, METRICS_PORT: '0' })
    const origin = 'https://example.com'
    const headers = { origin, 'idempotency-key': 'a', ...bearer('one') }
    const preflight = await app.inject({ method: 'OPTIONS', url: '/api/v1/items', headers: { origin, 'access-control-request-method': 'POST' } })
    t.equal(preflight.statusCode, 204)
    for (let n = 0; n < 2; n++) {
      const created = await app.inject({ method: 'POST', url: '/api/v1/items', payload: { name: 'Kettle', price: 19.99 }, headers })
      t.equal(created.statusCode, 201)
      t.equal(created.body, '{"id":2,"name":"Kettle","price":19.99}')
      t.match(created.headers, {
        location: '/api/v1/items/2',
        'access-control-allow-origin': origin,
        'content-security-policy': "default-src 'none';frame-ancestors 'none'",
        'x-ratelimit-limit': '1000'
      })
    }
    const page = await app.inject({ url: '/api/items?limit=1', headers })
    t.match(page.headers.link, /^<\/api\/items\?limit=1&after=/)
    const { statusCode, headers: { 'x-content-type-options': nosniff } } = await app.inject('/api/items')
    t.same([statusCode, nosniff], [401, 'nosniff'])
  })

  t.test('an API that is overloaded says so, and stores nothing', async t => {
    const app = build(t, { MAX_EVENT_LOOP_DELAY: '30' })
    await app.ready()
    const busy = setInterval(() => {
      const end = performance.now() + 100
      while (performance.now() < end);
    }, 110)
    let last
    do last = await app.inject({ method: 'POST', url: '/api/users', payload: { id: 2, name: 'x' } })
    while (last.statusCode === 201)
    clearInterval(busy)
    t.equal(last.statusCode, 503)
    t.equal(last.body, '{"detail":"The service is overloaded"}')
    await sleep(600)
    t.equal((await app.inject('/api/users')).statusCode, 200)
  })

  t.test('figures are served on a port of their own, by route and never by path', async t => {
    const lines: string[] = []
    const app = build(t, { METRICS_PORT: '0', LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
    await app.ready()
    const url = /metrics at (\S+)"/.exec(lines.join())?.[1] ?? ''
    await app.inject({ method: 'POST', url: '/api/items', payload: item })
    await app.inject('/api/items/7')
    await app.inject('/api/items/424242')
    await app.inject('/api/items?limit=1')
    await app.inject('/somewhere/424242')
    const response = await fetch(url)
    t.match(response.headers.get('content-type'), /^text\/plain; version=0\.0\.4/)
    const text = await response.text()
    for (const line of [
      /^http_request_duration_seconds_count{method="GET",route="\/api\/items\/:item_id",status="200"} 1$/m,
      /^http_request_duration_seconds_count{method="GET",route="\/api\/items\/:item_id",status="404"} 1$/m,
      /^http_request_duration_seconds_count{method="POST",route="\/api\/items",status="201"} 1$/m,
      /^http_request_duration_seconds_count{method="GET",route="unknown",status="404"} 1$/m,
      /^store_records{collection="items"} 2$/m,
      /^store_records{collection="users"} 1$/m,
      /^store_operation_duration_seconds_count{collection="items",operation="append"} 1$/m,
      /^store_operation_duration_seconds_count{collection="items",operation="first"} 2$/m,
      /^store_operation_duration_seconds_count{collection="items",operation="page"} 1$/m,
      /^nodejs_eventloop_lag_p99_seconds /m,
      /^process_resident_memory_bytes /m
    ]) t.match(text, line)
    t.notMatch(text, '424242')
    t.equal(/^store_connections{purpose="lists",state="idle"} \d+$/m.test(text), engine !== 'memory')
    t.equal(/^store_connections{purpose="queries",state="used"} \d+$/m.test(text), engine === 'PostgreSQL')
    t.equal((await fetch(new URL('/', url))).status, 404)
    t.equal((await fetch(`${url}?x=1`)).status, 200)
    t.equal((await app.inject('/metrics')).statusCode, 404)
    await app.close()
    await t.rejects(fetch(url))
  })
})

test('a token is in no log, no error and no document', async t => {
  const lines: string[] = []
  const app = helper.build(t, { ...everything, AUTH_TOKENS: 'sesame', LOG_LEVEL: 'trace' }, { write: line => lines.push(line) })
  const seen: string[] = []
  for (const options of [{ url: '/api/items' }, { url: '/api/nope' }, { url: '/openapi.json' }, { url: '/docs/json' }, { method: 'POST', url: '/api/items', body: '{' }] as const) {
    for (const token of ['sesame', 'sesame2']) seen.push((await app.inject({ ...options, headers: bearer(token) })).body)
  }
  t.ok(lines.length > 5)
  t.notMatch([...lines, ...seen].join('\n'), 'sesame')
  const server = start(t, { AUTH_TOKENS: 'sesame, open' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^ {2}AUTH_TOKENS must be tokens between commas/m)
  t.notMatch(server.errors(), 'sesame')
})

test('tokens in a file are read again when it changes', async t => {
  const folder = newFolder(t)
  const file = `${folder}/tokens`
  writeFileSync(file, 'one\n  two,three\n')
  const lines: string[] = []
  const app = helper.build(t, { AUTH_TOKENS: 'always', AUTH_TOKENS_FILE: file, LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  const status = async (token: string) => (await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode
  for (const token of ['one', 'two', 'three', 'always']) t.equal(await status(token), 200)
  t.equal(await status('four'), 401)

  // as a mounted secret is replaced
  writeFileSync(`${file}.new`, 'four')
  renameSync(`${file}.new`, file)
  while (await status('four') !== 200) await sleep(50)
  t.equal(await status('one'), 401)
  t.equal(await status('always'), 200)

  rmSync(file)
  while (!lines.join().includes('cannot be read')) await sleep(50)
  t.equal(await status('four'), 200, 'those read before are still good')

  writeFileSync(file, '')
  while (await status('four') !== 401) await sleep(50)
  t.equal(await status('always'), 200)
})

test('a file of tokens that is not there is one clear line', async t => {
  const server = start(t, { AUTH_TOKENS_FILE: '/nowhere/tokens' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot read the file of tokens: ENOENT.*\/nowhere\/tokens.*\.\n$/)
})

test('a host can check tokens in a way of its own', async t => {
  const app = host(t)
  app.register(async function guarded (scope) {
    scope.register(auth, {
      check: async (token, request) => {
        if (token === 'broken') throw new Error('the secret of the inside')
        return token === `for ${request.method}`
      }
    })
    scope.register(itemsUsers, { prefix: '/api' })
    scope.get('/mine', { schema: { response: { 200: { type: 'string' } } } }, async request => request.getDecorator('bearerToken'))
  })
  app.get('/open', async () => 'open')
  t.equal((await app.inject({ url: '/api/items', headers: bearer('for GET') })).statusCode, 200)
  t.equal((await app.inject({ url: '/api/items', headers: bearer('for POST') })).statusCode, 401)
  const broken = await app.inject({ url: '/api/items', headers: bearer('broken') })
  t.equal(broken.statusCode, 500)
  t.equal(broken.body, '{"detail":"Internal server error"}')
  t.equal((await app.inject({ url: '/mine', headers: bearer('for GET') })).body, 'for GET')
  t.equal((await app.inject('/mine')).statusCode, 401)
  t.equal((await app.inject('/open')).body, 'open')
})

test('a rate is kept by token where there is a good one, and by address where there is not', async t => {
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

test('an address is what a trusted proxy says, and no one else', async t => {
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
    t.throws(() => helper.build(t, { TRUST_PROXY }), { message: /TRUST_PROXY must be addresses or ranges/ })
  }
})

test('with Redis, all instances keep one rate; without it, they go on serving', { timeout: 60_000 }, async t => {
  const redis = await startRedis(t).catch((error: NodeJS.ErrnoException) => error)
  if (redis instanceof Error) {
    if (redis.code !== 'ENOENT') throw redis
    return t.plan(0, 'no redis-server is installed')
  }
  const lines: string[] = []
  const env = { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '4', RATE_LIMIT_WINDOW: '2000', REDIS_URL: redis.url, LOG_LEVEL: 'info' }
  const apps = [1, 2].map(() => helper.build(t, env, { write: line => lines.push(line) }))
  const statuses = async (times: number) => {
    const answers = []
    for (let n = 0; n < times; n++) answers.push((await apps[n % 2]?.inject({ url: '/api/items', headers: bearer('one') }))?.statusCode)
    return answers
  }
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  await redis.stop()
  t.same(await statuses(6), Array(6).fill(200))
  while (lines.join().split('Redis is lost').length < 3) await sleep(20)
  await redis.run()
  while (lines.join().split('Redis is back').length < 3) await sleep(50)
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  redis.signal('SIGSTOP')
  const began = performance.now()
  t.same(await statuses(4), Array(4).fill(200))
  t.ok(performance.now() - began < 6000)
  redis.signal('SIGCONT')
  t.notMatch(lines.join(), 'Bearer')
})

test('a Redis that is not there keeps nobody from starting', async t => {
  const app = helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/api/items')).statusCode, 200)
})

test('pages of an allowed origin may use the service and read its headers', async t => {
  const preflight = (app: FastifyInstance, url: string, origin: string): Promise<{ statusCode: number, body: string, headers: Record<string, unknown> }> => app.inject({
    method: 'OPTIONS',
    url,
    headers: { origin, 'access-control-request-method': 'DELETE', 'access-control-request-headers': 'authorization,idempotency-key' }
  })
  const app = helper.build(t, { ...everything, CORS_ORIGIN: 'https://a.example,http://b.example:8080' })
  for (const origin of ['https://a.example', 'http://b.example:8080']) {
    const { statusCode, headers } = await preflight(app, '/api/users/1', origin)
    t.equal(statusCode, 204)
    t.match(headers, {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
      'access-control-allow-headers': 'authorization,idempotency-key'
    })
    const response = await app.inject({ url: '/api/items', headers: { origin, ...bearer('one') } })
    t.equal(response.headers['access-control-allow-origin'], origin)
    t.equal(response.headers['access-control-expose-headers'],
      'Link, Location, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset')
    t.equal((await app.inject({ url: '/api/items', headers: { origin } })).headers['access-control-allow-origin'], origin, 'a refusal can be read too')
  }
  t.equal((await preflight(app, '/api/items', 'https://c.example')).headers['access-control-allow-origin'], undefined)
  const any = helper.build(t, { CORS_ORIGIN: '*' })
  t.equal((await preflight(any, '/api/items', 'https://c.example')).headers['access-control-allow-origin'], '*')
  for (const [options, status, body] of [
    [{ url: '/nope' }, 404, 'Path not found'],
    [{ url: '/nope?x=1' }, 404, 'Path not found'],
    [{ url: '/no%20pe' }, 404, 'Path not found'],
    [{ url: '/api/nope' }, 404, 'Path not found'],
    [{ method: 'PUT', url: '/api/items' }, 405, 'Method not allowed']
  ] as [InjectOptions, number, string][]) {
    const response = await any.inject(options)
    t.equal(response.statusCode, status)
    t.same(response.json(), { detail: body })
  }
  const none = helper.build(t)
  t.equal((await preflight(none, '/api/items', 'https://a.example')).statusCode, 405)
  t.equal((await none.inject({ url: '/api/items', headers: { origin: 'https://a.example' } })).headers['access-control-allow-origin'], undefined)
})

test('the headers of helmet are on the API, and the pages keep their own policy', async t => {
  const app = helper.build(t, { SECURITY_HEADERS: 'true' })
  for (const url of ['/api/items', '/api/items/9', '/api/nope']) {
    const { headers } = await app.inject(url)
    t.equal(headers['content-security-policy'], "default-src 'none';frame-ancestors 'none'")
    t.equal(headers['x-content-type-options'], 'nosniff')
    t.match(headers['strict-transport-security'], /^max-age=\d+/)
  }
  t.match((await app.inject('/docs')).headers['content-security-policy'], /^default-src 'none'; script-src 'self'/)
  t.match((await app.inject('/redoc')).headers['content-security-policy'], /^default-src 'none'; script-src 'self'/)
  t.equal((await helper.build(t).inject('/api/items')).headers['x-content-type-options'], undefined)
})

test('the document says what is on, and is valid', async t => {
  const plain = (await helper.build(t).inject('/openapi.json')).json()
  t.equal(plain.components.securitySchemes, undefined)
  const document = (await helper.build(t, everything).inject('/openapi.json')).json()
  t.same(document.components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } })
  const ids: string[] = []
  for (const [path, methods] of Object.entries<Record<string, any>>(document.paths)) {
    for (const { operationId, security, responses } of Object.values(methods)) {
      ids.push(operationId)
      if (!path.startsWith('/api')) continue
      t.same(security, [{ bearer: [] }])
      t.ok(responses[401].headers['WWW-Authenticate'])
      t.ok(responses[429].headers['Retry-After'])
      for (const status of Object.keys(responses).filter(status => status.startsWith('2'))) t.ok(responses[status].headers['X-RateLimit-Limit'])
      for (const [status, { content }] of Object.entries<any>(responses)) {
        if (status !== '204') t.ok(content['application/json'].example, `${operationId} ${status} has an example`)
      }
    }
  }
  t.equal(new Set(ids).size, ids.length)
  t.same(document.paths['/api/items'].post.requestBody.content['application/json'],
    { schema: { $ref: '#/components/schemas/NewItem' }, example: { name: 'Teapot', price: 24.5 } })
  const file = `${newFolder(t)}/openapi.json`
  writeFileSync(file, JSON.stringify(document))
  const { stderr } = await promisify(execFile)('npx', ['redocly', 'lint', file], { env: { ...process.env, NODE_OPTIONS: '' } })
  t.match(stderr, /is valid/)
})

test('while the event loop is late, the API answers 503 at once, and the probes do not', async t => {
  const lines: string[] = []
  const app = helper.build(t, { MAX_EVENT_LOOP_DELAY: '30', LOG_LEVEL: 'warn' }, { write: line => lines.push(line) })
  await app.ready()
  const busy = setInterval(() => {
    const end = performance.now() + 100
    while (performance.now() < end);
  }, 110)
  while ((await app.inject('/api/items')).statusCode === 200) await sleep(10)
  const response = await app.inject({ method: 'POST', url: '/api/items', payload: item })
  t.equal(response.statusCode, 503)
  t.same(response.json(), { detail: 'The service is overloaded' })
  t.equal(response.headers['retry-after'], '1')
  t.equal((await app.inject('/livez')).statusCode, 200)
  t.equal((await app.inject('/readyz')).statusCode, 200)
  clearInterval(busy)
  while ((await app.inject('/api/items')).statusCode !== 200) await sleep(50)
  t.equal((await app.inject('/api/items')).json().length, 1)
  t.same(lines, [], 'who has too much to do does not write of it')
})

test('a figure that cannot be had is left out, and the others are not', async t => {
  const file = `${newFolder(t)}/items.db`
  const lines: string[] = []
  const app = helper.build(t, { DATABASE_URL: `sqlite:${file}`, METRICS_PORT: '0', LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  await app.ready()
  new Database(file).exec('drop table items')
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  t.notMatch(text, /^store_records{/m)
  t.match(text, /^process_resident_memory_bytes /m)
  t.match(lines.join(), 'store_records cannot be measured')
  await app.inject('/api/items')
  t.match(await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text(), /operation="list"} 1$/m)
})

test('a port that is taken is one clear line, and the end, whatever else has started', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { PORT: String(port), METRICS_PORT: '0', RATE_LIMIT_MAX: '1', REDIS_URL: 'redis://127.0.0.1:1', LOG_LEVEL: 'silent' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot listen on 127.0.0.1:\d+: the port is taken; set PORT to another one\.\n$/)
})

test('a port for metrics that is taken is one clear line', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { METRICS_PORT: String(port) })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), `Cannot listen on 127.0.0.1:${port}: the port is taken; set METRICS_PORT to another one.\n`)
})

test('where several are registered, their figures are added up', async t => {
  const lines: string[] = []
  const app = host(t, { logger: { level: 'info', stream: { write: (line: string) => lines.push(line) } } })
  await app.register(metrics, { port: 0 })
  app.register(itemsUsers, { prefix: '/a' })
  app.register(itemsUsers, { prefix: '/b', store: `sqlite:${newFolder(t)}/items.db` })
  await app.inject({ method: 'POST', url: '/a/items', payload: item, headers: { 'idempotency-key': 'a' } })
  await app.inject({ method: 'POST', url: '/a/items', payload: { ...item, id: 8 }, headers: { 'idempotency-key': 'a' } })
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  t.match(text, /^store_records{collection="items"} 3$/m)
  t.match(text, /operation="append"} 2$/m)
})

test('the same prefix twice is one', async t => {
  const app = helper.build(t, { API_PREFIX: '/api,/v1,/api' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/v1/items')).statusCode, 200)
})

test('what goes with another variable says so, and no password is told', async t => {
  for (const REDIS_URL of ['redis://:sesame@h:99999', 'redis://:sesame%@h', 'http://sesame', 'redis://']) {
    t.throws(() => helper.build(t, { RATE_LIMIT_MAX: '1', REDIS_URL }), { message: /^[^:]+:\n {2}REDIS_URL must be a URL such as `redis:\/\/host:6379`[^:]+$/ })
  }
  t.throws(() => helper.build(t, { REDIS_URL: 'redis://127.0.0.1' }), { message: /^ {2}REDIS_URL needs RATE_LIMIT_MAX$/m })
})

test('each of the guards can be had by a host on its own', async t => {
  const own: Store<{ id: number }> = {
    append: () => '1', first: () => '2', list: () => '[3]', page: () => ({ list: '[4]', next: 5 }), removeFirst: () => false, size: () => 1
  }
  const app = host(t)
  await app.register(metrics, { port: 0 })
  app.register(async function guarded (scope) {
    await scope.register(rateLimit, { max: 2 })
    scope.register(itemsUsers, { prefix: '/api', store: { items: scope.observe.store('items', own), users: own } })
    scope.get('/mine', { schema: { response: { 200: { type: 'string' } } } }, async () => 'mine')
  })
  app.get('/open', async () => 'open')
  const page = await app.inject('/api/items?limit=1')
  t.equal(page.body, '[4]')
  t.equal(page.headers.link, '</api/items?limit=1&after=NQ>; rel="next"')
  t.equal((await app.inject('/mine')).body, 'mine')
  t.equal((await app.inject('/api/items')).statusCode, 429)
  t.equal((await app.inject('/open')).headers['x-ratelimit-limit'], undefined)
})

test('operations have names of their own, whatever their prefixes', async t => {
  const app = host(t)
  await app.register(docs)
  for (const prefix of ['/api', '/api/v1', '/api-v1', undefined]) app.register(itemsUsers, { prefix })
  const { paths } = (await app.inject('/openapi.json')).json()
  const ids = Object.values<any>(paths).flatMap(methods => Object.values<any>(methods).map(({ operationId }) => operationId))
  t.equal(ids.length, 28)
  t.equal(new Set(ids).size, 28)
})

test('paths and links are as the client wrote them', async t => {
  const app = host(t, { routerOptions: { ignoreTrailingSlash: true } })
  app.register(itemsUsers, { prefix: '/api' })
  for (const [url, location] of [['/api/items/', '/api/items/7'], ['/api/items?x=/', '/api/items/7'], ['/api/items/?x', '/api/items/7'], ['/api/items#x', '/api/items/7'], ['http://evil.example/api/items?x', '/api/items/7']] as const) {
    t.equal((await app.inject({ method: 'POST', url, payload: item })).headers.location, location, url)
  }
  const lenient = host(t, { routerOptions: { ignoreDuplicateSlashes: true } })
  lenient.register(itemsUsers, { prefix: '/:tenant' })
  const { socket, send } = connection(await lenient.listen({ port: 0, host: '127.0.0.1' }))
  for (const target of ['//evil.example/items', '/\\evil.example/items']) {
    const { headers } = await send(written('POST', target, JSON.stringify(item)))
    t.equal(headers.location, '/evil.example/items/7')
  }
  socket.destroy()
  t.equal((await app.inject('/api/items/?key=k%26&limit=1&after=NDA5Ng')).headers.link, '</api/items?key=k%26&limit=1&after=NDA5Nw>; rel="next"')
})

test('a client has so long for its headers, its request and its next one', async t => {
  const { server } = helper.build(t)
  t.match(server, { headersTimeout: 30_000, requestTimeout: 60_000, keepAliveTimeout: 72_000 })
  const quick = host(t, { ...httpServerOptions, requestTimeout: 300, http: { headersTimeout: 200, connectionsCheckingInterval: 50 } })
  quick.post('/', async () => 'late')
  await quick.listen({ port: 0 })
  for (const sent of ['', 'GET / HTTP/1.1\r\n', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{']) {
    const socket = connect((quick.server.address() as AddressInfo).port, '127.0.0.1')
    socket.write(sent)
    let answer = ''
    for await (const chunk of socket) answer += chunk
    t.match(answer, /^HTTP\/1\.1 408 [^]+{"detail":"The request took too long to arrive"}$/, JSON.stringify(sent))
  }
})

test('a connection on which nothing moves is ended', async t => {
  const app = host(t, httpServerOptions)
  app.register(httpServer, { stalledAfter: 200 })
  app.get('/', async () => { await sleep(300); return 'late' })
  await app.listen({ port: 0 })
  const { port } = app.server.address() as AddressInfo
  const idle = connect(port, '127.0.0.1')
  const began = performance.now()
  await once(idle.resume(), 'close')
  t.ok(performance.now() - began < 1000)
  const busy = connect(port, '127.0.0.1')
  for (let n = 0; n < 10; n++) {
    busy.write('GET /nope HTTP/1.1\r\nHost: x\r\n\r\n')
    await Promise.race([once(busy, 'data'), once(busy, 'close')])
    await sleep(100)
  }
  t.equal(busy.destroyed, false)
  busy.destroy()
})

test('on SIGTERM it serves on for SHUTDOWN_DELAY, with readiness at 503, and then closes', async t => {
  const server = start(t, { SHUTDOWN_DELAY: '700' })
  const url = await server.url
  server.process.kill('SIGTERM')
  const began = performance.now()
  await server.says('closing on SIGTERM')
  while ((await fetch(`${url}/readyz`)).status === 200) await sleep(10)
  t.same(await (await fetch(`${url}/readyz`)).json(), { detail: 'Shutting down' })
  t.equal((await fetch(`${url}/livez`)).status, 200)
  const { status, headers } = await fetch(`${url}/api/items`)
  t.equal(status, 200)
  t.equal(headers.get('connection'), 'close', 'whoever keeps a connection finds another one')
  t.same(await server.exit, [0, null])
  t.ok(performance.now() - began >= 700)
})

test('a signal that comes before it serves ends it at once', async t => {
  const { server: taken, port } = await takenPort(t)
  const server = start(t, { SHUTDOWN_DELAY: '20000', SHUTDOWN_TIMEOUT: '1000', DATABASE_URL: `postgres://127.0.0.1:${port}/x`, DATABASE_TIMEOUT: '4000' })
  await once(taken, 'connection')
  const began = performance.now()
  server.process.kill('SIGTERM')
  await server.exit
  t.ok(performance.now() - began < 10_000)
})

test('a request that never ends is given SHUTDOWN_TIMEOUT', async t => {
  const server = start(t, { SHUTDOWN_TIMEOUT: '300', DOCS: 'false' })
  const { port } = new URL(await server.url)
  const slow = connect(Number(port), '127.0.0.1').on('error', () => {})
  slow.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{"id":2,')
  await sleep(100)
  server.process.kill('SIGTERM')
  const began = performance.now()
  t.same(await server.exit, [1, null])
  t.ok(performance.now() - began < 3000)
})

function host (t: Test, options = {}) {
  const app = Fastify(options)
  t.teardown(() => app.close())
  return app
}
