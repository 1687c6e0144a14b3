import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import compress from '@fastify/compress'
import { type FastifyInstance } from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers from '../../src/index.js'
import { listen, open, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
import * as helper from '../support/helper.js'
import { until } from '../support/until.js'

const { collections } = helper
const { path, initial, record } = collections[1] as typeof collections[0]
const unmet = '{"detail":"The precondition in If-Match is not met"}'

/** Creates so many records of about 100 bytes. */
async function fill (app: FastifyInstance, url: string, record: object, count: number) {
  await Promise.all(Array.from({ length: count }, (_, n) =>
    app.inject({ method: 'POST', url, payload: { ...record, id: n + 10, name: `Number ${n} `.repeat(5) } })))
}

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv) => helper.build(t, { DATABASE_URL: address(), ...env })

  t.test(`conditional requests for ${path}`, async t => {
    t.test('a client that has the current record, page or list gets 304 without a body', async t => {
      const app = build(t)
      await app.inject({ method: 'POST', url: path, payload: record })
      for (const url of [`${path}/${initial.id}`, `${path}?limit=1`, path]) {
        const { headers: { etag, vary, 'cache-control': cacheControl } } = await app.inject(url)
        t.match(etag, url.endsWith('/1') ? /^"[\w-]{22}"$/ : /^W\/"[\w-]+"$/)
        const opaque = String(etag).replace('W/', '')
        for (const method of ['GET', 'HEAD'] as const) {
          for (const known of [etag, `W/${opaque}`, `"a,b" ,W/"*",${etag}`, '*']) {
            const { statusCode, headers, body } = await app.inject({
              method,
              url,
              headers: { 'if-none-match': known }
            })
            t.strictSame({ statusCode, body, etag: headers.etag }, { statusCode: 304, body: '', etag },
              `${method} ${url} ${known}`)
            t.match(headers, { 'cache-control': cacheControl, vary, 'content-type': undefined })
          }
          for (const known of ['W/"other", "another"', '']) {
            const { statusCode, headers } = await app.inject({ method, url, headers: { 'if-none-match': known } })
            t.strictSame({ statusCode, etag: headers.etag }, { statusCode: 200, etag }, `${method} ${url} ${known}`)
          }
        }
      }
      for (const headers of [{ 'if-none-match': '*' }, { 'if-match': '*' }, { 'if-match': '"other"' }]) {
        const unknown = await app.inject({ url: `${path}/999`, headers })
        t.equal(unknown.statusCode, 404)
        t.equal(unknown.headers.etag, undefined)
      }
    })

    t.test('an ETag changes with what is sent', async t => {
      const app = build(t)
      const tags = () =>
        Promise.all([path, `${path}?limit=1`, `${path}/1`].map(async url => (await app.inject(url)).headers.etag))
      const seen: unknown[][] = [await tags()]
      t.strictSame(await tags(), seen[0])
      for (const payload of [record, record, { ...record, id: 1, name: 'again' }]) {
        await app.inject({ method: 'POST', url: path, payload })
        seen.push(await tags())
      }
      t.equal(new Set(seen.map(([list]) => list)).size, 4)
      t.equal(new Set(seen.map(([, page]) => page)).size, 1)
      t.equal(new Set(seen.map(([,, one]) => one)).size, 1)
    })
  })

  t.test('deletions', async t => {
    const post = (app: FastifyInstance, name: string, id = 1) =>
      app.inject({ method: 'POST', url: '/api/users', payload: { id, name } })
    const etagOf = async (app: FastifyInstance) => String((await app.inject('/api/users/1')).headers.etag)
    const remove = (app: FastifyInstance, tag: string, id = 1) =>
      app.inject({ method: 'DELETE', url: `/api/users/${id}`, headers: { 'if-match': tag } })

    t.test('a DELETE with If-Match deletes only the user with this ETag', async t => {
      const app = build(t)
      const ada = await etagOf(app)
      for (const tag of ['"other"', `W/${ada}`, '', '"a,*,b"', `"x,${ada.slice(1)}`, '*, *']) {
        const { statusCode, body } = await remove(app, tag)
        t.equal(statusCode, 412, tag)
        t.equal(body, unmet)
      }
      t.equal((await remove(app, ada, 999)).statusCode, 404)
      await post(app, 'Grace')
      t.equal((await remove(app, `"other", ${ada}`)).statusCode, 204)
      t.equal((await remove(app, ada)).statusCode, 412)
      t.equal((await app.inject('/api/users')).body, '[{"id":1,"name":"Grace"}]')
      t.equal((await remove(app, '*')).statusCode, 204)
      t.equal((await remove(app, '*')).statusCode, 404)
    })

    t.test('of simultaneous DELETEs with the same If-Match, one succeeds, and the next user stays', async t => {
      const app = build(t)
      for (const name of ['Grace', 'Alan', 'Barbara']) await post(app, name)
      const ada = await etagOf(app)
      const statuses = (await Promise.all(Array.from({ length: 8 },
        () => remove(app, ada)))).map(({ statusCode }) => statusCode)
      t.strictSame(statuses.toSorted(), [204, ...Array(7).fill(412)])
      t.equal((await app.inject('/api/users')).json().length, 3)
    })
  })

  t.test('compression', async t => {
    t.test('lists and pages are compressed, with one weak ETag, and HEAD has the headers of GET', async t => {
      const app = build(t)
      await fill(app, '/api/items', collections[0]?.record ?? {}, 1100)
      for (const url of ['/api/items', '/api/items?limit=100']) {
        const plain = await app.inject(url)
        t.match(plain.headers, { vary: 'accept-encoding', 'content-encoding': undefined })
        const headers = { 'accept-encoding': 'gzip' }
        const compressed = await app.inject({ url, headers })
        const { etag, link, 'content-type': contentType } = plain.headers
        t.match(compressed.headers,
          { 'content-encoding': 'gzip', vary: 'accept-encoding', 'content-type': contentType, link, etag })
        t.ok(compressed.rawPayload.length < plain.rawPayload.length / 3)
        t.ok(gunzipSync(compressed.rawPayload).equals(plain.rawPayload))
        const head = await app.inject({ method: 'HEAD', url, headers })
        const { date, 'transfer-encoding': _, ...sent } = compressed.headers
        t.match(head.headers, sent)
        t.equal(head.body, '')
        const unchanged = await app.inject({ url, headers: { ...headers, 'if-none-match': String(etag) } })
        t.same([unchanged.statusCode, unchanged.headers.vary], [304, 'accept-encoding'])
      }
    })

    t.test('a list that is too long for one piece is compressed while it is sent', async t => {
      const app = build(t)
      await Promise.all(Array.from({ length: 12 }, (_, id) =>
        app.inject({
          method: 'POST',
          url: '/api/users',
          payload: { id: id + 2, name: `${id} is a long name, `.repeat(6000) }
        })))
      const plain = await app.inject('/api/users')
      t.ok(plain.rawPayload.length > 1024 * 1024)
      const answers = await Promise.all(Array.from({ length: 3 },
        () => app.inject({ url: '/api/users', headers: { 'accept-encoding': 'gzip' } })))
      for (const { headers, rawPayload } of answers) {
        t.equal(headers['content-encoding'], 'gzip')
        t.ok(gunzipSync(rawPayload).equals(plain.rawPayload))
      }
    })

    t.test('a client that disconnects while it reads a compressed list does not disturb the others', async t => {
      const app = build(t)
      await Promise.all(Array.from({ length: 30 }, (_, id) =>
        app.inject({
          method: 'POST',
          url: '/api/users',
          payload: { id: id + 2, name: randomBytes(145_000).toString('base64') }
        })))
      const { port } = await listen(app)
      const leaving = open(port)
      leaving.write(written('GET', '/api/users', undefined, { 'accept-encoding': 'gzip' }))
      await new Promise(resolve => leaving.once('data', resolve))
      leaving.destroy()
      const plain = await app.inject('/api/users')
      const { rawPayload } = await app.inject({ url: '/api/users', headers: { 'accept-encoding': 'gzip' } })
      t.ok(gunzipSync(rawPayload).equals(plain.rawPayload))
    })
  })

  if (engine === 'PostgreSQL') {
    t.test('two instances have the same ETags', async t => {
      const shared = { DATABASE_URL: address() }
      const [one, other] = [build(t, shared), build(t, shared)]
      await one.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name: 'Grace' } })
      const { headers: { etag } } = await one.inject('/api/users')
      t.equal((await other.inject({ url: '/api/users', headers: { 'if-none-match': etag } })).statusCode, 304)
    })
  }
})

