import { test } from 'tap'
import itemsUsers, { docs, errors, memory, Item, User } from '../../src/index.js'
import { build, everything, host } from '../support/helper.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

test('whatever a handler or hook throws is answered in our error format', async t => {
  for (const thrown of [null, undefined, 'text', 42, { detail: 'no error' }, new Error('boom')]) {
    const app = host(t)
    await app.register(errors)
    app.get('/throws', () => { throw thrown })
    app.get('/rejects', () => Promise.reject(thrown))
    app.register(async function scope (scope) {
      scope.addHook('preHandler', async () => { throw thrown })
      scope.register(itemsUsers, { prefix: '/api' })
    })
    for (const url of ['/throws', '/rejects', '/api/items']) {
      const response = await app.inject(url)
      t.equal(response.statusCode, 500, `${url} ${String(thrown)}`)
      t.equal(response.body, '{"detail":"Internal server error"}')
    }
  }
})

test('an error keeps its status and its headers, and a status that is not an error becomes 500', async t => {
  const app = host(t)
  await app.register(errors)
  const teapot = Object.assign(new Error('I am a teapot'),
    { headers: { 'retry-after': '7', 'cache-control': 'max-age=60' } })
  app.get('/statusCode', async () => { throw Object.assign(teapot, { statusCode: 418 }) })
  app.get('/status', async () => { throw Object.assign(new Error('gone'), { status: 410 }) })
  app.get('/reply', async (_request, reply) => { reply.code(409); throw new Error('taken') })
  const response = await app.inject('/statusCode')
  t.equal(response.statusCode, 418)
  t.match(response.headers, { 'retry-after': '7', 'cache-control': 'max-age=60' })
  t.equal(response.body, '{"detail":"I am a teapot"}')
  t.equal((await app.inject('/status')).statusCode, 410)
  t.equal((await app.inject('/reply')).statusCode, 409)
  for (const statusCode of [200, 399, 600, 999]) {
    const app = host(t)
    await app.register(errors)
    app.get('/', async () => { throw Object.assign(new Error('odd'), { statusCode }) })
    const { statusCode: status, body } = await app.inject('/')
    t.same({ status, body }, { status: 500, body: '{"detail":"Internal server error"}' }, String(statusCode))
  }
})

test('errors have a code that hooks of a host can read', async t => {
  const app = host(t)
  const codes: string[] = []
  app.addHook('onError', async (_request, _reply, error) => { codes.push(error.code) })
  app.register(itemsUsers, { prefix: '/api' })
  await app.inject('/api/items/9')
  await app.inject('/api/items/x')
  await app.inject({ method: 'POST', url: '/api/items', body: '{' })
  await app.inject({ method: 'POST', url: '/api/items', body: 'x'.repeat(2_000_000) })
  t.same(codes, ['ERR_NOT_FOUND', 'ERR_INVALID_REQUEST', 'ERR_INVALID_REQUEST', 'FST_ERR_CTP_BODY_TOO_LARGE'])
})

test('API responses must be revalidated by caches', async t => {
  const app = build(t, everything)
  const headers = { authorization: 'Bearer one' }
  for (const request of [
    { url: '/api/items', headers },
    { url: '/api/items?limit=1', headers },
    { url: '/api/items/1', headers },
    { url: '/api/items/9', headers },
    { url: '/api/items/x', headers },
    { url: '/api/nope', headers },
    { url: '/api/items' },
    { method: 'HEAD', url: '/api/items/1', headers },
    { method: 'PUT', url: '/api/items', headers },
    { method: 'POST', url: '/api/items', headers, payload: item },
    { method: 'POST', url: '/api/items', headers, payload: {} },
    { method: 'DELETE', url: '/api/users/1', headers },
    { method: 'DELETE', url: '/api/users/1', headers }
  ] as const) {
    const response = await app.inject(request)
    t.equal(response.headers['cache-control'], 'no-cache',
      `${'method' in request ? request.method : 'GET'} ${request.url} ${response.statusCode}`)
  }
})

