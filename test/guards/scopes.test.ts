import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { test, type Test } from 'tap'
import { readConfig } from '../../src/read-config.js'
import { auth, collection, crossOriginProtection, docs, errors, items, rateLimit, users } from '../../src/index.js'
import { connection, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import * as helper from '../support/helper.js'
import { start } from '../support/process.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const order = { quantity: 2 }
const orders = {
  schema: { type: 'object', required: ['id', 'quantity'], properties: { id: { type: 'integer' }, quantity: { type: 'integer' } } },
  seed: [{ id: 1, quantity: 1 }]
}

/** Writes a file and returns its path. */
function fileOf (t: Test, content: string) {
  const file = `${newFolder(t)}/file`
  writeFileSync(file, content)
  return file
}

/** What each token may do. `other` stands for paths and methods without a route. */
const grants: Record<string, string[]> = {
  everything: ['items:read', 'users:read', 'orders:read', 'items:write', 'users:write', 'orders:write', 'other'],
  writer: ['items:read', 'users:read', 'orders:read', 'items:write', 'users:write', 'orders:write', 'other'],
  reader: ['items:read', 'users:read', 'orders:read', 'other'],
  'order-reader': ['orders:read'],
  'order-writer': ['orders:read', 'orders:write'],
  'two-collections': ['orders:read', 'items:read', 'items:write'],
  'reader-and-writer': ['items:read', 'users:read', 'orders:read', 'orders:write', 'other']
}
const tokensFile = `everything
shop:writer write # with a name
reader\tread
order-reader  orders:read
order-writer orders:write
two-collections orders:read items:write
reader-and-writer read orders:write read
`

const reads = { GET: 'read', HEAD: 'read' }
/** The collection of a path, and what the methods of its routes need. A path outside of the API is not guarded. */
const paths: [path: string, collection?: string, methods?: Record<string, string>][] = [
  ...['/api/orders', '/api/orders/', '/api/%6frders', '/api/orders?limit=1', '/api/orders?x=/api/items', 'http://x/api/orders', '/%61pi/orders']
    .map((path): typeof paths[0] => [path, 'orders', { ...reads, POST: 'write' }]),
  ...['/api/orders/1', '/api/orders/1/', '/api/%6frders/%31', '/api/orders/items', '/api/orders/%2e%2e%2fitems']
    .map((path): typeof paths[0] => [path, 'orders', { ...reads, PUT: 'write', PATCH: 'write', DELETE: 'write' }]),
  ...['/api/orders/batch', '/api/%6frders/%62atch?x=1']
    .map((path): typeof paths[0] => [path, 'orders', { ...reads, POST: 'write', PUT: 'write', PATCH: 'write', DELETE: 'write' }]),
  ['/api/items', 'items', { ...reads, POST: 'write' }],
  ['/api/items/1', 'items', reads],
  ['/api/users', 'users', { ...reads, POST: 'write' }],
  ['/api/users/1', 'users', { ...reads, DELETE: 'write' }],
  ...['/api', '/api/', '/api/nope', '/api/nope/orders', '/api//orders', '/api/orders//1', '/api/orders/1/2', '/api/Orders', '/api/orders/../items'].map((path): typeof paths[0] => [path, 'none']),
  ...['/API/orders', '//api/orders', '/livez', '/openapi.json', '/nope'].map((path): typeof paths[0] => [path])
]
const bodies: Record<string, object> = { POST: { id: 7, name: 'Kettle', price: 19.99, ...order }, PUT: order, PATCH: order }
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'LOCK']

onEveryEngine((t, address) => {
  t.test('a token with scopes can do what its scopes allow, whatever the method and the form of the path', async t => {
    const collections = fileOf(t, JSON.stringify({ orders }))
    const app = helper.build(t, { DATABASE_URL: address(), COLLECTIONS_FILE: collections, AUTH_TOKENS_FILE: fileOf(t, tokensFile) })
    for (const [token, granted] of Object.entries(grants)) {
      const before = await dataOf(app)
      await tryAll(t, app, granted, 403, bearer(token))
      const after = await dataOf(app)
      for (const name of ['items', 'users', 'orders'] as const) {
        if (granted.includes(`${name}:write`)) t.notSame(after[name], before[name], `${token} changes ${name}`)
        else t.same(after[name], before[name], `${token} does not change ${name}`)
      }
    }
  })

  t.test('PUBLIC_SCOPES is what requests without a token may do, and a wrong token is still 401', async t => {
    const collections = fileOf(t, JSON.stringify({ orders }))
    const sets = { read: grants.reader, 'orders:read': grants['order-reader'], 'orders:write,items:read': ['orders:read', 'orders:write', 'items:read'], write: grants.writer }
    for (const [PUBLIC_SCOPES, granted = []] of Object.entries(sets)) {
      const app = helper.build(t, { DATABASE_URL: address(), COLLECTIONS_FILE: collections, AUTH_TOKENS: 'everything', PUBLIC_SCOPES })
      await tryAll(t, app, granted, 401)
      await tryAll(t, app, [], 401, { authorization: PUBLIC_SCOPES === 'read' ? 'Basic b25lOnR3bw==' : 'Bearer wrong' })
      t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: { id: 8, name: 'Grace' }, headers: bearer('everything') })).statusCode, 201)
      await app.close()
    }
  })
})

