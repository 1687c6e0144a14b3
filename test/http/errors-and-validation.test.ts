import { type TObject, Type } from '@sinclair/typebox'
import { test } from 'tap'
import itemsUsers, { defineCollection, type Definition, docs, errors, Item, memory, User } from '../../src/index.js'
import { build, everything, host, invalidBody } from '../support/helper.js'
import { serve } from '../support/serve.js'

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
  app.get('/bad', async () => { throw Object.assign(new Error('no'), { statusCode: 400 }) })
  const response = await app.inject('/statusCode')
  t.equal(response.statusCode, 418)
  t.match(response.headers, { 'retry-after': '7', 'cache-control': 'max-age=60' })
  t.equal(response.body, '{"detail":"I am a teapot"}')
  t.equal((await app.inject('/status')).statusCode, 410)
  t.same((await app.inject('/bad')).json(), { detail: 'no', errors: [{ in: 'request', path: '', message: 'no' }] })
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

/** A collection with these fields beside the id. */
function withFields (name: string, properties: object, more: object = {}) {
  const schema = { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, ...properties }, ...more }
  return { name, schema } as object as Definition<TObject>
}

test('a condition and the names of properties have one problem for each place', async t => {
  const Part = Type.Object({
    id: Type.Integer(),
    weight: Type.Number(),
    labels: Type.Object({}, { propertyNames: { maxLength: 3 } })
  }, {
    if: { properties: { weight: { minimum: 100 } } }, then: { properties: { id: { maximum: 9 } } }
  })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part, idSource: 'client' }))
  t.same((await send('POST', '/parts', { id: 10, weight: 100, labels: { long: 1 } })).body,
    invalidBody('body', ['/id', 'must be at most 9'],
      ['/labels/long', 'is a name that must not have more than 3 characters']))
  t.equal((await send('POST', '/parts', { id: 10, weight: 99, labels: {} })).status, 201)
})

test('a union in a union has a problem', async t => {
  const Part = Type.Object({
    id: Type.Integer(),
    size: Type.Unsafe({
      oneOf: [
        { oneOf: [{ type: 'string' }, { type: 'integer' }] },
        { type: 'object', properties: { a: { type: 'string', maxLength: 3 } } }
      ]
    })
  })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part }))
  for (const size of [{ a: 'long' }, null]) {
    t.same((await send('POST', '/parts', { size })).body,
      invalidBody('body', ['/size', 'must match one of the allowed schemas']))
    t.same((await send('POST', '/parts/batch', [{ size: 1 }, { size }])).body,
      invalidBody('body', ['/1/size', 'must match one of the allowed schemas']))
  }
})

test('an object can have many fields, and its id need not be the first one', async t => {
  const many = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`f${n}`, Type.Optional(Type.Integer())]))
  const Part = Type.Object({
    sizes: Type.Array(Type.Unsafe({ type: 'object', allOf: [Type.Object(many)], unevaluatedProperties: false })),
    ...many,
    id: Type.Integer()
  })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part }))
  const created = await send('POST', '/parts', { f29: 1, sizes: [{ f0: 1 }, { f29: 1 }, {}] })
  t.same([created.body, created.headers.location], [{ id: 1, f29: 1, sizes: [{ f0: 1 }, { f29: 1 }, {}] }, './parts/1'])
  for (const [body, path, message] of [
    [{ sizes: [], f29: 'x' }, '/f29', 'must be an integer'],
    [{ sizes: [{ f0: 1 }, { f0: 1, f28: 'x', f29: 1 }] }, '/sizes/1/f28', 'must be an integer'],
    [{ sizes: [{ f30: 1 }] }, '/sizes/0/f30', 'is not a known field'],
    [{ sizes: [...Array(5000).fill({}), { f7: 'x' }] }, '/sizes/5000/f7', 'must be an integer']
  ] as const) t.same((await send('POST', '/parts', body)).body, invalidBody('body', [path, message]))
})

test('an array has many problems, and only the first one if it is large', async t => {
  const schema = Type.Object({
    id: Type.Integer(),
    tags: Type.Array(Type.Union([Type.String(), Type.Object({ a: Type.Literal(1) })]))
  })
  const { send } = await serve(t, 'memory', { name: 'notes', schema })
  const { status, body } = await send('POST', '/notes', { tags: Array.from({ length: 1000 }, () => ({})) })
  t.equal(status, 400)
  t.equal(body.errors.length, 50)
  t.same((await send('POST', '/notes', { tags: Array.from({ length: 100_000 }, () => ({})) })).body,
    invalidBody('body', ['/tags/0', 'must match one of the allowed schemas']))
})

test('a field that needs another field', async t => {
  const schema = {
    type: 'object',
    required: ['id'],
    properties: { id: { type: 'integer' }, card: { type: 'string' }, expires: { type: 'string', format: 'date' } },
    dependentRequired: { card: ['expires'] }
  }
  const { send } = await serve(t, 'memory', { name: 'payments', schema: schema as never })
  t.same((await send('POST', '/payments', { card: '1' })).body, invalidBody('body', ['', 'needs expires']))
  t.equal((await send('POST', '/payments', { card: '1', expires: '2026-11-17' })).status, 201)
})

