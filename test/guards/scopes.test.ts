import { writeFileSync } from 'node:fs'
import { test, type Test } from 'tap'
import { readConfig } from '../../src/read-config.js'
import { auth, collection, docs, errors, items, users } from '../../src/index.js'
import { connection, written } from '../support/connection.js'
import { newFolder } from '../support/folder.js'
import { build, host } from '../support/helper.js'
import { start } from '../support/process.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const order = { quantity: 2 }
const properties = { id: { type: 'integer' }, quantity: { type: 'integer' } }
const orders = { schema: { type: 'object', required: ['id', 'quantity'], properties }, seed: [{ id: 1, quantity: 1 }] }

/** Writes a file and returns its path. */
function fileOf (t: Test, content: string) {
  const file = `${newFolder(t)}/file`
  writeFileSync(file, content)
  return file
}

const allReads = ['items:read', 'users:read', 'orders:read', 'other']
const all = [...allReads, 'items:write', 'users:write', 'orders:write']

/** What each token may do. `other` stands for paths and methods without a route. */
const grants: Record<string, string[]> = {
  everything: all,
  writer: all,
  reader: allReads,
  'order-reader': ['orders:read'],
  'order-writer': ['orders:read', 'orders:write'],
  'reader-and-writer': [...allReads, 'orders:write']
}
const tokensFile = `everything
shop:writer write # with a name
reader\tread
order-reader  orders:read
order-writer orders:write
reader-and-writer read orders:write read
`

type Path = [path: string, collection?: string, methods?: Record<string, string>]

const reads = { GET: 'read', HEAD: 'read' }
const changes = { PUT: 'write', PATCH: 'write', DELETE: 'write' }
const listPaths = ['/api/orders', '/api/orders/', '/api/%6frders?limit=1', 'http://x/api/orders', '/%61pi/orders']
const recordPaths = ['/api/orders/1', '/api/%6frders/%31', '/api/orders/items', '/api/orders/%2e%2e%2fitems']
const unknownPaths = ['/api', '/api/nope/orders', '/api//orders', '/api/Orders', '/api/orders/../items']

/** The collection of a path, and what the methods of its routes need. A path outside of the API is not guarded. */
const paths: Path[] = [
  ...listPaths.map((path): Path => [path, 'orders', { ...reads, POST: 'write' }]),
  ...recordPaths.map((path): Path => [path, 'orders', { ...reads, ...changes }]),
  ['/api/%6frders/%62atch?x=1', 'orders', { ...reads, ...changes, POST: 'write' }],
  ['/api/items', 'items', { ...reads, POST: 'write' }],
  ['/api/users/1', 'users', { ...reads, DELETE: 'write' }],
  ...unknownPaths.map((path): Path => [path, 'none']),
  ...['/API/orders', '//api/orders', '/livez', '/openapi.json', '/nope'].map((path): Path => [path])
]
const kettle = { id: 7, name: 'Kettle', price: 1.5, ...order }
const bodies: Record<string, object> = { POST: kettle, PUT: order, PATCH: order }
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND']

test('a token with scopes can do what its scopes allow, whatever the method and the form of the path', async t => {
  const COLLECTIONS_FILE = fileOf(t, JSON.stringify({ orders }))
  const app = build(t, { COLLECTIONS_FILE, AUTH_TOKENS_FILE: fileOf(t, tokensFile) })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const listOf = async (name: string) => (await app.inject({ url: `/api/${name}`, headers: bearer('everything') })).body
  for (const [token, granted] of Object.entries(grants)) {
    const before = await listOf('orders')
    await tryAll(t, app.listeningOrigin, granted, 403, bearer(token))
    t.equal(await listOf('orders') !== before, granted.includes('orders:write'), `whether ${token} changes orders`)
  }
})

test('PUBLIC_SCOPES is what requests without a token may do, and a wrong token is still 401', async t => {
  const COLLECTIONS_FILE = fileOf(t, JSON.stringify({ orders }))
  const sets = { read: allReads, 'orders:write,items:read': ['orders:read', 'orders:write', 'items:read'] }
  for (const [PUBLIC_SCOPES, granted] of Object.entries(sets)) {
    const app = build(t, { COLLECTIONS_FILE, AUTH_TOKENS: 'everything', PUBLIC_SCOPES })
    await app.listen({ port: 0, host: '127.0.0.1' })
    await tryAll(t, app.listeningOrigin, granted, 401)
    await tryAll(t, app.listeningOrigin, [], 401, { authorization: 'Bearer wrong' })
    const user = { payload: { id: 8, name: 'Grace' }, headers: bearer('everything') }
    t.equal((await app.inject({ method: 'POST', url: '/api/users', ...user })).statusCode, 201)
  }
})

