import type { OwnStores } from '../../plugins/host-stores.js'
import { readFileSync } from 'node:fs'
import { runInNewContext } from 'node:vm'
import { type FastifyError, type FastifyInstance, type FastifyPluginAsync, type FastifyRequest, type InjectOptions } from 'fastify'
import { test } from 'tap'
import * as exported from '../../src/index.js'
import itemsUsers, { collection, docs, health, Item, items, memory, NotStorableError, stores, StoreUnavailableError, User, users, type Health, type OwnStore, type Store, type Stores } from '../../src/index.js'
import { followed, host, invalidBody } from '../support/helper.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

test('the plugin serves under its prefix, and Location leads to the record', async t => {
  const app = host(t)
  app.register(itemsUsers, { prefix: '/shop/v1' })
  const response = await app.inject({ method: 'POST', url: '/shop/v1/items', payload: item })
  t.equal(response.statusCode, 201)
  t.same((await app.inject(followed(response.headers.location, '/shop/v1/items'))).json(), item)
  t.same((await app.inject('/shop/v1/items/7')).json(), item)
})

test('with idSource: server, the service generates the ids', async t => {
  const app = host(t)
  app.register(itemsUsers, { prefix: '/api', idSource: 'server' })
  t.same((await app.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name: 'Grace' } })).json(), { id: 2, name: 'Grace' })
})

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

test('a very long id is answered with 404', async t => {
  const app = host(t, { routerOptions: { maxParamLength: 1000 } })
  app.register(itemsUsers, { prefix: '/api' })
  t.equal((await app.inject(`/api/items/${'9'.repeat(400)}`)).body, '{"detail":"Not found"}')
  t.equal((await app.inject(`/api/items/-${'9'.repeat(400)}`)).body, '{"detail":"Not found"}')
})

test('the compilers of a host do not affect validation and serialization', async t => {
  const app = host(t)
  app.setValidatorCompiler(() => () => ({ error: new Error('no') }))
  app.setSerializerCompiler(() => () => 'not ours')
  app.setReplySerializer(() => 'not ours')
  app.register(itemsUsers, { prefix: '/api' })
  t.same((await app.inject({ method: 'POST', url: '/api/items', payload: item })).json(), item)
  t.equal((await app.inject('/api/items/9')).body, '{"detail":"Not found"}')
})

test('responses of host hooks on our routes are sent unchanged', async t => {
  const app = host(t)
  app.addHook('onRequest', async (request, reply) => reply.code(Number(request.headers.status)).send({ own: true }))
  app.register(itemsUsers, { prefix: '/api' })
  for (const status of [200, 400, 401, 404, 429, 500, 503]) {
    const response = await app.inject({ url: '/api/items/1', headers: { status: String(status) } })
    t.equal(response.statusCode, status)
    t.equal(response.body, '{"own":true}')
  }
})

test('a host can register the documentation pages and the probes separately', async t => {
  const app = host(t)
  await app.register(docs)
  app.register(health)
  app.addSchema({ $id: 'Pet', type: 'object', properties: { name: { type: 'string' } } })
  app.get('/hello', { schema: { tags: ['mine'], response: { 200: { $ref: 'Pet#' } } } }, async () => 'hello')
  app.addSchema({ $id: 'Toy', type: 'object', properties: { name: { type: 'string' } }, examples: [{ name: 'Ball' }] })
  app.post('/hello', { schema: { response: { 200: { $ref: 'Toy#' }, 201: { type: 'object', properties: {} } } } }, async () => 'hello')
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
  const app = host(t, { logger: { level: 'warn', stream: { write: line => lines.push(JSON.parse(line).err.message) } } })
  await app.register(health)
  let isUp = false
  app.getDecorator<Health['addReadinessCheck']>('addReadinessCheck')(async () => { if (!isUp) throw new Error('no queue') })
  const down = await app.inject('/readyz')
  t.equal(down.statusCode, 503)
  t.equal(down.body, '{"detail":"Not ready"}')
  t.same(lines, ['no queue'])
  isUp = true
  t.equal((await app.inject('/readyz')).statusCode, 200)
})