test('If-None-Match is compared as RFC 9110 says, and If-Match has no effect on reads', async t => {
  const app = helper.build(t)
  for (const url of ['/api/items/1', '/api/items', '/api/items?limit=1']) {
    const opaque = String((await app.inject(url)).headers.etag).replace('W/', '')
    for (const method of ['GET', 'HEAD'] as const) {
      for (const known of [opaque, `"other", ${opaque}`, ' * ']) await answers(method, { 'if-none-match': known }, 304)
      for (const other of [
        '"other"', opaque.slice(1, -1), '"*"', `"x,${opaque.slice(1)}`, `${opaque.slice(0, -1)},"`
      ]) {
        await answers(method, { 'if-none-match': other }, 200)
      }
      await answers(method, { 'if-match': '"other"' }, 200)
    }

    async function answers (method: 'GET' | 'HEAD', headers: Record<string, string>, status: number) {
      const { statusCode } = await app.inject({ method, url, headers })
      t.equal(statusCode, status, `${method} ${url} ${JSON.stringify(headers)}`)
    }
  }
})

test('a list is compressed if the client accepts gzip', async t => {
  const app = helper.build(t)
  await fill(app, '/api/items', collections[0]?.record ?? {}, 100)
  for (const [accepted, coding] of Object.entries({
    gzip: 'gzip',
    GZIP: 'gzip',
    'gzip, deflate, br, zstd': 'gzip',
    'br;q=0.5, gzip;q=0.8': 'gzip',
    'gzip, identity;q=0': 'gzip',
    '*': 'gzip',
    '': undefined,
    identity: undefined,
    br: undefined,
    'gzip;q=0': undefined,
    '*;q=0': undefined,
    ';;,,=;q=x': undefined
  })) {
    const { statusCode, headers } = await app.inject({ url: '/api/items', headers: { 'accept-encoding': accepted } })
    t.strictSame([statusCode, headers['content-encoding'], headers.vary], [200, coding, 'accept-encoding'], accepted)
  }
})

