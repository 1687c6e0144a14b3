import { test } from 'tap'
import type { FastifyInstance } from 'fastify'
import itemsUsers, { auth, crossOriginProtection, docs } from '../../src/index.js'
import { connection, written } from '../support/connection.js'
import { build, everything, host } from '../support/helper.js'

const item = JSON.stringify({ id: 7, name: 'Kettle', price: 19.99 })
const rejection = { detail: 'Cross-origin request rejected: its origin is not allowed' }
const allowed = 'https://page.example'
const bearer = { authorization: 'Bearer one' }

test('pages of an allowed origin can use the API and read its headers', async t => {
  const preflight = async (app: FastifyInstance, origin: string): Promise<Record<string, unknown>> => {
    const requested = { 'access-control-request-method': 'DELETE', 'access-control-request-headers': 'authorization' }
    return (await app.inject({ method: 'OPTIONS', url: '/api/users/1', headers: { origin, ...requested } })).headers
  }
  const app = build(t, { ...everything, CORS_ORIGIN: 'https://a.example,http://b.example:8080' })
  for (const origin of ['https://a.example', 'http://b.example:8080']) {
    t.match(await preflight(app, origin), {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      'access-control-allow-headers': 'authorization'
    })
    const readable = 'ETag, Link, Location, Retry-After, X-Request-Id, X-Total-Count, ' +
      'X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset'
    const expected = { 'access-control-allow-origin': origin, 'access-control-expose-headers': readable }
    t.match((await app.inject({ url: '/api/items', headers: { origin, ...bearer } })).headers, expected)
    t.match((await app.inject({ url: '/api/items', headers: { origin } })).headers, expected, 'also of a refusal')
  }
  t.notOk((await preflight(app, 'https://c.example'))['access-control-allow-origin'])
  const any = build(t, { CORS_ORIGIN: '*' })
  t.equal((await preflight(any, 'https://c.example'))['access-control-allow-origin'], '*')
  const none = Object.keys(await preflight(build(t), 'https://a.example'))
  t.same(none.filter(name => name.startsWith('access-control')), [])
})

test('OPTIONS is answered with the methods of the path, with and without CORS', async t => {
  for (const env of [{}, { CORS_ORIGIN: 'https://example.com' }, { CORS_ORIGIN: '*' }]) {
    const app = build(t, env)
    for (const [url, allow] of [
      ['/api/items/?x=1', 'GET, HEAD, POST, OPTIONS'], ['/api/users/x', 'GET, HEAD, DELETE, OPTIONS'],
      ['/livez', 'GET, HEAD, OPTIONS'], ['/', 'GET, HEAD, OPTIONS'], ['/redoc/', 'GET, HEAD, OPTIONS']
    ] as const) {
      const { statusCode, headers, body } = await app.inject({ method: 'OPTIONS', url, body: '{' })
      t.same([statusCode, headers.allow, body], [204, allow, ''], `${url} ${JSON.stringify(env)}`)
    }
    t.equal((await app.inject({ method: 'PUT', url: '/api/items' })).body, '{"detail":"Method not allowed"}')
    t.equal((await app.inject('/no%20pe?x=1')).body, '{"detail":"Path not found"}')
  }
  t.equal((await build(t).inject({ method: 'OPTIONS', url: '/nope' })).statusCode, 404)
  t.equal((await build(t, { AUTH_TOKENS: 'one' }).inject({ method: 'OPTIONS', url: '/api/items' })).statusCode, 401)
})

test('SECURITY_HEADERS adds the headers of helmet to the API, and the pages keep their own policy', async t => {
  const app = build(t, { SECURITY_HEADERS: 'true' })
  for (const url of ['/api/items', '/api/items/9', '/api/nope']) {
    t.match((await app.inject(url)).headers, {
      'content-security-policy': "default-src 'none';frame-ancestors 'none'",
      'x-content-type-options': 'nosniff',
      'strict-transport-security': /^max-age=\d+/
    })
  }
  for (const url of ['/docs', '/redoc']) {
    t.match((await app.inject(url)).headers['content-security-policy'], /^default-src 'none'; script-src 'self'/)
  }
  t.notOk((await build(t).inject('/api/items')).headers['x-content-type-options'])
})

test('all features work together', async t => {
  const app = build(t, { ...everything, METRICS_PORT: '0' })
  const headers = { origin: 'https://example.com', 'idempotency-key': 'a', ...bearer }
  for (let n = 0; n < 2; n++) {
    const payload = { name: 'Kettle', price: 19.99 }
    const created = await app.inject({ method: 'POST', url: '/api/v1/items', payload, headers })
    t.same([created.statusCode, created.body], [201, '{"id":2,"name":"Kettle","price":19.99}'])
    t.match(created.headers, {
      location: './items/2',
      'access-control-allow-origin': 'https://example.com',
      'content-security-policy': "default-src 'none';frame-ancestors 'none'",
      'x-ratelimit-limit': '1000'
    })
  }
  t.match((await app.inject({ url: '/api/items?limit=1', headers })).headers.link, /^<\?limit=1&after=/)
  t.equal((await app.inject('/api/items')).statusCode, 401)
})

type Served = [unset: boolean, allowed: boolean, any: boolean]

