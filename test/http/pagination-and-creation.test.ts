import { type FastifyInstance } from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { collection, items } from '../../src/index.js'
import { connection, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
import * as helper from '../support/helper.js'

const { collections, invalidBody } = helper
const { path, initial, record } = collections[1] as typeof collections[0]
const item = { id: 7, name: 'Kettle', price: 19.99 }
const day = 24 * 60 * 60 * 1000

/** The link to the next page. */
function nextOf ({ headers: { link } }: { headers: Record<string, unknown> }) {
  return link === undefined ? undefined : /^<([^>]+)>; rel="next"$/.exec(String(link))?.[1]
}

/** Reads page after page, and does something in between. */
async function walk (app: FastifyInstance, first: string, between: () => unknown = () => {}) {
  const pages: { id: number, name: string }[][] = []
  for (let url: string | undefined = first; url !== undefined;) {
    const response = await app.inject(url)
    if (response.statusCode !== 200) throw new Error(response.body)
    pages.push(response.json())
    const next = nextOf(response)
    url = next && helper.followed(next, url)
    await between()
  }
  return pages
}

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv) => helper.build(t, { DATABASE_URL: address(), ...env })

  const post = (app: FastifyInstance, payload: object, key?: string, url = path) =>
    app.inject({ method: 'POST', url, payload, headers: key === undefined ? {} : { 'idempotency-key': key } })
  const sizeOf = async (app: FastifyInstance) => (await app.inject(path)).json().length

  t.test(`pages of ${path}`, async t => {
    t.test('limit returns a page with a Link to the next one, until the last page, also for HEAD', async t => {
      const app = build(t)
      const records = [initial, ...[2, 3, 4, 5].map(id => ({ ...record, id }))]
      for (const payload of records.slice(1)) await post(app, payload)
      const first = await app.inject(`${path}?limit=2&x=1`)
      t.equal(first.body, JSON.stringify(records.slice(0, 2)))
      t.match(nextOf(first), /^\?limit=2&x=1&after=[\w-]+$/)
      t.same(await walk(app, `${path}?limit=2`), [records.slice(0, 2), records.slice(2, 4), records.slice(4)])
      for (const limit of [5, 6, 1000]) {
        const whole = await app.inject(`${path}?limit=${limit}`)
        t.equal(whole.body, JSON.stringify(records))
        t.equal(whole.headers.link, undefined)
      }
      t.equal((await app.inject(path)).headers.link, undefined)
      const head = await app.inject({ method: 'HEAD', url: `${path}?limit=1` })
      t.same([head.statusCode, head.body], [200, ''])
      t.ok(nextOf(head))
      const end = await app.inject(`${path}?limit=1&after=${Buffer.from(String(Number.MAX_SAFE_INTEGER))
        .toString('base64url')}`)
      t.same([end.body, end.headers.link], ['[]', undefined], 'after the last record')
    })

    t.test('an invalid limit or cursor is answered with 400', async t => {
      const app = build(t)
      for (const [limit, message] of [
        ['0', 'must be at least 1'], ['-1', 'must be at least 1'], ['1001', 'must be at most 1000'],
        ['1.5', 'must be an integer'], ['x', 'must be an integer'], ['', 'must be an integer'],
        ['1&limit=2', 'must be an integer']
      ] as const) {
        const response = await app.inject(`${path}?limit=${limit}`)
        t.equal(response.statusCode, 400, limit)
        t.same(response.json(), invalidBody('query', ['/limit', message]))
      }
      for (const cursor of [
        '', 'x', '1', 'MQ==', 'LTE', 'MS41', 'MDE', 'MWU1', '%00',
        Buffer.from('9007199254740993').toString('base64url')
      ]) {
        const response = await app.inject(`${path}?limit=1&after=${cursor}`)
        t.equal(response.statusCode, 400, cursor)
        t.same(response.json(), invalidBody('query', ['/after', 'must be a cursor from the Link header of a page']))
      }
      const alone = await app.inject(`${path}?after=MQ`)
      t.equal(alone.statusCode, 400)
      t.same(alone.json(), invalidBody('query', ['/limit', 'is required with after']))
    })

    t.test('a page has as many records as requested, also if they are large', async t => {
      const app = build(t)
      const records = Array.from({ length: 30 }, (_, id) => ({ ...record, id, name: String(id).repeat(60_000) }))
      for (const payload of records) await post(app, payload)
      const pages = await walk(app, `${path}?limit=20`)
      t.same(pages.map(({ length }) => length), [20, 11])
      t.ok(JSON.stringify(pages.flat()) === JSON.stringify([initial, ...records]))
      t.ok((await app.inject(`${path}?limit=31`)).body === JSON.stringify([initial, ...records]))
      t.ok(nextOf(await app.inject({ method: 'HEAD', url: `${path}?limit=20` })))
    })
  })

  t.test(`server-generated ids of ${path}`, async t => {
    const { id, ...fields } = record

    t.test('the id is the next integer, and an id in the body is ignored', async t => {
      const app = build(t, { ID_SOURCE: 'server' })
      for (const [payload, next] of [[fields, 2], [{ id: 77, ...fields }, 3], [{ id: 'x', ...fields }, 4]] as const) {
        const response = await post(app, payload)
        t.equal(response.statusCode, 201)
        t.equal(response.body, JSON.stringify({ id: next, ...fields }))
        t.equal(helper.followed(response.headers.location, path), `${path}/${next}`)
        t.equal((await app.inject(`${path}/${next}`)).body, response.body)
      }
      const response = await post(app, {})
      t.equal(response.statusCode, 400)
      t.notMatch(response.body, '/id')
      const { schemas } = (await app.inject('/openapi.json')).json().components
      t.match(schemas.NewUser.required, Object.keys(fields))
    })

    if (engine === 'memory') return

    t.test('no id is generated twice, also after restarts, deletions and ids of clients', async t => {
      const url = address()
      const client = build(t, { DATABASE_URL: url })
      for (const id of [50, -3, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]) {
        await post(client, { ...record, id })
      }
      await client.close()
      const first = build(t, { DATABASE_URL: url, ID_SOURCE: 'server' })
      t.equal((await post(first, fields)).json().id, 51)
      t.equal((await post(first, fields)).json().id, 52)
      t.equal((await first.inject({ method: 'DELETE', url: `${path}/52` })).statusCode, 204)
      await first.close()
      const next = build(t, { DATABASE_URL: url, ID_SOURCE: 'server' })
      const another = engine === 'SQLite' ? next : build(t, { DATABASE_URL: url, ID_SOURCE: 'server' })
      t.equal((await post(next, fields)).json().id, 53)
      const created = await Promise.all(Array.from({ length: 100 }, (_, n) => post(n % 2 ? next : another, fields)))
      t.same(created.map(response => response.json().id).sort((a, b) => a - b),
        Array.from({ length: 100 }, (_, n) => n + 54))
    })
  })

  t.test(`idempotency keys of ${path}`, async t => {
    t.test('a POST that is retried with its key creates nothing, and with another body it gets 422', async t => {
      const app = build(t)
      const first = await post(app, record, 'a')
      t.equal(first.statusCode, 201)
      const again = await post(app, record, 'a')
      t.equal(again.statusCode, 201)
      t.equal(again.body, first.body)
      t.equal(again.headers.location, first.headers.location)
      t.equal(await sizeOf(app), 2)
      t.equal((await post(app, record, 'b')).statusCode, 201)
      t.equal((await post(app, record)).statusCode, 201)
      t.equal((await post(app, record)).statusCode, 201)
      t.equal(await sizeOf(app), 5)
      const response = await post(app, { ...record, name: 'Other' }, 'a')
      t.equal(response.statusCode, 422)
      t.same(response.json(), { detail: 'Idempotency-Key was already used with a different request body' })
      t.equal(await sizeOf(app), 5)
      const [other] = collections
      t.equal((await post(app, other?.record ?? {}, 'a', other?.path)).statusCode, 201,
        'each collection has its own keys')
    })

    t.test('an invalid key is answered with 400, and a rejected request does not use up its key', async t => {
      const app = build(t)
      for (const key of ['', ' ', 'é', 'two words', 'x'.repeat(256)]) {
        const response = await post(app, record, key)
        t.equal(response.statusCode, 400)
        t.match(response.json().errors,
          [{ in: 'headers', path: '/idempotency-key', message: /^must be 1 to 255 visible ASCII characters/ }])
      }
      t.equal((await post(app, { ...record, name: 5 }, 'a')).statusCode, 400)
      t.equal((await post(app, record, 'a')).statusCode, 201)
      t.equal(await sizeOf(app), 2)
    })

    t.test('simultaneous requests with one key create one record and get the same response', async t => {
      const app = build(t)
      await app.ready()
      const answers = await Promise.all(Array.from({ length: 20 }, () => post(app, record, 'a')))
      for (const { statusCode, body } of answers) t.same([statusCode, body], [201, JSON.stringify(record)])
      t.equal(await sizeOf(app), 2)
      t.equal((await post(app, record, 'a')).statusCode, 201)
      t.equal(await sizeOf(app), 2)
    })

    t.test('a key is valid for 24 hours', async t => {
      const app = build(t)
      await post(app, record, 'a')
      const now = Date.now
      t.teardown(() => { Date.now = now })
      Date.now = () => now() + day - 60_000
      t.equal((await post(app, record, 'a')).statusCode, 201)
      t.equal(await sizeOf(app), 2)
      Date.now = () => now() + day + 1000
      t.equal((await post(app, { ...record, name: 'Other' }, 'a')).statusCode, 201)
      t.equal(await sizeOf(app), 3)
      t.equal((await post(app, { ...record, name: 'Other' }, 'a')).statusCode, 201)
      t.equal(await sizeOf(app), 3)
    })

    if (engine === 'memory') return

    t.test('a retry gets the same response from another instance, after a restart and a deletion', async t => {
      const url = address()
      const first = build(t, { DATABASE_URL: url })
      const answer = await post(first, record, 'a')
      const another = engine === 'SQLite' ? first : build(t, { DATABASE_URL: url })
      t.equal((await post(another, record, 'a')).body, answer.body)
      t.equal((await post(another, { ...record, name: 'Other' }, 'a')).statusCode, 422)
      await another.inject({ method: 'DELETE', url: `${path}/7` })
      await Promise.all([first.close(), another.close()])
      const restarted = build(t, { DATABASE_URL: url })
      t.equal((await post(restarted, record, 'a')).body, answer.body)
      t.equal(await sizeOf(restarted), 1)
    })
  })

  t.test('a client that follows the pages during writes gets each user that stays once', async t => {
    const app = build(t)
    const create = (id: number) =>
      app.inject({ method: 'POST', url: '/api/users', payload: { id, name: `number ${id}` } })
    await Promise.all(Array.from({ length: 300 }, (_, n) => create(n + 2)))
    const gone = new Set<number>()
    let next = 1000
    const pages = await walk(app, '/api/users?limit=7', async () => {
      const id = 1 + (next * 7919) % 300
      gone.add(id)
      await Promise.all([
        create(next++), create(next++), app.inject({ method: 'DELETE', url: `/api/users/${id}` })
      ].slice(next % 3))
      // a walk would not end where two records were added for every page of them
      if (next > 1060) next = 1000
    })
    const ids = pages.flat().map(({ id }) => id).filter(id => id <= 301)
    const throughout = Array.from({ length: 301 }, (_, n) => n + 1).filter(id => !gone.has(id))
    t.ok(gone.size > 20)
    t.equal(new Set(ids).size, ids.length, 'none twice')
    t.same(throughout.filter(id => !ids.includes(id)), [], 'none missing')
  })

  t.test('two prefixes serve the same collections', async t => {
    const app = build(t, { API_PREFIX: '/api,/api/v1' })
    for (const [n, prefix] of ['/api', '/api/v1'].entries()) {
      const created = await app.inject({ method: 'POST', url: `${prefix}/items`, payload: { ...item, id: n + 2 } })
      t.equal(helper.followed(created.headers.location, `${prefix}/items`), `${prefix}/items/${n + 2}`)
    }
    for (const prefix of ['/api', '/api/v1']) {
      const page = await app.inject(`${prefix}/items?limit=2`)
      t.same(page.json().map(({ id }: { id: number }) => id), [1, 2])
      t.match(page.headers.link, /^<\?limit=2&after=\w+>; rel="next"$/)
      t.equal((await app.inject(`${prefix}/nope`)).body, '{"detail":"Path not found"}')
    }
    const { paths } = (await app.inject('/openapi.json')).json()
    t.equal(paths['/api/items'].get.operationId, 'listItems')
    t.equal(paths['/api/v1/items'].get.operationId, 'listItemsApiV1')
    t.equal(paths['/api/v1/users/{id}'].delete.operationId, 'deleteUserApiV1')
  })
})