/** Sends every method to every path. What is not granted is answered with this status. */
async function tryAll (t: Test, url: string, granted: string[], refusal: number, headers?: { authorization: string }) {
  const { socket, send } = connection(url)
  const problems: string[] = []
  for (const method of methods) {
    for (const [path, collection, routes = {}] of paths) {
      const needed = routes[method] ? `${collection}:${routes[method]}` : 'other'
      const body = bodies[method] && JSON.stringify(bodies[method])
      const answer = await send(written(method, path, body, headers), method === 'HEAD')
      const isRefused = collection !== undefined && !granted.includes(needed)
      const scope = needed === 'other' ? 'read' : needed
      const isRight = isRefused ? answer.status === refusal : ![401, 403].includes(answer.status)
      const isExplained = !isRefused || refusal === 401 ||
        answer.headers['www-authenticate'] === `Bearer error="insufficient_scope", scope="${scope}"`
      const isNamed = !isRefused || refusal === 401 || method === 'HEAD' ||
        String(answer.body) === JSON.stringify({ detail: `The bearer token does not have the scope ${scope}` })
      if (!isRight || !isExplained || !isNamed) problems.push(`${method} ${path} ${answer.status} ${answer.body}`)
    }
  }
  socket.destroy()
  t.same(problems, [], `${headers?.authorization} ${granted}`)
}

test('a token can do what requests without a token may do, and its last entry counts', async t => {
  const AUTH_TOKENS_FILE = fileOf(t, 'one write\none users:write\n')
  const app = build(t, { AUTH_TOKENS: 'one,two', AUTH_TOKENS_FILE, PUBLIC_SCOPES: 'items:read' })
  const statuses = (headers = {}) => Promise.all(['/api/items', '/api/users', '/api/nope'].map(async url =>
    (await app.inject({ url, headers })).statusCode))
  t.same(await statuses(), [200, 401, 401])
  t.same(await statuses(bearer('one')), [200, 200, 403])
  t.same(await statuses(bearer('two')), [200, 200, 404])
})

test('a request without the scope counts for its token, and one without a token for its address', async t => {
  const AUTH_TOKENS_FILE = fileOf(t, 'one read\ntwo read\n')
  const app = build(t, { RATE_LIMIT_MAX: '2', AUTH_TOKENS_FILE, PUBLIC_SCOPES: 'users:read' })
  const statusOf = async (method: 'GET' | 'DELETE', url: string, token?: string) =>
    (await app.inject({ method, url, headers: token ? bearer(token) : {} })).statusCode
  for (const status of [403, 403, 429]) t.equal(await statusOf('DELETE', '/api/users/1', 'one'), status)
  t.equal(await statusOf('GET', '/api/items', 'one'), 429)
  t.equal(await statusOf('GET', '/api/items', 'two'), 200)
  t.equal(await statusOf('GET', '/api/users'), 200)
  t.equal(await statusOf('GET', '/api/items'), 401)
  t.equal(await statusOf('GET', '/api/users'), 429)
  t.equal(await statusOf('GET', '/api/items', 'two'), 429, 'no token of the address is checked now')
})

const scopeRule = 'must be a token and then its scopes, each read, write, COLLECTION:read or COLLECTION:write'

test('unknown scopes and collections are one message at startup', async t => {
  const unknown = 'has a scope for an unknown collection; the collections are: items, users'
  const wrong = ['one raed', 'two read,write', 'three :read', 'four items:', 'five users:read:write', 'read']
  const AUTH_TOKENS_FILE = fileOf(t, ['pet-reader pets:read', ...wrong, '', 'last items:write'].join('\n'))
  const server = start(t, { AUTH_TOKENS: 'fine,write', AUTH_TOKENS_FILE, PUBLIC_SCOPES: 'read,pets:write' })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), [
    'Invalid tokens or scopes:',
    `  entry 2 of AUTH_TOKENS ${scopeRule}`,
    `  line 1 of AUTH_TOKENS_FILE ${unknown}`,
    ...wrong.map((_, n) => `  line ${n + 2} of AUTH_TOKENS_FILE ${scopeRule}`),
    `  PUBLIC_SCOPES ${unknown}`,
    ''
  ].join('\n'))
  for (const PUBLIC_SCOPES of ['', 'reads', 'read write', 'read,', ':read', 'items:', 'items:delete', '*']) {
    t.throws(() => readConfig({ PUBLIC_SCOPES }), { message: /PUBLIC_SCOPES must be scopes separated by commas/ })
  }
})

