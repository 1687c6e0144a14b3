import { once } from 'node:events'
import { createServer, request, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { readFileSync, writeFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { Type, type Static } from '@sinclair/typebox'
import { type FastifyInstance } from 'fastify'
import { test, type Test } from 'tap'
import { ApiError, createClient, etag, type ClientOptions } from '../../src/client/index.js'
import { definitions } from '../../plugins/definitions.js'
import { collection, memory, User, users, type Store } from '../../src/index.js'
import { ensureBuilt } from '../support/built.js'
import { newFolder } from '../support/folder.js'
import { build, host } from '../support/helper.js'
import { until } from '../support/until.js'

const item = { id: 2, name: 'Teapot 🫖', price: 24.5 }
const user = { id: 2, name: 'Grace' }

test('the client offers all operations, and a list follows the pages', async t => {
  const { url, received } = await proxy(t, build(t))
  const { items, users } = createClient(`${url}/`)
  t.same(await items.create(item), item)
  t.same(await items.create({ ...item, id: 3 }), { ...item, id: 3 })
  t.same(await items.get(2), item)
  t.same(await all(items.list({ pageSize: 2 })), [{ id: 1, name: 'Lamp', price: 42.5 }, item, { ...item, id: 3 }])
  t.same(received.slice(-2).map(({ url }) => url), ['/api/items?limit=2', '/api/items?limit=2&after=Mg'])
  t.same(await users.create(user), user)
  t.same(await users.get(2), user)
  t.equal(await users.delete(2), undefined)
  t.same(await all(users.list()), [{ id: 1, name: 'Ada' }])
})

test('the client works for own collections, and has those of the service', async t => {
  const Order = Type.Object({ id: Type.Integer(), quantity: Type.Integer({ minimum: 1 }), note: Type.Optional(Type.String()) })
  const app = host(t)
  app.register(collection, { prefix: '/api/orders', name: 'orders', schema: Order })
  const { url } = await proxy(t, app as never, 429)
  const client = createClient(url)
  const orders = client.collection<Static<typeof Order>>('orders')
  t.same(await orders.create({ quantity: 1, note: 'x' }), { id: 1, quantity: 1, note: 'x' })
  t.same(await orders.update(1, { note: null }), { id: 1, quantity: 1 })
  t.same(await orders.replace(1, { quantity: 3 }), { id: 1, quantity: 3 })
  await t.rejects(orders.update(1, { quantity: 0 }), { name: 'ApiError', status: 400 })
  t.same(await all(orders.list()), [await orders.get(1)])
  t.equal(await orders.delete(1), undefined)
  t.same(await orders.createMany([{ quantity: 4 }, { quantity: 5, note: 'y' }]), [{ id: 2, quantity: 4 }, { id: 3, quantity: 5, note: 'y' }])
  await t.rejects(orders.createMany([{ quantity: 4 }, { quantity: 0 }]), { name: 'ApiError', status: 400, errors: [{ in: 'body', path: '/1/quantity', message: 'must be at least 1' }] })
  await t.rejects(orders.createMany([]), { name: 'ApiError', status: 400 })
  const { collection: own, ...rest } = client
  t.same(Object.keys(rest), definitions.map(({ name }) => name))
})

test('a cursor of a host can be any text, and a store without count has no number of records', async t => {
  const cursors: unknown[] = []
  const { count, ...others } = memory<User>({ schema: User, seed: [] })
  const store: Store<User> = { ...others, select: ({ after }) => ({ list: '[]', ...cursors.push(after) < 3 && { next: `page=${cursors.length}&>, é` } }) }
  const app = host(t)
  app.register(collection, { ...users, prefix: '/api/users', filters: ['name'], store })
  const client = createClient((await proxy(t, app as never)).url)
  t.same(await all(client.users.list()), [])
  t.same(cursors, [undefined, 'page=1&>, é', 'page=2&>, é'])
  t.same(await client.collection('users').count(), NaN)
})

test('errors have the status, the detail, the problems and the request id of the response', async t => {
  const { url } = await proxy(t, build(t), 502)
  const { items } = createClient(url)
  await t.rejects(items.get(1), { status: 502, detail: 'Bad Gateway', errors: [], requestId: null })
  await t.rejects(items.get(9), { name: 'ApiError', message: '404 Not found', status: 404, code: 'ERR_HTTP_404', detail: 'Not found', errors: [], requestId: /./ })
  const error = await items.create({ ...item, id: 0.5 }).catch(error => error)
  t.ok(error instanceof ApiError)
  t.match(error, { status: 400, errors: [{ in: 'body', path: '/id', message: 'must be an integer' }] })
})

test('a record is created once, although responses are lost and the service is overloaded', async t => {
  const { url, received } = await proxy(t, build(t), 'refused', 'lost', 503, 429)
  const { items } = createClient(url)
  t.same(await items.create(item), item)
  t.same(await all(items.list()), [{ id: 1, name: 'Lamp', price: 42.5 }, item])
  const keys = received.slice(0, 5).map(({ headers }) => headers['idempotency-key'])
  t.equal(new Set(keys).size, 1)
  await items.create(item)
  t.not(received.at(-1)?.headers['idempotency-key'], keys[0])
})

test('many records are created once, although responses are lost', async t => {
  const app = host(t)
  app.register(collection, { prefix: '/api/orders', name: 'orders', schema: Type.Object({ id: Type.Integer(), quantity: Type.Integer() }) })
  const { url, received } = await proxy(t, app as never, 'refused', 'lost', 503)
  const orders = createClient(url).collection<{ id: number, quantity: number }>('orders')
  const created = await orders.createMany(Array.from({ length: 1000 }, (_, quantity) => ({ quantity })))
  t.equal(new Set(received.map(({ headers }) => headers['idempotency-key'])).size, 1)
  t.same(created.map(({ quantity }) => quantity), Array.from({ length: 1000 }, (_, n) => n))
  t.same(await all(orders.list({ pageSize: 1000 })), created)
})

test('a request is repeated when the rate limit allows it again', async t => {
  const { url, received } = await proxy(t, build(t, { RATE_LIMIT_MAX: '1', RATE_LIMIT_WINDOW: '1000' }))
  const { items } = createClient(url)
  let repeated = 0
  await until(async () => {
    const before = received.length
    await Promise.all([items.get(1), items.get(1)])
    repeated = received.length - before - 2
    return repeated > 0 // on a busy machine, both may be within the limit
  })
  t.ok(repeated > 0, `${repeated} more requests`)
})

test('an error is thrown when the retries are used up, or the Retry-After is longer than a minute', async t => {
  const { url, received } = await proxy(t, build(t), 503, 503, 'refused', { status: 429, retryAfter: '61' })
  const { items } = createClient(url, { retries: 1 })
  await t.rejects(items.get(1), /^503/)
  t.equal(received.length, 2)
  await t.rejects(createClient(url, { retries: 0 }).items.get(1), TypeError)
  await t.rejects(items.get(1), /^429/)
  t.equal(received.length, 4)
})

test('a DELETE is repeated only if nothing was deleted', async t => {
  const { url, received, faults } = await proxy(t, build(t), 429)
  const { users } = createClient(url)
  await users.delete(1)
  t.equal(received.length, 2)
  for (let n = 0; n < 2; n++) await users.create(user)
  faults.push('lost')
  await t.rejects(users.delete(2), TypeError)
  t.equal(received.length, 5)
  t.same(await all(users.list()), [user])
})

test('a signal aborts a request, the wait for a retry, and a list', async t => {
  const { url, received } = await proxy(t, build(t), { status: 503, retryAfter: '60' })
  const { items } = createClient(url)
  const reason = new Error('enough')
  await t.rejects(items.create(item, { signal: AbortSignal.abort(reason) }), reason)
  t.equal(received.length, 0)

  const waiting = new AbortController()
  const abortsLater: typeof fetch = async (...args) => {
    const response = await fetch(...args)
    const text = await response.text()
    setTimeout(() => waiting.abort(reason), 50)
    return new Response(text, response)
  }
  await t.rejects(createClient(url, { fetch: abortsLater }).items.get(1, waiting), reason)
  t.equal(received.length, 1)

  const listing = new AbortController()
  await items.create(item)
  await t.rejects(async () => {
    for await (const { id } of items.list({ pageSize: 1, signal: listing.signal })) {
      t.equal(id, 1)
      listing.abort(reason)
    }
  }, reason)
})

test('the client sends its token', async t => {
  const { url } = await proxy(t, build(t, { AUTH_TOKENS: 'sesame' }))
  await t.rejects(createClient(url).items.get(1), /^401/)
  t.match(await createClient(url, { token: 'sesame' }).items.get(1), { id: 1 })
})

test('the client calls the function of its token before each request, and tries another token once after a 401', async t => {
  const { url, received } = await proxy(t, build(t, { AUTH_TOKENS: 'sesame' }))
  const tokens = ['sesame', 'old', 'sesame', 'old', 'older', 'old', 'old']
  const { users } = createClient(url, { token: async () => tokens.shift() ?? '' })
  t.match(await users.get(1), { id: 1 })
  t.same(await users.create(user), user)
  t.equal(received.length, 3)
  await t.rejects(users.delete(2), /^401/)
  t.equal(received.length, 5)
  await t.rejects(users.delete(2), /^401/)
  t.equal(received.length, 6, 'the same token is not tried again')
  t.equal(tokens.length, 0)
  await t.rejects(createClient(url, { token () { throw new Error('no login') } }).users.get(2), /no login/)
})

test('the client sends its headers with every request, and creates records without an id', async t => {
  const { url, received } = await proxy(t, build(t, { ID_SOURCE: 'server' }), 503)
  const { users } = createClient(url, { headers: { 'X-Tenant': 'acme', 'Content-Type': 'text/plain' } })
  t.same(await users.create({ name: 'Grace' }), { id: 2, name: 'Grace' })
  await users.get(2)
  t.same(received.map(({ headers }) => headers['x-tenant']), ['acme', 'acme', 'acme'])
})

test('with ifMatch, only a record that has not changed is changed', async t => {
  const app = host(t)
  const Order = Type.Object({ id: Type.Integer(), quantity: Type.Integer() })
  app.register(collection, { prefix: '/api/orders', name: 'orders', schema: Order, seed: [{ id: 1, quantity: 1 }] })
  const { url } = await proxy(t, app as never)
  const orders = createClient(url, { cache: new Map() }).collection<Static<typeof Order>>('orders')
  const read = await orders.get(1)
  const replaced = await orders.replace(1, { quantity: 2 }, { ifMatch: etag(read) })
  await t.rejects(orders.update(1, { quantity: 5 }, { ifMatch: etag(read) }), /^412/)
  const updated = await orders.update(1, { quantity: 3 }, { ifMatch: etag(replaced) })
  t.equal(etag(await orders.get(1)), etag(updated))
  t.equal(etag(await orders.get(1)), etag(updated), 'from the cache')
  await t.rejects(orders.delete(1, { ifMatch: etag(replaced) }), /^412/)
  await t.rejects(orders.delete(1, { ifMatch: '' }), /^4/, 'an empty ETag is a condition too')
  await orders.delete(1, { ifMatch: etag(updated) })
  t.throws(() => etag({ id: 1 }), /The record has no ETag/)
})

test('a response that is not JSON is an ApiError', async t => {
  const server = createServer((request, response) => response.setHeader('etag', '"x"').end(request.url === '/items/1' ? '<html>Sign in</html>' : '"text"')).listen(0, '127.0.0.1')
  t.teardown(() => server.close().closeAllConnections())
  await once(server, 'listening')
  const cache = new Map()
  const { items } = createClient(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { cache })
  await t.rejects(items.get(1), { name: 'ApiError', status: 200, detail: 'The response is not JSON' })
  await t.rejects(all(items.list()), { name: 'ApiError', status: 200 })
  t.equal(cache.size, 0)
})

test('with a cache, the client requests a response again only if it has changed', async t => {
  const app = build(t, { SEED: 'false' })
  const url = `${await app.listen({ port: 0 })}/api`
  const statuses: number[] = []
  const cache: NonNullable<ClientOptions['cache']> = new Map()
  const client = createClient(url, {
    cache,
    async fetch (...request) {
      const response = await globalThis.fetch(...request)
      statuses.push(response.status)
      return response
    }
  })
  const names = async () => (await all(client.users.list({ pageSize: 2 }))).map(({ name }) => name)
  const statusesOf = async (work: () => Promise<unknown>) => {
    statuses.length = 0
    await work()
    return [...statuses]
  }
  for (const [n, name] of ['Ada', 'Grace', 'Alan'].entries()) await client.users.create({ id: n, name })

  t.strictSame(await statusesOf(names), [200, 200])
  t.strictSame(await statusesOf(names), [304, 304])
  t.strictSame(await names(), ['Ada', 'Grace', 'Alan'])
  t.strictSame(await statusesOf(() => client.users.get(1)), [200])
  t.strictSame(await statusesOf(() => client.users.get(1)), [304])
  t.strictSame(await client.users.get(1), { id: 1, name: 'Grace' })
  const user = await client.users.get(1)
  user.name = 'changed by the caller'
  t.strictSame(await client.users.get(1), { id: 1, name: 'Grace' })

  await client.users.delete(1)
  t.strictSame(await statusesOf(names), [200])
  t.strictSame(await names(), ['Ada', 'Alan'])
  await t.rejects(client.users.get(1), { code: 'ERR_HTTP_404' })
  t.strictSame([...cache.keys()].every(key => key.startsWith(url)), true)
})

test('one page has its records and the cursor of the next page', async t => {
  const { url } = await proxy(t, build(t))
  const { items } = createClient(url)
  await items.create(item)
  const { records, next } = await items.page({ pageSize: 1 })
  t.same(records, [{ id: 1, name: 'Lamp', price: 42.5 }])
  t.same(await items.page({ pageSize: 1, after: next }), { records: [item], next: undefined })
  t.same((await items.page()).records.length, 2)
})

test('fetch is looked up for each request, an invalid URL is tried once, and a retry forgets the ETag of a removed cache entry', async t => {
  const { fetch } = globalThis
  t.teardown(() => { globalThis.fetch = fetch })
  const { url } = await proxy(t, build(t))
  const cache = new Map()
  const { items } = createClient(url, { cache })
  const invalid = createClient('http://[')
  await items.get(1)
  const sent: (string | null)[] = []
  globalThis.fetch = async (input, init) => {
    sent.push(new Headers(init?.headers).get('if-none-match'))
    if (sent.length > 1) return fetch(input, init)
    cache.clear()
    throw new TypeError('The connection was lost')
  }
  t.same(await items.get(1), { id: 1, name: 'Lamp', price: 42.5 })
  t.match(sent, [/^"/, null])
  await t.rejects(invalid.items.get(1), TypeError)
  t.equal(sent.length, 3, 'one attempt')
})

test('the client imports nothing, and has at most 3.5 kB, compressed', async t => {
  ensureBuilt()
  const code = readFileSync('dist/src/client/index.js', 'utf8')
  t.notMatch(code, /^\s*import /m, 'it is one file')
  const { length } = gzipSync(code)
  t.ok(length <= 3500, `${length} bytes`)
})

test('a conflict is not repeated, and a request whose key is in use is', async t => {
  const file = `${newFolder(t)}/collections.json`
  const schema = { type: 'object', required: ['id', 'email'], properties: { id: { type: 'integer' }, email: { type: 'string' } } }
  writeFileSync(file, JSON.stringify({ members: { schema, unique: ['email'], seed: [{ id: 1, email: 'ada' }] } }))
  const { url, received, faults } = await proxy(t, build(t, { COLLECTIONS_FILE: file }))
  const members = createClient(url).collection<{ id: number, email: string }>('members')
  await t.rejects(members.create({ email: 'ada' }), { status: 409, detail: 'Conflict: email is already used.', errors: [{ in: 'body', path: '/email', message: 'is already used' }] })
  t.equal(received.length, 1)
  faults.push({ status: 409, retryAfter: '0.001' })
  t.equal((await members.create({ email: 'bob' })).id, 2)
  t.equal(received.length, 3)
  t.same(await members.page({ where: { email: 'bob' } }), { records: [{ id: 2, email: 'bob' }], next: undefined })
})

async function all<T> (list: AsyncIterable<T>) {
  const records: T[] = []
  for await (const record of list) records.push(record)
  return records
}

/** What happens to a request: an answer of the proxy, no answer, or no answer although the service has handled it. */
type Fault = number | { status: number, retryAfter: string } | 'refused' | 'lost'

/** Starts the service and a proxy in front of it. The first requests get these faults. */
async function proxy (t: Test, app: FastifyInstance, ...faults: Fault[]) {
  await app.listen({ port: 0 })
  const { port } = app.server.address() as AddressInfo
  const received: IncomingMessage[] = []
  const server = createServer((incoming, outgoing) => {
    const { method, headers, url: path } = incoming
    received.push(incoming)
    const fault = faults.shift()
    if (fault === 'refused') return incoming.socket.destroy()
    if (typeof fault === 'number') return outgoing.writeHead(fault).end()
    if (typeof fault === 'object') return outgoing.writeHead(fault.status, { 'retry-after': fault.retryAfter }).end()
    incoming.pipe(request({ port, method, headers, path }, response => {
      if (fault === 'lost') return incoming.socket.destroy()
      outgoing.writeHead(response.statusCode ?? 0, response.headers)
      response.pipe(outgoing)
    }))
  }).listen(0, '127.0.0.1')
  t.teardown(() => server.close().closeAllConnections())
  await once(server, 'listening')
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/api`, received, faults }
}