test('the probes and the documentation can have a prefix, and the document has all paths of the app', async t => {
  const app = host(t)
  await app.register(docs, { prefix: '/manual' })
  app.register(health, { prefix: '/ops/' })
  app.register(itemsUsers, { prefix: '/api' })
  for (const url of ['/ops/livez', '/ops/readyz', '/manual/docs', '/manual/redoc']) t.equal((await app.inject(url)).statusCode, 200, url)
  for (const url of ['/livez', '/openapi.json', '/docs', '/redoc']) t.equal((await app.inject(url)).statusCode, 404, url)
  const { paths, tags } = (await app.inject('/manual/openapi.json')).json()
  t.same(Object.keys(paths), ['/ops/livez', '/ops/readyz', '/api/items', '/api/items/{item_id}', '/api/users', '/api/users/{id}'])
  t.equal(paths['/ops/livez'].get.operationId, 'isLive')
  t.ok(tags.some(({ name }: { name: string }) => name === 'health'))
  const { servers } = (await app.inject('/manual/openapi.json')).json()
  t.equal(new URL(servers[0].url, 'http://x/manual/openapi.json').pathname, '/')
})

test('the path of a collection with a slash at its end has an empty id, unless the host ignores the slash', async t => {
  for (const ignoreTrailingSlash of [false, true]) {
    const app = host(t, { routerOptions: { ignoreTrailingSlash } })
    app.register(itemsUsers, { prefix: '/api' })
    t.equal((await app.inject('/api/items/')).statusCode, ignoreTrailingSlash ? 200 : 400)
  }
})

test('an error with a status that the store function throws is the response', async t => {
  const app = host(t)
  app.register(itemsUsers, { prefix: '/api', store: async () => { throw Object.assign(new Error('Unknown tenant'), { statusCode: 404 }) } })
  const { statusCode, body } = await app.inject('/api/items')
  t.same([statusCode, body], [404, '{"detail":"Unknown tenant"}'])
})

test('with errorHandler: false, the error handler of the host gets all errors of the routes', async t => {
  const app = host(t)
  const failing: Store<Item> = {
    ...memory<Item>({ schema: Item, seed: [] }),
    append () { throw new NotStorableError([{ path: '/name', message: 'must be short' }]) },
    first () { throw new Error('broken') },
    select () { throw new StoreUnavailableError() }
  }
  app.setErrorHandler<FastifyError & { errors?: object[] }>(({ statusCode = 0, code, message, errors }, _request, reply) => reply.code(statusCode).send({ code, message, errors }))
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
    [400, { code: 'ERR_NOT_STORABLE', message: 'Invalid body: name must be short.', errors: [{ in: 'body', path: '/name', message: 'must be short' }] }]
  ])
})

test('with errorHandler: false, a host without an error handler answers like Fastify, and the document has no error responses', async t => {
  const app = host(t)
  await app.register(docs)
  app.register(itemsUsers, { prefix: '/api', errorHandler: false })
  t.same((await app.inject('/api/items/9')).json(), { statusCode: 404, code: 'ERR_NOT_FOUND', error: 'Not Found', message: 'Not found' })
  const { paths } = (await app.inject('/openapi.json')).json()
  t.same(Object.keys(paths['/api/items/{item_id}'].get.responses), ['200', '304'])
})

test('the documentation pages are ordinary routes of the host', async t => {
  const app = host(t)
  const answered: string[] = []
  app.addHook('onRequest', async (_request, reply) => { reply.header('x-host', 'Ada').header('content-security-policy', 'none') })
  app.addHook('onResponse', async ({ method, url }, { statusCode }) => { answered.push(`${method} ${url} ${statusCode}`) })
  app.setNotFoundHandler((_request, reply) => reply.code(404).send('not here'))
  app.setErrorHandler<FastifyError>(({ statusCode = 500 }, _request, reply) => reply.code(statusCode).send('oh no'))
  app.register(async function scope (scope) {
    await scope.register(docs)
  }, { prefix: '/shops/:shop' })

  const page = await app.inject('/shops/1/redoc/LICENSE')
  t.match(page.body, /MIT License/)
  t.equal(page.headers['x-host'], 'Ada')
  const head = await app.inject({ method: 'HEAD', url: '/shops/1/redoc/LICENSE' })
  t.equal(head.body, '')
  t.equal(head.headers['content-length'], page.headers['content-length'])
  t.equal((await app.inject({ url: '/shops/1/redoc/LICENSE', headers: { 'if-none-match': page.headers.etag } })).statusCode, 304)
  t.equal((await app.inject('/shops/1/docs/nothing')).body, 'not here')
  t.equal((await app.inject({ url: '/shops/1/redoc/LICENSE', headers: { 'if-match': '"other"' } })).body, 'oh no')
  t.same(answered, [
    'GET /shops/1/redoc/LICENSE 200',
    'HEAD /shops/1/redoc/LICENSE 200',
    'GET /shops/1/redoc/LICENSE 304',
    'GET /shops/1/docs/nothing 404',
    'GET /shops/1/redoc/LICENSE 412'
  ])
  for (const url of ['/shops/1/docs', '/shops/1/redoc']) {
    t.match((await app.inject(url)).headers['content-security-policy'], /^default-src 'none'; /)
  }
})