test('a path with a trailing slash has the same response as without it', async t => {
  const app = build(t)
  for (const [method, url, body] of [
    ['GET', '/api/items'], ['HEAD', '/api/items'], ['GET', '/api/items/1'], ['GET', '/api/items/9'],
    ['GET', '/api/users'], ['GET', '/livez'],
    ['POST', '/api/items', '{}'], ['PUT', '/api/items'], ['OPTIONS', '/api/items'], ['GET', '/api'],
    ['GET', '/openapi.json']
  ] as const) {
    const [plain, slash] = await Promise.all([url, `${url}/`].map(url =>
      app.inject({ method, url, body, headers: { 'x-request-id': 'x' } })))
    const { date, ...headers } = slash?.headers ?? {}
    t.match(plain, { statusCode: slash?.statusCode, headers, body: slash?.body }, `${method} ${url}`)
  }
  t.equal((await app.inject('/api/items/?limit=1')).body, (await app.inject('/api/items?limit=1')).body)
})

test('unknown query parameters are ignored', async t => {
  const app = build(t)
  for (const url of ['/api/items', '/api/items/1', '/api/users?limit=1', '/livez', '/readyz']) {
    const { statusCode, body } = await app.inject(url)
    const more = await app.inject(`${url}${url.includes('?') ? '&' : '?'}sort=name&sort=price&__proto__=1&limits=x`)
    t.same([more.statusCode, more.body], [statusCode, body])
  }
  t.equal((await app.inject({ method: 'POST', url: '/api/items?limit=x', payload: item })).statusCode, 201)
})

test('onSend hooks of a host see every body as JSON text, and preSerialization hooks see errors only', async t => {
  const app = host(t)
  const sent: unknown[] = []
  const serialized: unknown[] = []
  app.addHook('onSend', async (_request, _reply, body) => { sent.push(body) })
  app.addHook('preSerialization', async (_request, _reply, body) => { serialized.push(body); return body })
  app.register(itemsUsers,
    {
      prefix: '/api',
      store: { items: memory({ schema: Item, seed: [item] }), users: memory({ schema: User, seed: [] }) }
    })
  for (const url of ['/api/items', '/api/items/7', '/api/items/9']) await app.inject(url)
  await app.inject({ method: 'POST', url: '/api/items', payload: item })
  const json = JSON.stringify(item)
  t.same(sent, [`[${json}]`, json, '{"detail":"Not found"}', json])
  t.same(serialized, [{ detail: 'Not found' }])
})

test('hooks of a host run on the documentation pages', async t => {
  const app = host(t)
  const sent: string[] = []
  app.addHook('onSend', async ({ url }, reply) => {
    sent.push(url)
    reply.header('x-host', 'yes')
  })
  await app.register(docs)
  for (const url of ['/docs', '/docs/static/index.html', '/docs/json', '/redoc', '/redoc/init.js', '/openapi.json']) {
    t.equal((await app.inject(url)).headers['x-host'], 'yes', url)
  }
  t.equal(sent.length, 6)
})

test('ordinary routes with schemas can be added to the service', async t => {
  const app = build(t)
  app.get('/double', {
    schema: {
      querystring: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
      response: { 200: { type: 'object', properties: { doubled: { type: 'integer' } } } }
    }
  }, async request => ({ doubled: 2 * (request.query as { n: number }).n, secret: true }))
  t.equal((await app.inject('/double?n=21')).body, '{"doubled":42}')
  t.equal((await app.inject('/double?n=x')).statusCode, 400)
})

test('an object with a status that is not an Error is answered like one, and other values are failures', async t => {
  for (const [thrown, status, detail] of [
    [{ statusCode: 402 }, 402, 'Payment Required'], [{ status: 409, message: 'Taken', code: 'TAKEN' }, 409, 'Taken'],
    [{ statusCode: 503, message: 'secret' }, 503, 'Service Unavailable'],
    [{ statusCode: 200, message: 'secret' }, 500, 'Internal server error'],
    [{ message: 'secret' }, 500, 'Internal server error'], ['secret', 500, 'Internal server error']
  ] as const) {
    const app = host(t)
    app.addHook('onRequest', async () => { throw thrown })
    app.register(itemsUsers, { prefix: '/api' })
    const response = await app.inject('/api/items')
    t.same([response.statusCode, response.json().detail], [status, detail], JSON.stringify(thrown))
  }
})