test('unknown fields of nested objects are removed if the schema forbids them', async t => {
  const strict = { additionalProperties: false }
  const Point = Type.Object({ x: Type.Integer() }, strict)
  const schema = Type.Object({
    id: Type.Integer(),
    tree: Type.Unsafe<object>({ $ref: '#/$defs/Tree' }),
    pair: Type.Optional(Type.Tuple([Point, Type.Object({})])),
    named: Type.Optional(Type.Unsafe<object>({
      type: 'object',
      patternProperties: { '^p': Point },
      additionalProperties: false
    })),
    others: Type.Optional(Type.Record(Type.String({ pattern: '.' }), Point)),
    either: Type.Optional(Type.Union([Point, Type.Object({ y: Type.Integer() }, strict)]))
  }, {
    $defs: {
      Tree: {
        type: 'object',
        required: ['n'],
        properties: { n: { type: 'integer' }, children: { type: 'array', items: { $ref: '#/$defs/Tree' } } },
        ...strict
      }
    }
  })
  const { send } = await serve(t, undefined, { name: 'trees', schema })
  const x = { x: 1, z: 2 }
  const sent = {
    tree: { n: 1, m: 2, children: [{ n: 3, children: [], valueOf: 1 }] },
    pair: [x, x],
    named: { p: x, r: x },
    others: { a: x }
  }
  const stored = {
    tree: { n: 1, children: [{ n: 3, children: [] }] },
    pair: [{ x: 1 }, x],
    named: { p: { x: 1 } },
    others: { a: { x: 1 } }
  }
  t.same((await send('POST', '/trees', sent)).body, { id: 1, ...stored })
  t.same((await send('PUT', '/trees/1', { tree: { n: 5, m: 6 }, either: { y: 1 } })).body,
    { id: 1, tree: { n: 5 }, either: { y: 1 } })
  t.same((await send('PATCH', '/trees/1', { ...sent, either: null })).body, { id: 1, ...stored })
  for (const method of ['POST', 'PUT', 'PATCH'] as const) {
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: { n: '1', m: 2 } })).body,
      invalidBody('body', ['/tree/n', 'must be an integer']))
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: 5 })).body,
      invalidBody('body', ['/tree', 'must be an object']))
  }
  const all = await serve(t, undefined,
    { name: 'points', schema: Type.Object({ id: Type.Integer(), x: Type.Integer() }, strict) })
  t.same((await all.send('POST', '/points', { x: 1, y: 2 })).body, { id: 1, x: 1 })
})

test('recursive schemas with one reference per alternative are valid', async t => {
  const tree = {
    type: 'object',
    properties: {
      left: { $ref: '#/$defs/tree' },
      right: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'null' }] },
      rest: { type: 'array', items: { $ref: '#/$defs/tree' } }
    }
  }
  const { send } = await serve(t, 'memory',
    withFields('trees', { tree: { $ref: '#/$defs/tree' } }, { $defs: { tree } }))
  let payload: object = {}
  for (let n = 0; n < 90; n++) payload = { left: payload, right: n % 2 ? null : {}, rest: [{}] }
  t.same((await send('POST', '/trees', { tree: payload })).body, { id: 1, tree: payload })
  t.same((await send('POST', '/trees', { tree: { left: { right: 1 } } })).body,
    invalidBody('body', ['/tree/left/right', 'must match one of the allowed schemas']))
})

test('uniqueItems compares values, whatever the order of their keys', async t => {
  const { send } = await serve(t, 'memory',
    withFields('lists', { set: { type: 'array', uniqueItems: true }, bag: { type: 'array', uniqueItems: false } }))
  const create = (body: object) => send('POST', '/lists', body)
  t.equal((await create({
    set: [
      1, '1', [1], [[1]], [['1']], [], [[]], [1, 2], [[1, 2]], ['[1'], { a: 1 }, { a: '1' }, { a: [1] }, null, [null]
    ],
    bag: [1, 1]
  })).status,
  201)
  for (const set of [
    [1, 1.0], ['x', 'x'], [[[[]]], 1, [[[]]]], [[[1, [2]]], [[1, [2]]]], [[{ a: 1, b: 2 }], [{ b: 2, a: 1 }]]
  ]) {
    t.same((await create({ set })).body, invalidBody('body', ['/set', 'must not have duplicate items']))
  }
})

test('multipleOf takes decimals as they are written', async t => {
  const { send } = await serve(t, 'memory',
    withFields('prices',
      {
        price: { type: 'number', multipleOf: 0.01 },
        box: { type: 'integer', multipleOf: 10 },
        half: { type: 'number', multipleOf: 2.5 }
      }))
  const create = (body: object) => send('POST', '/prices', body)
  for (const price of [19.99, -0.07, 0, 1.1, 4.35, 123456789.01, 99999999999.99]) {
    t.same((await create({ price, box: 20 })).body.price, price)
  }
  for (const price of [0.005, 19.999, -0.071, 123456789.011, 9007199254740.123]) {
    t.same((await create({ price })).body, invalidBody('body', ['/price', 'must be a multiple of 0.01']))
  }
  for (const half of [7.5, -2.5, 1e20]) t.same((await create({ half })).body.half, half)
  for (const half of [7, 1125899906842624.25]) {
    t.same((await create({ half })).body, invalidBody('body', ['/half', 'must be a multiple of 2.5']))
  }
  t.equal((await create({ box: 1e15 })).body.box, 1e15)
  for (const box of [25, 7e15 + 3, 9007199254740001]) {
    t.same((await create({ box })).body, invalidBody('body', ['/box', 'must be a multiple of 10']))
  }
})

test('the message about a pattern is what the schema expects, or the pattern, and not its description', async t => {
  const sku = { type: 'string', pattern: '^[A-Z]+$', description: 'Stock keeping unit' }
  const { send } = await serve(t, 'memory', withFields('parts', { sku, code: { ...sku, expected: 'capital letters' } }))
  t.same((await send('POST', '/parts', { sku: 'a', code: 'b' })).body,
    invalidBody('body', ['/sku', 'must match pattern "^[A-Z]+$"'], ['/code', 'must be capital letters']))
})