test('the document says which scope each operation needs, and has the responses of all guards', async t => {
  const app = build(t, { AUTH_TOKENS: 'one', PUBLIC_SCOPES: 'items:read', RATE_LIMIT_MAX: '100' })
  const { paths, components } = (await app.inject('/openapi.json')).json()
  t.same(paths['/api/items'].get.security, [{}, { bearer: ['items:read'] }])
  t.same(paths['/api/items'].post.security, [{ bearer: ['items:write'] }])
  t.same(paths['/api/users/{id}'].delete.security, [{ bearer: ['users:write'] }])
  t.equal(paths['/livez'].get.security, undefined)
  t.same(components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } })
  const { get, post } = paths['/api/users']
  const missing = 'the bearer token does not have the scope that the operation needs'
  t.match(get.responses[403], { description: missing.replace('the', 'The'), headers: { 'WWW-Authenticate': {} } })
  const foreign = 'A browser sent the request from a page of another origin, or '
  t.match(post.responses[403], { description: foreign + missing })
  t.match(Object.keys(post.responses), ['201', '400', '401', '403'])
  t.ok(post.responses[429] && post.responses[201].headers['X-RateLimit-Limit'])
})

test('a host gives its tokens scopes, and its hooks and routes see them', async t => {
  const app = host(t)
  await app.register(errors)
  await app.register(docs)
  app.register(async function guarded (scope) {
    const tokens = [{ token: 'reader', scopes: ['read'] }, { token: 'item-writer', scopes: ['items:write'] }]
    await scope.register(auth, { tokens: ['everything', ...tokens], publicScopes: ['users:read'] })
    scope.addHook('preHandler', async function sendScopes (request, reply) {
      reply.header('x-scopes', request.getDecorator<string[]>('scopes').join(' '))
    })
    scope.register(collection, { ...items, prefix: '/items' })
    scope.register(collection, { ...users, prefix: '/users' })
    scope.get('/items/summary', { config: { collection: 'items' } as object }, async () => 'summary')
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
  t.same(await sent('GET', '/items/summary', 'item-writer'), [200, 'users:read items:write'])
  t.same(await sent('GET', '/both', 'item-writer'), missing('read'))
  t.same(await sent('GET', '/both', 'reader'), [200, 'users:read read'])
  t.same(await sent('POST', '/both', 'reader'), missing('write'))
  t.same(await sent('POST', '/items', 'reader'), missing('items:write'))
  t.same((await app.inject('/openapi.json')).json().paths['/both'].post.security, [{ bearer: ['write'] }])
})

test('check can return the scopes of a token, also ones of the host', async t => {
  const app = host(t)
  const results: Record<string, unknown> = {
    all: true, none: [], reader: ['read', 'admin'], other: ['a:users:write', 'READ'], text: 'write', number: 1
  }
  app.register(async function guarded (scope) {
    scope.register(auth, { check: async token => results[token] as boolean })
    scope.register(collection, { ...users, prefix: '/users' })
    scope.get('/scopes', async request => request.getDecorator('scopes'))
  })
  const statuses = async (token: string) => Promise.all((['GET', 'DELETE'] as const).map(async method =>
    (await app.inject({ method, url: '/users/1', headers: bearer(token) })).statusCode))
  t.same(await statuses('reader'), [200, 403])
  for (const token of ['none', 'other']) t.same(await statuses(token), [403, 403], token)
  for (const token of ['text', 'number', 'unknown']) t.same(await statuses(token), [401, 401], token)
  t.same((await app.inject({ url: '/scopes', headers: bearer('reader') })).json(), ['read', 'admin'])
  t.same(await statuses('all'), [200, 204])
})

test('wrong tokens and scopes of a host are reported at startup', async t => {
  const app = host(t)
  const tokens = ['one', { token: 'two', scopes: ['pets:read'] }, { token: 'three', scopes: ['sesame'] }, 'a b']
  app.register(auth, { tokens })
  app.register(collection, { ...users, prefix: '/users' })
  const message = [
    'Invalid tokens or scopes:',
    '  entry 2 of the option tokens has a scope for an unknown collection; the collections are: users',
    `  entry 3 of the option tokens ${scopeRule}`,
    '  entry 4 of the option tokens must be TOKEN or NAME:TOKEN, of letters, digits and -._~+/, with = only at the end'
  ].join('\n')
  await t.rejects(async () => app.ready(), { code: 'ERR_STARTUP', message })
})