/** All records, with a token that may read them. */
async function dataOf (app: ReturnType<typeof helper.build>) {
  const listOf = async (name: string) => (await app.inject({ url: `/api/${name}`, headers: bearer('everything') })).json()
  return { items: await listOf('items'), users: await listOf('users'), orders: await listOf('orders') }
}

/** Sends every method to every path. What is not granted is answered with this status. */
async function tryAll (t: Test, app: ReturnType<typeof helper.build>, granted: string[], refused: 401 | 403, headers?: { authorization: string }) {
  if (!app.server.listening) await app.listen({ port: 0, host: '127.0.0.1' })
  const { socket, send } = connection(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}`)
  const problems: string[] = []
  for (const method of methods) {
    for (const [path, collection, routes = {}] of paths) {
      const needed = routes[method] ? `${collection}:${routes[method]}` : 'other'
      const answer = await send(written(method, path, bodies[method] && JSON.stringify(bodies[method]), headers), method === 'HEAD')
      const isRefused = collection !== undefined && !granted.includes(needed)
      const scope = needed === 'other' ? 'read' : needed
      const isRight = isRefused ? answer.status === refused : ![401, 403].includes(answer.status)
      const isExplained = !isRefused || refused === 401 || answer.headers['www-authenticate'] === `Bearer error="insufficient_scope", scope="${scope}"`
      const isNamed = !isRefused || refused === 401 || method === 'HEAD' || String(answer.body) === JSON.stringify({ detail: `The bearer token does not have the scope ${scope}` })
      if (!isRight || !isExplained || !isNamed) problems.push(`${method} ${path} ${answer.status} ${answer.body}`)
    }
  }
  socket.destroy()
  t.same(problems, [], `${headers?.authorization} ${granted}`)
}

test('a token can do what requests without a token may do', async t => {
  const app = helper.build(t, { AUTH_TOKENS_FILE: fileOf(t, 'one users:write'), PUBLIC_SCOPES: 'items:read' })
  const statusOf = async (url: string, headers = {}) => (await app.inject({ url, headers })).statusCode
  t.same(await Promise.all([statusOf('/api/items'), statusOf('/api/users')]), [200, 401])
  t.same(await Promise.all([statusOf('/api/items', bearer('one')), statusOf('/api/users', bearer('one')), statusOf('/api/nope', bearer('one'))]), [200, 200, 403])
})

test('with PUBLIC_SCOPES and no tokens, nobody can do more', async t => {
  const app = helper.build(t, { PUBLIC_SCOPES: 'read' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: { id: 8, name: 'Grace' } })).statusCode, 401)
  t.equal((await app.inject({ url: '/api/items', headers: bearer('x') })).statusCode, 401)
})

test('the last entry of a token counts', async t => {
  const app = helper.build(t, { AUTH_TOKENS: 'one,two', AUTH_TOKENS_FILE: fileOf(t, 'one write\none items:read\n') })
  const statusOf = async (url: string, token: string) => (await app.inject({ url, headers: bearer(token) })).statusCode
  t.same(await Promise.all([statusOf('/api/items', 'one'), statusOf('/api/users', 'one'), statusOf('/api/users', 'two')]), [200, 403, 200])
})

test('a request without the scope counts for its token, and one without a token for its address', async t => {
  const app = helper.build(t, { RATE_LIMIT_MAX: '2', AUTH_TOKENS_FILE: fileOf(t, 'one read\ntwo read\n'), PUBLIC_SCOPES: 'users:read' })
  const statusOf = async (method: 'GET' | 'POST', url: string, headers = {}) => (await app.inject({ method, url, headers, ...method === 'POST' && { payload: { id: 8, name: 'Grace' } } })).statusCode
  for (const status of [403, 403, 429]) t.equal(await statusOf('POST', '/api/users', bearer('one')), status)
  t.equal(await statusOf('GET', '/api/items', bearer('one')), 429)
  t.equal(await statusOf('GET', '/api/items', bearer('two')), 200)
  for (const status of [200, 401, 429]) t.equal(await statusOf('GET', status === 401 ? '/api/items' : '/api/users'), status)
  t.equal(await statusOf('GET', '/api/items', bearer('two')), 429, 'no token of the address is checked now')
})

test('unknown scopes and collections are one message at startup', async t => {
  const known = 'unknown collection; the collections are: items, users'
  const scopes = 'must be a token and then its scopes, each read, write, COLLECTION:read or COLLECTION:write'
  const file = fileOf(t, 'one raed\ntwo pets:read\n\nthree read,write\nread\nitems:read users:write\nfour :read\nfive items:\nsix users:read:write\nseven READ\neight items:write')
  const server = start(t, { AUTH_TOKENS: 'fine,write', AUTH_TOKENS_FILE: file, PUBLIC_SCOPES: 'read,pets:write' })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), ['Invalid tokens or scopes:', `  entry 2 of AUTH_TOKENS ${scopes}`, `  line 1 of AUTH_TOKENS_FILE ${scopes}`, `  line 2 of AUTH_TOKENS_FILE has a scope for an ${known}`,
    ...[4, 5, 6, 7, 8, 9, 10].map(n => `  line ${n} of AUTH_TOKENS_FILE ${scopes}`), `  PUBLIC_SCOPES has a scope for an ${known}`, ''].join('\n'))
  for (const PUBLIC_SCOPES of ['', 'reads', 'read write', 'read,', ':read', 'items:', 'items:delete', '*']) {
    t.throws(() => readConfig({ PUBLIC_SCOPES }), { message: 'Invalid configuration:\n  PUBLIC_SCOPES must be scopes separated by commas, each read, write, COLLECTION:read or COLLECTION:write' }, PUBLIC_SCOPES)
  }
})

test('the document says which scope each operation needs', async t => {
  const app = helper.build(t, { AUTH_TOKENS: 'one', PUBLIC_SCOPES: 'items:read', API_PREFIX: '/api,/v2' })
  const { paths, components } = (await app.inject('/openapi.json')).json()
  const operations = (path: string) => Object.fromEntries(Object.entries<any>(paths[path]).map(([method, { security }]) => [method, security]))
  for (const prefix of ['/api', '/v2']) {
    t.same(operations(`${prefix}/items`), { get: [{}, { bearer: ['items:read'] }], post: [{ bearer: ['items:write'] }] })
    t.same(operations(`${prefix}/users/{id}`), { get: [{ bearer: ['users:read'] }], delete: [{ bearer: ['users:write'] }] })
  }
  t.same(operations('/livez'), { get: undefined })
  t.same(components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } })
  const { get, post } = paths['/api/users']
  t.match(get.responses[403], { description: 'The bearer token does not have the scope that the operation needs', headers: { 'WWW-Authenticate': {} } })
  t.match(post.responses[403], {
    description: 'A browser sent the request from a page of another origin, or the bearer token does not have the scope that the operation needs',
    content: { 'application/json': { example: { detail: String } } }
  })
})

test('a host gives its tokens scopes, and its hooks and routes see them', async t => {
  const app = helper.host(t)
  await app.register(errors)
  await app.register(docs)
  app.register(async function guarded (scope) {
    scope.register(rateLimit, { max: 100, timeWindow: 60_000 })
    await scope.register(auth, {
      tokens: ['everything', { token: 'shop:reader', scopes: ['read'] }, { token: 'item-writer', scopes: ['items:write'] }, { token: 'nothing', scopes: [] }],
      publicScopes: ['users:read']
    })
    scope.addHook('preHandler', async function sendScopes (request, reply) { reply.header('x-scopes', request.getDecorator<string[]>('scopes').join(' ')) })
    scope.register(collection, { ...items, prefix: '/items', routes: { get: { config: { collection: 'users', own: 'kept' } as object } } })
    scope.register(collection, { ...users, prefix: '/users' })
    scope.get('/items/summary', { config: { collection: 'items' } as object }, async request => request.getDecorator('bearerToken'))
    scope.get('/mine', { config: { collection: 7 } as object }, async ({ routeOptions }) => Object(routeOptions.config).collection)
    scope.route({ method: ['GET', 'POST'], url: '/both', handler: async () => 'both' })
  })
  const sent = async (method: 'GET' | 'POST', url: string, token?: string) => {
    const { statusCode, headers, json } = await app.inject({ method, url, headers: token ? bearer(token) : {} })
    return statusCode < 400 ? [statusCode, headers['x-scopes']] : [statusCode, json().detail]
  }
  const missing = (scope: string) => [403, `The bearer token does not have the scope ${scope}`]
  t.same(await sent('GET', '/users'), [200, 'users:read'])
  t.same(await sent('GET', '/items'), [401, 'A bearer token is required'])
  t.same(await sent('GET', '/items', 'everything'), [200, 'users:read write'])
  t.same(await sent('GET', '/users', 'nothing'), [200, 'users:read'])
  t.same(await sent('GET', '/items/1', 'nothing'), missing('items:read'))
  t.same(await sent('GET', '/items/summary', 'item-writer'), [200, 'users:read items:write'])
  t.same(await sent('GET', '/items/summary', 'nothing'), missing('items:read'))
  t.same(await sent('GET', '/mine', 'reader'), [200, 'users:read read'])
  t.same(await sent('GET', '/mine', 'item-writer'), missing('read'))
  t.same(await sent('GET', '/both', 'reader'), [200, 'users:read read'])
  t.same(await sent('POST', '/both', 'reader'), missing('write'))
  t.same(await sent('POST', '/items', 'reader'), missing('items:write'))
  const { paths } = (await app.inject('/openapi.json')).json()
  t.same(paths['/mine'].get.security, [{ bearer: ['read'] }])
  t.same(paths['/both'].post.security, [{ bearer: ['write'] }])
})

test('the document has the responses of all guards, and no error responses with errorHandler: false', async t => {
  const app = helper.host(t)
  await app.register(docs)
  app.register(async function guarded (scope) {
    scope.register(rateLimit, { max: 100 })
    scope.register(crossOriginProtection)
    scope.register(auth, { tokens: ['one'] })
    scope.register(collection, { ...users, prefix: '/users' })
    scope.register(collection, { ...items, prefix: '/items', errorHandler: false })
  })
  const { paths } = (await app.inject('/openapi.json')).json()
  const { post } = paths['/users']
  t.same(Object.keys(post.responses).filter(status => ['401', '403', '429'].includes(status)), ['401', '403', '429'])
  t.ok(post.responses[201].headers['X-RateLimit-Limit'])
  t.same(Object.keys(paths['/items'].post.responses), ['201'])
})

test('check can return the scopes of a token, also ones of the host', async t => {
  const app = helper.host(t)
  app.register(async function guarded (scope) {
    const results: Record<string, unknown> = { all: true, none: [], reader: ['read', 'admin'], other: ['a:users:write', 'READ'], text: 'write', missing: undefined, number: 1 }
    scope.register(auth, { check: async token => results[token] as boolean, tokens: [{ token: 'reader', scopes: ['write'] }] })
    scope.register(collection, { ...users, prefix: '/users' })
    scope.get('/scopes', async request => request.getDecorator('scopes'))
  })
  const statuses = async (token: string) => Promise.all((['GET', 'POST'] as const).map(async method => {
    return (await app.inject({ method, url: '/users', headers: bearer(token), ...method === 'POST' && { payload: { id: 8, name: 'Grace' } } })).statusCode
  }))
  t.same(await statuses('all'), [200, 201])
  t.same(await statuses('reader'), [200, 403])
  for (const token of ['none', 'other']) t.same(await statuses(token), [403, 403], token)
  for (const token of ['text', 'missing', 'number', 'unknown']) t.same(await statuses(token), [401, 401], token)
  t.same((await app.inject({ url: '/scopes', headers: bearer('reader') })).json(), ['read', 'admin'])
})

test('a scope within another needs the scopes of both', async t => {
  const app = helper.host(t)
  app.register(async function outer (scope) {
    await scope.register(auth, { tokens: ['one', { token: 'two', scopes: ['read'] }], publicScopes: ['read'] })
    scope.register(async function inner (scope) {
      await scope.register(auth, { tokens: [{ token: 'one', scopes: ['users:read'] }, 'two'] })
      scope.register(collection, { ...users, prefix: '/users' })
    })
  })
  const statusOf = async (method: 'GET' | 'DELETE', headers = {}) => (await app.inject({ method, url: '/users/1', headers })).statusCode
  t.equal(await statusOf('GET'), 401)
  for (const token of ['one', 'two']) t.same([await statusOf('GET', bearer(token)), await statusOf('DELETE', bearer(token))], [200, 403], token)
})

test('wrong scopes of a host are reported at startup', async t => {
  const rejected = async (options: object, message: string | RegExp) => {
    const app = helper.host(t)
    app.register(auth, options)
    app.register(collection, { ...users, prefix: '/users' })
    await t.rejects(async () => app.ready(), { code: 'ERR_STARTUP', message })
  }
  await rejected({ tokens: ['one', { token: 'two', scopes: ['pets:read'] }, { token: 'three', scopes: ['sesame'] }], publicScopes: ['items:read'] }, [
    'Invalid tokens or scopes:',
    '  entry 2 of the option tokens has a scope for an unknown collection; the collections are: users',
    '  entry 3 of the option tokens must be a token and then its scopes, each read, write, COLLECTION:read or COLLECTION:write',
    '  the option publicScopes has a scope for an unknown collection; the collections are: users'
  ].join('\n'))
})