/** What browsers say of a request, and whether it is served with CORS_ORIGIN unset, set to `allowed`, and `*`. */
const table: [site: string | undefined, origin: string | undefined, served: Served][] = [
  [undefined, undefined, [true, true, true]],
  ['', '', [true, true, true]],
  ['same-origin', 'https://behind.a.proxy.example', [true, true, true]],
  ['none', undefined, [true, true, true]],
  ['same-site', 'http://api.example:8080', [false, false, true]],
  ['same-site', allowed, [false, true, true]],
  ['cross-site', allowed, [false, true, true]],
  ['cross-site', 'https://evil.example', [false, false, true]],
  ['cross-site', 'http://api.example:3000', [false, false, true]],
  ['cross-site', 'null', [false, false, true]],
  ['cross-site', undefined, [false, false, true]],
  ['same-origin, cross-site', undefined, [false, false, true]],
  ['unheard-of', undefined, [false, false, true]],
  [undefined, 'http://api.example:3000', [true, true, true]],
  [undefined, 'https://api.example:3000', [true, true, true]],
  [undefined, 'http://api.example', [false, false, true]],
  [undefined, 'http://api.example:3000.evil.example', [false, false, true]],
  [undefined, 'extension://api.example:3000', [false, false, true]],
  [undefined, 'null', [false, false, true]],
  [undefined, allowed, [false, true, true]],
  [undefined, allowed.replace('https', 'http'), [false, false, true]]
]

test('browsers can change data only from the origin of the service and the origins in CORS_ORIGIN', async t => {
  for (const [n, CORS_ORIGIN] of [undefined, `http://other.example,${allowed}`, '*'].entries()) {
    const app = build(t, { ...CORS_ORIGIN && { CORS_ORIGIN } })
    const { socket, send } = connection(await app.listen({ port: 0, host: '127.0.0.1' }))
    for (const [site, origin, served] of table) {
      const says = { ...site !== undefined && { 'sec-fetch-site': site }, ...origin !== undefined && { origin } }
      const headers = { host: 'api.example:3000', ...says }
      const message = `${JSON.stringify(says)}, CORS_ORIGIN: ${CORS_ORIGIN}`
      for (const [method, path, body, status] of [
        ['POST', '/api/items', item, 201], ['DELETE', '/api/users/9', undefined, 404], ['PATCH', '/nope', item, 404]
      ] as const) {
        const answer = await send(written(method, path, body, headers))
        t.equal(answer.status, served[n] ? status : 403, `${method} ${message}`)
        if (!served[n]) t.same(JSON.parse(String(answer.body)), rejection)
      }
      t.equal((await send(written('GET', '/api/items', undefined, headers))).status, 200, `GET ${message}`)
      t.not((await send(written('OPTIONS', '/api/items', undefined, headers))).status, 403, `OPTIONS ${message}`)
    }
    t.equal((await app.inject('/api/items')).json().length, 1 + table.filter(([,, served]) => served[n]).length)
    socket.destroy()
  }
})

test('a cross-origin request is rejected before its token is checked and before its body is sent', async t => {
  const app = build(t, { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '1' })
  const { socket, send } = connection(await app.listen({ port: 0, host: '127.0.0.1' }))
  const headers = { origin: 'https://evil.example', 'content-length': '1000000' }
  t.equal((await send(written('POST', '/api/items', undefined, headers))).status, 403)
  socket.destroy()
  t.equal((await app.inject('/api/items')).statusCode, 401, 'and it is not counted against the address')
})

test('behind a trusted proxy that changes the Host, X-Forwarded-Host is the origin of the service', async t => {
  const headers = { host: 'internal:3000', 'x-forwarded-host': 'api.example', origin: 'https://api.example' }
  const post = { method: 'POST', url: '/api/items', body: item, headers } as const
  t.equal((await build(t, { TRUST_PROXY: '127.0.0.1' }).inject(post)).statusCode, 201)
  t.equal((await build(t).inject(post)).statusCode, 403)
})

test('a host has cross-origin protection only if it registers the plugin, with its own origins', async t => {
  const [plain, app] = [host(t), host(t)]
  plain.register(itemsUsers, { prefix: '/api' })
  await app.register(docs)
  app.register(crossOriginProtection, { origins: [allowed] })
  app.register(auth, { tokens: ['one'] })
  app.register(itemsUsers, { prefix: '/api' })
  app.post('/mine', async () => 'mine')
  app.setErrorHandler<Error & { statusCode: number }>(({ statusCode, message }, _request, reply) =>
    reply.code(statusCode).send({ mine: message }))

  const post = (url: string, origin: string) => ({
    method: 'POST' as const, url, body: item, headers: { origin, ...bearer, 'content-type': 'application/json' }
  })
  t.equal((await plain.inject(post('/api/items', 'https://evil.example'))).statusCode, 201)
  const rejected = await app.inject(post('/api/items', 'https://evil.example'))
  t.same([rejected.statusCode, rejected.json()], [403, rejection])
  const mine = await app.inject(post('/mine', 'https://evil.example'))
  t.same([mine.statusCode, mine.json()], [403, { mine: rejection.detail }])
  t.equal((await app.inject(post('/api/items', allowed))).statusCode, 201)
  const { paths } = (await app.inject({ url: '/openapi.json', headers: bearer })).json()
  t.match(paths['/api/items'].post.responses[403].description, 'another origin')
  t.equal(paths['/api/items'].get.responses[403]?.description.includes('another origin') ?? false, false)
})