test('the document contains our Item and the Item of a host, and its server URL is correct under a prefix', async t => {
  const app = host(t)
  app.addSchema({ $id: 'Item', type: 'object', properties: { colour: { type: 'string' } } })
  app.register(async function scope (scope) {
    await scope.register(docs)
    scope.get('/own', { schema: { response: { 200: { $ref: 'Item#' } } } }, async () => ({ colour: 'red' }))
    scope.register(itemsUsers, { prefix: '/api' })
  }, { prefix: '/shop/v1' })
  const { servers, paths, components } = (await app.inject('/shop/v1/openapi.json')).json()
  t.equal(new URL(servers[0].url, 'http://x/shop/v1/openapi.json').pathname, '/')
  t.equal(new URL((await app.inject('/shop/v1/docs/json')).json().servers[0].url, 'http://x/shop/v1/docs/').pathname, '/')
  t.ok(paths['/shop/v1/api/items'])
  t.same(Object.keys(components.schemas.Item.properties), ['colour'])
  t.same(Object.keys(components.schemas['ItemsUsers.Item'].properties), ['id', 'name', 'price'])
})

test('a store can be asynchronous', async t => {
  const app = host(t)
  const later = <T>(value: T) => new Promise<T>(resolve => setImmediate(resolve, value))
  const slow: OwnStore<Item> = {
    append: records => later(records as Item[]),
    count: () => later(1),
    first: id => later(id === 7 ? item : undefined),
    select: ({ limit }) => later({ records: limit === undefined ? [item] : [] }),
    change: () => later(undefined)
  }
  app.register(collection, { ...items, prefix: '/items', store: slow })
  app.register(collection, { ...users, prefix: '/users', store: slow })
  t.same((await app.inject('/items')).json(), [item])
  t.same((await app.inject('/items/7')).json(), item)
  t.equal((await app.inject('/items/8')).body, '{"detail":"Not found"}')
  t.equal((await app.inject({ method: 'POST', url: '/items', payload: item })).headers.location, './items/7')
  t.equal((await app.inject({ method: 'DELETE', url: '/users/7' })).statusCode, 404)
})

test('a store can return promises of another realm, as in Jest', async t => {
  const later = <T>(value: T): Promise<T> => runInNewContext('value => Promise.resolve(value)')(value)
  const store = { ...memory<Item>({ schema: Item, seed: [] }), first: () => later(item), select: () => later({ records: [item] }) }
  const app = host(t)
  app.register(collection, { ...items, prefix: '/items', store })
  t.same((await app.inject('/items/7')).json(), item)
  t.same((await app.inject('/items')).json(), [item])
})

test('each request can have its own store, and a single collection is in memory by default', async t => {
  const stores = new Map(['a', 'b'].map(name => [name, {
    items: memory<Item>({ schema: Item, seed: [{ ...item, name }] }),
    users: memory<User>({ schema: User, seed: [] })
  }]))
  const storesOf = ({ headers }: FastifyRequest) => stores.get(String(headers.tenant)) ?? { items: none, users: none }
  const none = memory<Item>({ schema: Item, seed: [] })
  const app = host(t)
  app.register(itemsUsers, { prefix: '/api', store: storesOf })
  app.register(collection, { ...items, prefix: '/things', store: async (request: FastifyRequest) => storesOf(request).items })
  app.register(collection, { ...items, prefix: '/alone' })
  for (const url of ['/api/items', '/things']) {
    for (const tenant of stores.keys()) t.same((await app.inject({ url, headers: { tenant } })).json(), [{ ...item, name: tenant }])
    t.same((await app.inject(url)).json(), [])
  }
  t.same((await app.inject('/alone')).json(), [{ id: 1, name: 'Lamp', price: 42.5 }])
  const created = await app.inject({ method: 'POST', url: '/api/users', payload: item, headers: { tenant: 'b' } })
  t.equal(created.statusCode, 201)
  t.same((await app.inject({ url: '/api/users', headers: { tenant: 'a' } })).json(), [])
})

