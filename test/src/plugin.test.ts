import { once } from 'node:events'
import { connect, type ClientHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import Fastify from 'fastify'
import type { FastifyError, FastifyInstance, FastifyPluginAsync, InjectOptions } from 'fastify'
import { test } from 'tap'
import type { OwnStores } from '../../plugins/host-stores.js'
import itemsUsers, { collection, docs, errors, health, Item, items, memory, stores } from '../../src/index.js'
import { NotStorableError, StoreUnavailableError, users } from '../../src/index.js'
import type { Health, OwnStore, Store, Stores } from '../../src/index.js'
import { host, invalidBody } from '../support/helper.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

test('without a prefix, unknown paths are left to the host', async t => {
  const app = host(t)
  app.setNotFoundHandler(async () => 'the host\'s own')
  app.register(itemsUsers)
  t.equal((await app.inject('/items')).statusCode, 200)
  t.equal((await app.inject('/nope')).body, 'the host\'s own')
  const outer = host(t)
  outer.register(async scope => {
    scope.setNotFoundHandler(async () => 'the scope\'s own')
    scope.register(itemsUsers)
  }, { prefix: '/v1' })
  t.equal((await outer.inject('/v1/items')).statusCode, 200)
  t.equal((await outer.inject('/v1/nope')).body, 'the scope\'s own')
})

test('a host can register the documentation pages and the probes separately', async t => {
  const app = host(t)
  await app.register(docs)
  app.register(health)
  app.addSchema({ $id: 'Pet', type: 'object', properties: { name: { type: 'string' } } })
  app.get('/hello', { schema: { tags: ['mine'], response: { 200: { $ref: 'Pet#' } } } }, async () => 'hello')
  app.addSchema({ $id: 'Toy', type: 'object', properties: { name: { type: 'string' } }, examples: [{ name: 'Ball' }] })
  app.post(
    '/hello',
    { schema: { response: { 200: { $ref: 'Toy#' }, 201: { type: 'object', properties: {} } } } },
    async () => 'hello'
  )
  t.same(Object.keys((await app.inject('/openapi.json')).json().paths), ['/hello', '/livez', '/readyz'])
  t.same((await app.inject('/openapi.json')).json().paths['/hello'].get.responses[200].content['application/json'],
    { schema: { $ref: '#/components/schemas/Pet' } }, 'a schema of the host is left alone')
  t.same((await app.inject('/openapi.json')).json().components.schemas.Toy.examples, [{ name: 'Ball' }])
  t.equal((await app.inject('/docs')).statusCode, 200)
  t.equal((await app.inject('/redoc')).statusCode, 200)
  t.equal((await app.inject('/livez')).body, '{"status":"ok"}')
  t.equal((await app.inject('/readyz')).body, '{"status":"ok"}')
})

test('readiness checks the databases of all scopes, in every order, and the checks of the host', async t => {
  const unreachable = { store: 'postgres://127.0.0.1:1/items', prefix: '/api' }
  const inScope: FastifyPluginAsync = async scope => { scope.register(health) }
  for (const register of [
    (app: FastifyInstance) => app.register(health).register(itemsUsers, unreachable),
    (app: FastifyInstance) => app.register(itemsUsers, unreachable).register(health),
    (app: FastifyInstance) => app.register(itemsUsers, unreachable).register(inScope),
    (app: FastifyInstance) => app.register(inScope).register(itemsUsers, unreachable)
  ]) {
    const app = host(t)
    register(app)
    t.equal((await app.inject('/readyz')).body, '{"detail":"The database is unavailable"}')
  }
  const lines: string[] = []
  const app = host(t, {
    logger: { level: 'warn', stream: { write: line => lines.push(JSON.parse(line).err.message) } }
  })
  await app.register(health)
  let isUp = false
  app.getDecorator<Health['addReadinessCheck']>('addReadinessCheck')(async () => {
    if (!isUp) throw new Error('no queue')
  })
  const down = await app.inject('/readyz')
  t.equal(down.statusCode, 503)
  t.equal(down.body, '{"detail":"Not ready"}')
  t.same(lines, ['no queue'])
  isUp = true
  t.equal((await app.inject('/readyz')).statusCode, 200)
})

test('with errorHandler: false, the error handler of the host gets all errors of the routes', async t => {
  const app = host(t)
  const failing: Store<Item> = {
    ...memory<Item>({ schema: Item, seed: [] }),
    append () { throw new NotStorableError([{ path: '/name', message: 'must be short' }]) },
    first () { throw new Error('broken') },
    select () { throw new StoreUnavailableError() }
  }
  app.setErrorHandler<FastifyError & { errors?: object[] }>(
    ({ statusCode = 0, code, message, errors }, _request, reply) =>
      reply.code(statusCode).send({ code, message, errors })
  )
  app.register(itemsUsers, { prefix: '/api', errorHandler: false })
  app.register(collection, { ...items, prefix: '/failing', store: failing, errorHandler: false })
  const answers = async (...requests: (InjectOptions | string)[]) => Promise.all(requests.map(async request => {
    const response = await app.inject(request)
    return [response.statusCode, response.json()]
  }))
  const { detail, ...problems } = invalidBody('body', ['/price', 'is required'])
  t.same(await answers('/api/items/9', { method: 'POST', url: '/api/items', payload: { id: 1, name: 'Lamp' } }), [
    [404, { code: 'ERR_NOT_FOUND', message: 'Not found' }],
    [400, { code: 'ERR_INVALID_REQUEST', message: detail, ...problems }]
  ])
  t.same(await answers('/failing/1', '/failing', { method: 'POST', url: '/failing', payload: item }), [
    [500, { message: 'broken' }],
    [503, { code: 'ERR_STORE_UNAVAILABLE', message: 'The database is unavailable' }],
    [
      400,
      {
        code: 'ERR_NOT_STORABLE',
        message: 'Invalid body: name must be short.',
        errors: [{ in: 'body', path: '/name', message: 'must be short' }]
      }
    ]
  ])
})

test('an invalid store address is rejected, and the own stores of a host are used', async t => {
  await t.rejects(Promise.resolve(host(t).register(itemsUsers, { store: 'mysql://ada:sesame@db/items' })), {
    message: 'The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.'
  })
  const own: OwnStore<{ id: number }> = {
    append: records => records as never,
    count: () => 1,
    first: () => ({ id: 2 }),
    select: () => ({ records: [{ id: 3 }] }),
    change: () => undefined
  }
  const app = host(t)
  app.register(itemsUsers, { prefix: '/api', store: { items: own, users: own } as OwnStores })
  t.equal((await app.inject('/api/items')).body, '[{"id":3}]')
  t.equal((await app.inject('/api/users/5')).body, '{"id":2}')
})

test('code of a host appends records when the app is ready, and wrong registrations are clear errors', async t => {
  const app = host(t)
  await app.register(stores)
  const opened = app.getDecorator<Stores>('stores')
  await app.register(itemsUsers, { prefix: '/api', store: opened })
  t.throws(() => opened.items.select({}), {
    code: 'ERR_STARTUP',
    message: 'The stores can be used when the app is ready.'
  })
  await app.ready()
  t.same(await opened.items.append({ ...item, isAdmin: true } as Item), item)
  await t.rejects(async () => opened.items.append({ ...item, price: 'x' } as never), {
    statusCode: 400,
    message: 'Invalid body: price must be a number.'
  })
  t.equal(await opened.items.count?.({}), 2)

  const documented = host(t)
  await documented.register(docs, {
    transform: ({ schema, url }) => ({ schema: { ...schema, summary: 'transformed' }, url })
  })
  documented.register(async scope => { scope.get('/own', { schema: {} }, async () => 'own') })
  t.equal((await documented.inject('/openapi.json')).json().paths['/own'].get.summary, 'transformed')
  const twice = host(t)
  await twice.register(docs)
  await t.rejects(Promise.resolve(twice.register(docs)), {
    code: 'ERR_STARTUP',
    message: /^The plugin docs and @fastify\/swagger cannot/
  })
  await t.rejects(Promise.resolve(host(t).register(collection, { ...users, prefix: '/groups/:id/users' })), {
    message: /has a parameter id, too/
  })
})

test('a host scope with the same prefix can have its own not-found handler', async t => {
  for (const first of ['host', 'plugin']) {
    for (const notFound of [true, false]) {
      const app = host(t)
      if (first === 'plugin') app.register(itemsUsers, { prefix: '/api', notFound })
      app.register(async function own (scope) {
        scope.setNotFoundHandler(async () => 'of the host')
        scope.get('/own', async () => 'own')
      }, { prefix: '/api' })
      if (first === 'host') app.register(itemsUsers, { prefix: '/api', notFound })
      const ours = '{"detail":"Path not found"}'
      for (const url of ['/api/nope', '/api/nope/again?x=1', '/api/', `/api/${'x'.repeat(200)}`]) {
        t.equal((await app.inject(url)).body, notFound ? ours : 'of the host', url)
      }
      t.equal((await app.inject('/api')).body, 'of the host')
      t.equal((await app.inject('/api/own')).body, 'own')
      t.equal((await app.inject({ method: 'PUT', url: '/api/items' })).statusCode, notFound ? 405 : 200)
      t.equal((await app.inject('/api/items')).statusCode, 200)
    }
  }
})

test('an HTTP/2 client can send a body without a content type and a length', async t => {
  const app = Fastify({ http2: true })
  t.teardown(() => app.close())
  app.register(itemsUsers, { prefix: '/api' })
  await app.listen({ port: 0 })
  const session = connect(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}`)
  t.teardown(() => session.close())
  const created = session.request({ ':method': 'POST', ':path': '/api/items' })
  t.same(await answer(created.end(JSON.stringify(item))), [201, JSON.stringify(item)])
  const deleted = session.request({ ':method': 'DELETE', ':path': '/api/users/1' })
  t.same(await answer(deleted.end()), [204, ''])

  async function answer (stream: ClientHttp2Stream) {
    const [headers] = await once(stream, 'response')
    return [headers[':status'], await text(stream)]
  }
})

test('errors at the root keeps the errors of a host readable, with their headers and codes', async t => {
  const querystring = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
  const app = host(t)
  app.register(errors)
  app.get('/own', { schema: { querystring } }, async () => 'own')
  app.get('/rejected', async () => {
    throw Object.assign(new Error('Sold out'), { statusCode: 409, code: 'SOLD_OUT', headers: { 'x-stock': '0' } })
  })
  app.post('/body', async () => 'own')
  t.same((await app.inject('/own')).json(), {
    detail: "querystring must have required property 'n'",
    errors: [{ in: 'query', path: '/n', message: 'is required' }],
    code: 'FST_ERR_VALIDATION'
  })
  t.equal((await app.inject('/own?n=x')).json().detail, 'querystring/n must be integer')
  const rejected = await app.inject('/rejected')
  t.same(rejected.json(), { detail: 'Sold out', code: 'SOLD_OUT' })
  t.equal(rejected.headers['x-stock'], '0')
  const headers = { 'content-type': 'application/json' }
  const malformed = await app.inject({ method: 'POST', url: '/body', headers, body: '{' })
  t.match(malformed.json().detail, /^Body is not valid JSON/)
})

test('a host chooses the title, description, version, servers and paths of the document', async t => {
  const servers = [{ url: 'https://example.com/shop', description: 'Production' }, { url: '/here' }]
  const info = { title: 'Shop & <Co>', description: 'Sells', version: '2.3.4' }
  const app = host(t)
  await app.register(docs, { ...info, servers, document: '/specs/v1.json', swaggerUi: '/pages/swagger', redoc: false })
  app.register(itemsUsers, { prefix: '/api' })
  const document = (await app.inject('/specs/v1.json')).json()
  t.same(document.info, info)
  t.same(document.servers, servers)
  t.same((await app.inject('/pages/swagger/json')).json().servers, servers)
  t.match((await app.inject('/pages/swagger')).body, '<title>Shop &amp; &lt;Co></title>')
  for (const url of ['/openapi.json', '/docs', '/redoc']) t.equal((await app.inject(url)).statusCode, 404, url)
})
