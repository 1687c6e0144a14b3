import type { FastifyInstance, InjectOptions } from 'fastify'
import { test, type Test } from 'tap'
import { onEveryEngine } from '../support/engines.js'
import * as helper from '../support/helper.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

onEveryEngine((t, address) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv) => helper.build(t, { DATABASE_URL: address(), ...env })

  t.test('all features work together', async t => {
    const app = build(t, { ...helper.everything, METRICS_PORT: '0' })
    const origin = 'https://example.com'
    const headers = { origin, 'idempotency-key': 'a', ...bearer('one') }
    const preflight = await app.inject({ method: 'OPTIONS', url: '/api/v1/items', headers: { origin, 'access-control-request-method': 'POST' } })
    t.equal(preflight.statusCode, 204)
    for (let n = 0; n < 2; n++) {
      const created = await app.inject({ method: 'POST', url: '/api/v1/items', payload: { name: 'Kettle', price: 19.99 }, headers })
      t.equal(created.statusCode, 201)
      t.equal(created.body, '{"id":2,"name":"Kettle","price":19.99}')
      t.match(created.headers, {
        location: './items/2',
        'access-control-allow-origin': origin,
        'content-security-policy': "default-src 'none';frame-ancestors 'none'",
        'x-ratelimit-limit': '1000'
      })
    }
    const page = await app.inject({ url: '/api/items?limit=1', headers })
    t.match(page.headers.link, /^<\?limit=1&after=/)
    const { statusCode, headers: { 'x-content-type-options': nosniff } } = await app.inject('/api/items')
    t.same([statusCode, nosniff], [401, 'nosniff'])
  })
})

test('pages of an allowed origin can use the API and read its headers', async t => {
  const preflight = (app: FastifyInstance, url: string, origin: string): Promise<{ statusCode: number, body: string, headers: Record<string, unknown> }> => app.inject({
    method: 'OPTIONS',
    url,
    headers: { origin, 'access-control-request-method': 'DELETE', 'access-control-request-headers': 'authorization,idempotency-key' }
  })
  const app = helper.build(t, { ...helper.everything, CORS_ORIGIN: 'https://a.example,http://b.example:8080' })
  for (const origin of ['https://a.example', 'http://b.example:8080']) {
    const { statusCode, headers } = await preflight(app, '/api/users/1', origin)
    t.equal(statusCode, 204)
    t.match(headers, {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      'access-control-allow-headers': 'authorization,idempotency-key'
    })
    const response = await app.inject({ url: '/api/items', headers: { origin, ...bearer('one') } })
    t.equal(response.headers['access-control-allow-origin'], origin)
    t.equal(response.headers['access-control-expose-headers'],
      'ETag, Link, Location, Retry-After, X-Request-Id, X-Total-Count, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset')
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
  t.same(Object.keys((await preflight(none, '/api/items', 'https://a.example')).headers).filter(name => name.startsWith('access-control')), [])
  t.equal((await none.inject({ url: '/api/items', headers: { origin: 'https://a.example' } })).headers['access-control-allow-origin'], undefined)
})

test('OPTIONS is answered with the methods of the path, with and without CORS', async t => {
  for (const env of [{}, { CORS_ORIGIN: 'https://example.com' }, { CORS_ORIGIN: '*' }]) {
    const app = helper.build(t, env)
    for (const [url, allow] of [
      ['/api/items', 'GET, HEAD, POST, OPTIONS'], ['/api/items/', 'GET, HEAD, POST, OPTIONS'], ['/api/items?x=1', 'GET, HEAD, POST, OPTIONS'],
      ['/api/items/1', 'GET, HEAD, OPTIONS'], ['/api/users/x', 'GET, HEAD, DELETE, OPTIONS'], ['/livez', 'GET, HEAD, OPTIONS'],
      ['/', 'GET, HEAD, OPTIONS'], ['/docs', 'GET, HEAD, OPTIONS'], ['/redoc/', 'GET, HEAD, OPTIONS']
    ] as const) {
      const response = await app.inject({ method: 'OPTIONS', url, headers: { 'x-request-id': 'x' }, body: '{' })
      t.same([response.statusCode, response.headers.allow, response.body], [204, allow, ''], `${url} ${JSON.stringify(env)}`)
    }
  }
  t.equal((await helper.build(t).inject({ method: 'OPTIONS', url: '/nope' })).statusCode, 404)
  t.equal((await helper.build(t, { AUTH_TOKENS: 'one' }).inject({ method: 'OPTIONS', url: '/api/items' })).statusCode, 401)
})

test('SECURITY_HEADERS adds the headers of helmet to the API, and the documentation pages keep their own policy', async t => {
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