test('stores of a request are a function of the request, and each is checked', async t => {
  const own = { items: memory<Item>({ schema: Item, seed: [item] }), users: memory<User>({ schema: User, seed: [{ id: 1, name: 'Ada' }] }) }
  const lines: string[] = []
  const app = host(t, { logger: { level: 'error', stream: { write: line => lines.push(JSON.parse(line).msg) } } })
  await app.register(stores, { store: ({ headers }) => headers.broken ? {} : own })
  app.register(itemsUsers, { prefix: '/api', store: app.getDecorator<Stores>('stores') })
  t.same((await app.inject('/api/items?limit=1')).json(), [item])
  t.equal((await app.inject({ method: 'DELETE', url: '/api/users/1' })).statusCode, 204)
  for (const url of ['/api/items', '/api/users']) t.equal((await app.inject({ url, headers: { broken: 'yes' } })).statusCode, 500)
  t.same(lines, ['The option store has no store for the collection items.', 'The option store has no store for the collection users.'])
})

test('a missing store for a collection is reported at startup', async t => {
  const app = host(t)
  app.register(itemsUsers, { prefix: '/api', store: { items: memory<Item>({ schema: Item, seed: [] }) } as never })
  await t.rejects(async () => app.ready(), { code: 'ERR_STARTUP', message: 'The option store has no store for the collection users.' })
})

test('every exported plugin has the supported Fastify versions, and a name unless it can be registered several times', async t => {
  const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8'))
  const plugins = Object.entries({ ...exported, default: {}, itemsUsers }).filter(([, value]) => Object.hasOwn(value, Symbol.for('plugin-meta')))
  t.equal(plugins.length, 15)
  for (const [name, plugin] of plugins) {
    t.match(Reflect.get(plugin, Symbol.for('plugin-meta')), {
      fastify: peerDependencies.fastify, name: ['collection', 'itemsUsers'].includes(name) ? undefined : /^fastify-items-users\/[a-z-]+$/
    }, name)
  }
})

test('a store that is missing is an error at registration', async t => {
  const store = { users: memory<User>({ schema: User, seed: [] }) }
  await t.rejects(async () => host(t).register(itemsUsers, { store }).ready(), {
    message: 'The option store has no store for the collection items.'
  })
})

test('an invalid store address is rejected, and the own stores of a host are used', async t => {
  await t.rejects(Promise.resolve(host(t).register(itemsUsers, { store: 'mysql://ada:sesame@db/items' })), {
    message: 'The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.'
  })
  const own: OwnStore<{ id: number }> = { append: records => records as never, count: () => 1, first: () => ({ id: 2 }), select: () => ({ records: [{ id: 3 }] }), change: () => undefined }
  const app = host(t)
  app.register(itemsUsers, { prefix: '/api', store: { items: own, users: own } as OwnStores })
  t.equal((await app.inject('/api/items')).body, '[{"id":3}]')
  t.equal((await app.inject('/api/users/5')).body, '{"id":2}')
})

test('code of a host appends validated records when the app is ready, and wrong registrations are clear errors', async t => {
  const app = host(t)
  await app.register(stores)
  const opened = app.getDecorator<Stores>('stores')
  await app.register(itemsUsers, { prefix: '/api', store: opened })
  t.throws(() => opened.items.select({}), { code: 'ERR_STARTUP', message: 'The stores can be used when the app is ready.' })
  await app.ready()
  t.same(await opened.items.append({ ...item, isAdmin: true } as Item), item)
  await t.rejects(async () => opened.items.append({ ...item, price: 'x' } as never), { statusCode: 400, message: 'Invalid body: price must be a number.' })
  t.equal(await opened.items.count?.({}), 2)

  const documented = host(t)
  await documented.register(docs, { transform: ({ schema, url }) => ({ schema: { ...schema, summary: 'transformed' }, url }) })
  documented.register(async scope => { scope.get('/own', { schema: {} }, async () => 'own') })
  t.equal((await documented.inject('/openapi.json')).json().paths['/own'].get.summary, 'transformed')
  const twice = host(t)
  await twice.register(docs)
  await t.rejects(Promise.resolve(twice.register(docs)), { code: 'ERR_STARTUP', message: /^The plugin docs and @fastify\/swagger cannot/ })
  await t.rejects(Promise.resolve(host(t).register(collection, { ...users, prefix: '/groups/:id/users' })), { message: /has a parameter id, too/ })
})