test('small lists, records and errors are not compressed', async t => {
  const app = helper.build(t)
  const headers = { 'accept-encoding': 'gzip' }
  await app.inject({ method: 'POST', url: '/api/users', payload: { id: 2, name: 'x'.repeat(5000) } })
  const isNotCompressed = async (url: string, vary?: string) => {
    t.match((await app.inject({ url, headers })).headers, { 'content-encoding': undefined, vary }, url.slice(0, 30))
  }
  await isNotCompressed('/api/items', 'accept-encoding')
  await isNotCompressed('/api/users/2')
  await isNotCompressed(`/api/items?limit=${'x'.repeat(2000)}`)
})

test('the OpenAPI document is compressed and has an ETag', async t => {
  const app = helper.build(t)
  const plain = await app.inject('/openapi.json')
  const headers = { 'accept-encoding': 'gzip' }
  const compressed = await app.inject({ url: '/openapi.json', headers })
  const { etag } = compressed.headers
  t.match(compressed.headers,
    { 'content-encoding': 'gzip', 'cache-control': 'no-cache', vary: 'accept-encoding', etag: plain.headers.etag })
  t.ok(gunzipSync(compressed.rawPayload).equals(plain.rawPayload))
  const unchanged = await app.inject({ url: '/openapi.json', headers: { ...headers, 'if-none-match': etag } })
  t.same([unchanged.statusCode, unchanged.headers.vary], [304, 'accept-encoding'])
})

test('a host can have @fastify/compress for its own routes', async t => {
  const app = helper.host(t)
  await app.register(compress)
  app.get('/own', async () => ({ text: 'x'.repeat(5000) }))
  const users = Array.from({ length: 100 }, (_, id) => ({ id, name: 'x'.repeat(2000) }))
  app.register(itemsUsers, { prefix: '/api', seed: { users } })
  for (const [url, coding] of [['/own', 'gzip'], ['/api/users', 'gzip'], ['/api/users/1', undefined]] as const) {
    const response = await app.inject({ url, headers: { 'accept-encoding': 'gzip' } })
    t.equal(response.headers['content-encoding'], coding, url)
    if (coding) t.ok(JSON.parse(String(gunzipSync(response.rawPayload))), url)
  }
})

test('requests with compressed responses keep their own async context', async t => {
  const contexts = new AsyncLocalStorage<unknown>()
  const app = helper.host(t)
  app.addHook('onRequest', (request, _reply, done) => contexts.run(request.headers['x-name'], done))
  const seen: unknown[][] = []
  app.addHook('onResponse', async request => { seen.push([request.headers['x-name'], contexts.getStore()]) })
  const users = Array.from({ length: 5000 }, (_, id) => ({ id, name: `The user with number ${id}` }))
  app.register(itemsUsers, { prefix: '/api', seed: { users } })
  const { port } = await listen(app)
  await Promise.all(Array.from({ length: 20 }, (_, n) =>
    fetch(`http://127.0.0.1:${port}/api/users`, { headers: { 'accept-encoding': 'gzip', 'x-name': String(n) } })
      .then(response => response.json())))
  await until(() => seen.length === 20)
  for (const [name, context] of seen) t.equal(context, name)
})

test('a body that a hook of the host has compressed or replaced is left as it is', async t => {
  const app = helper.host(t)
  app.addHook('onSend', async (request, reply, body) => {
    if ('compressed' in (request.query as object)) reply.header('content-encoding', 'x-own')
    return 'empty' in (request.query as object) ? null : body
  })
  app.register(itemsUsers,
    { prefix: '/api', seed: { users: Array.from({ length: 100 }, (_, id) => ({ id, name: 'Ada' })) } })
  const get = async (url: string) => app.inject({ url, headers: { 'accept-encoding': 'gzip' } })
  t.equal((await get('/api/users?compressed')).headers['content-encoding'], 'x-own')
  t.equal((await get('/api/users?empty')).body, '')
  t.equal((await get('/api/users')).headers['content-encoding'], 'gzip')
})

test('Vary also has the headers that other plugins have added', async t => {
  const app = helper.build(t, { CORS_ORIGIN: 'https://example.com,https://example.org' })
  const { headers } = await app.inject({ url: '/api/users', headers: { origin: 'https://example.com' } })
  t.equal(headers.vary, 'Origin, accept-encoding')
  t.match(headers['access-control-expose-headers'], /\bETag\b/)
})