test('a prefix that is configured twice is registered once', async t => {
  const app = helper.build(t, { API_PREFIX: '/api,/v1,/api' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/v1/items')).statusCode, 200)
})

test('Location and Link are relative to the URL that the client sent', async t => {
  const app = helper.host(t, { routerOptions: { ignoreTrailingSlash: true, ignoreDuplicateSlashes: true } })
  app.register(itemsUsers, { prefix: '/api' })
  app.register(itemsUsers, { prefix: '/tenants/:tenant' })
  app.register(collection, { ...items, prefix: '/:shop' })
  const { socket, send } = connection(await app.listen({ port: 0, host: '127.0.0.1' }))
  for (const [target, location] of [
    ['/api/items', './items/7'], ['/api/items?x=/', './items/7'], ['/api/items#/x', './items/7'],
    ['http://evil.example/api/items?x', './items/7'],
    ['/api/items/', './7'], ['/api/items/?x', './7'], ['//api//items', './items/7'],
    ['/tenants/evil.example/items', './items/7'], ['/javascript:x', './javascript:x/7'],
    ['/\\\\evil.example', './\\\\evil.example/7']
  ] as const) {
    const { status, headers } = await send(written('POST', target, JSON.stringify(item)))
    t.same([status, headers.location], [201, location], target)
    if (target.startsWith('/')) t.equal(new URL(location, `http://localhost${target}`).origin, 'http://localhost')
  }
  socket.destroy()
  t.equal((await app.inject('/api/items/?key=k%26&limit=1&after=MQ')).headers.link,
    '<?key=k%26&limit=1&after=Mg>; rel="next"')
})
