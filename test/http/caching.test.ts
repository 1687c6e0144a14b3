import { AsyncLocalStorage, createHook } from 'node:async_hooks'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import * as zlib from 'node:zlib'
import { type FastifyInstance } from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { Item, memory, User, type Store } from '../../src/index.js'
import { listen, open, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
import * as helper from '../support/helper.js'
import { runSql } from '../support/sql.js'
import { until } from '../support/until.js'

const { collections } = helper
const unmet = '{"detail":"The precondition in If-Match or If-None-Match is not met"}'

/** The content codings that this version of Node.js supports, in our order of preference. */
const decoders: Record<string, (bytes: Buffer) => Buffer> = {
  ...'zstdDecompressSync' in zlib && { zstd: zlib.zstdDecompressSync as typeof gunzipSync },
  br: brotliDecompressSync,
  gzip: gunzipSync
}

/** Creates so many records of about 100 bytes. */
async function fill (app: FastifyInstance, url: string, record: object, count: number) {
  await Promise.all(Array.from({ length: count }, (_, n) =>
    app.inject({ method: 'POST', url, payload: { ...record, id: n + 10, name: `Number ${n} `.repeat(5) } })))
}

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv) => helper.build(t, { DATABASE_URL: address(), ...env })

  for (const { path, initial, record } of collections) {
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
              const { statusCode, headers, body } = await app.inject({ method, url, headers: { 'if-none-match': known } })
              t.strictSame({ statusCode, body, etag: headers.etag }, { statusCode: 304, body: '', etag }, `${method} ${url} ${known}`)
              t.match(headers, { 'cache-control': cacheControl, vary, 'content-type': undefined, 'content-length': undefined })
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

      t.test('the ETags of pages and lists change with the collection, and those of records with the record', async t => {
        const app = build(t)
        const tags = () => Promise.all([path, `${path}?limit=1`, `${path}/1`].map(async url => (await app.inject(url)).headers.etag))
        const seen: unknown[][] = [await tags()]
        t.strictSame(await tags(), seen[0])
        for (const payload of [record, record, { ...record, id: 1, name: 'again' }]) {
          await app.inject({ method: 'POST', url: path, payload })
          seen.push(await tags())
        }
        t.equal(new Set(seen.map(([list]) => list)).size, 4)
        t.equal(new Set(seen.map(([, page]) => page)).size, 4)
        t.equal(new Set(seen.map(([,, one]) => one)).size, 1)
      })
    })
  }

  t.test('preconditions of a POST are about the list', async t => {
    const app = build(t)
    const { headers: { etag } } = await app.inject('/api/items')
    const payload = collections[0]?.record
    const statusWith = async (headers: Record<string, string>) => {
      const response = await app.inject({ method: 'POST', url: '/api/items', payload, headers })
      t.equal(response.headers.etag, undefined)
      return response.statusCode
    }
    t.equal(await statusWith({ 'if-match': String(etag) }), 412, 'the ETag of a list is weak')
    t.equal(await statusWith({ 'if-none-match': String(etag) }), 412)
    t.equal(await statusWith({ 'if-none-match': '*' }), 412)
    t.equal((await app.inject('/api/items')).json().length, 1)
    t.equal(await statusWith({ 'if-match': '*', 'if-none-match': '"other"' }), 201)
    t.equal(await statusWith({ 'if-none-match': String(etag) }), 201, 'the list has changed')
  })

  t.test('deletions', async t => {
    const post = (app: FastifyInstance, name: string, id = 1) => app.inject({ method: 'POST', url: '/api/users', payload: { id, name } })
    const etagOf = async (app: FastifyInstance, url = '/api/users/1') => String((await app.inject(url)).headers.etag)
    const remove = (app: FastifyInstance, tag: string, id = 1) => app.inject({ method: 'DELETE', url: `/api/users/${id}`, headers: { 'if-match': tag } })

    t.test('the list has another ETag after a deletion, also if it has the same users as before', async t => {
      const app = build(t)
      const list = () => etagOf(app, '/api/users')
      const tags = [await list()]
      await post(app, 'Grace', 7)
      tags.push(await list())
      await app.inject({ method: 'DELETE', url: '/api/users/7' })
      tags.push(await list())
      await app.inject({ method: 'DELETE', url: '/api/users/1' })
      tags.push(await list())
      t.equal(new Set(tags).size, 4)
    })

    t.test('a DELETE with If-Match deletes only the user with this ETag', async t => {
      const app = build(t)
      const ada = await etagOf(app)
      for (const tag of ['"other"', `W/${ada}`, '', '"a,*,b"', `"x,${ada.slice(1)}`, '*, *']) {
        const { statusCode, body } = await remove(app, tag)
        t.equal(statusCode, 412, tag)
        t.equal(body, unmet)
      }
      for (const tag of [ada, `W/${ada}`, '*']) {
        const { statusCode, body } = await app.inject({ method: 'DELETE', url: '/api/users/1', headers: { 'if-none-match': tag } })
        t.same([statusCode, body], [412, unmet], `If-None-Match: ${tag}`)
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
      const statuses = (await Promise.all(Array.from({ length: 8 }, () => remove(app, ada)))).map(({ statusCode }) => statusCode)
      t.strictSame(statuses.toSorted(), [204, ...Array(7).fill(412)])
      t.equal((await app.inject('/api/users')).json().length, 3)
    })
  })

  t.test('compression', async t => {
    t.test('lists and pages are compressed as the client prefers, with one weak ETag for all codings', async t => {
      const app = build(t)
      await fill(app, '/api/items', collections[0]?.record ?? {}, 1100)
      for (const url of ['/api/items', '/api/items?limit=100']) {
        const plain = await app.inject(url)
        t.match(plain.headers, { vary: 'accept-encoding', 'content-encoding': undefined })
        for (const [coding, decode] of Object.entries(decoders)) {
          const headers = { 'accept-encoding': coding }
          for (const time of ['first', 'second']) {
            const compressed = await app.inject({ url, headers })
            t.match(compressed.headers, { 'content-encoding': coding, vary: 'accept-encoding', 'content-type': plain.headers['content-type'], link: plain.headers.link })
            t.equal(compressed.headers.etag, plain.headers.etag)
            t.ok(compressed.rawPayload.length < plain.rawPayload.length / 3)
            t.ok(decode(compressed.rawPayload).equals(plain.rawPayload), `${url} ${coding}, the ${time} time`)
          }
          const head = await app.inject({ method: 'HEAD', url, headers })
          t.match(head.headers, { 'content-encoding': coding, vary: 'accept-encoding', etag: plain.headers.etag })
          t.equal((await app.inject({ url, headers: { ...headers, 'if-none-match': plain.headers.etag } })).statusCode, 304)
        }
      }
    })

    t.test('a list that is too long for one piece is compressed while it is sent', async t => {
      const app = build(t)
      await Promise.all(Array.from({ length: 12 }, (_, id) =>
        app.inject({ method: 'POST', url: '/api/users', payload: { id: id + 2, name: `${id} is a long name, `.repeat(6000) } })))
      const plain = await app.inject('/api/users')
      t.ok(plain.rawPayload.length > 1024 * 1024)
      const answers = await Promise.all(Array.from({ length: 3 }, () => app.inject({ url: '/api/users', headers: { 'accept-encoding': 'gzip' } })))
      for (const { headers, rawPayload } of answers) {
        t.equal(headers['content-encoding'], 'gzip')
        t.ok(gunzipSync(rawPayload).equals(plain.rawPayload))
      }
    })

    t.test('a client that disconnects while it reads a compressed list does not disturb the others', async t => {
      const app = build(t)
      await Promise.all(Array.from({ length: 30 }, (_, id) =>
        app.inject({ method: 'POST', url: '/api/users', payload: { id: id + 2, name: randomBytes(145_000).toString('base64') } })))
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

  if (engine !== 'memory') {
    t.test('the list has another ETag after another program has changed it', async t => {
      const url = address()
      const app = build(t, { DATABASE_URL: url })
      await fill(app, '/api/users', { id: 1 }, 3)
      const tags: unknown[] = []
      for (const sql of ["update users set name = 'changed' where id = 10", 'delete from users where id = 11', 'delete from users']) {
        tags.push((await app.inject('/api/users')).headers.etag)
        await runSql(url, sql)
      }
      tags.push((await app.inject('/api/users')).headers.etag)
      t.equal(new Set(tags).size, 4)
    })

    t.test('the ETags are the same after a restart, and others in a new database and after a restore', async t => {
      const url = address()
      const first = build(t, { DATABASE_URL: url })
      const { headers: { etag } } = await first.inject('/api/users')
      await first.close()
      t.equal((await build(t, { DATABASE_URL: url }).inject('/api/users')).headers.etag, etag)
      t.not((await build(t).inject('/api/users')).headers.etag, etag)
      const [, update = ''] = readFileSync('docs/persistence.md', 'utf8').match(engine === 'SQLite' ? /"(update .+)"/ : /="(update .+)"/) ?? []
      await runSql(url, update)
      t.not((await build(t, { DATABASE_URL: url }).inject('/api/users')).headers.etag, etag)
    })
  }

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

test('the ETag of a record is a part of its SHA-256 digest', async t => {
  const { body, headers } = await helper.build(t).inject('/api/users/1')
  t.equal(headers.etag, `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`)
})

test('preconditions are evaluated as RFC 9110 says', async t => {
  const app = helper.build(t)
  for (const url of ['/api/items/1', '/api/items', '/api/items?limit=1']) {
    const isRecord = url === '/api/items/1'
    const opaque = String((await app.inject(url)).headers.etag).replace('W/', '')
    for (const method of ['GET', 'HEAD'] as const) {
      for (const known of [opaque, `"other", ${opaque}`, ' * ']) await answers(method, { 'if-none-match': known }, 304)
      for (const known of ['"other"', opaque.slice(1, -1), '"*"', `"x,${opaque.slice(1)}`, `${opaque.slice(0, -1)},"`, '*, "other"']) await answers(method, { 'if-none-match': known }, 200)
      for (const [match, noneMatch, status] of [
        [opaque, undefined, isRecord ? 200 : 412], ['*', undefined, 200], ['*', opaque, 304], ['"other"', opaque, 412], ['"other"', undefined, 412],
        [`"a,*,b", ${opaque}`, '"other"', isRecord ? 200 : 412], [`W/${opaque}`, undefined, 412], ['"a,*,b"', undefined, 412], ['', undefined, 412]
      ] as const) await answers(method, { 'if-match': match, ...noneMatch && { 'if-none-match': noneMatch } }, status)
    }

    async function answers (method: 'GET' | 'HEAD', headers: Record<string, string>, status: number) {
      const { statusCode, body } = await app.inject({ method, url, headers })
      t.equal(statusCode, status, `${method} ${url} ${JSON.stringify(headers)}`)
      if (statusCode === 412 && method === 'GET') t.equal(body, unmet)
    }
  }
})

test('at most 16 long lists are compressed at once, and a client that leaves makes room for another one', async t => {
  const app = helper.build(t)
  for (let id = 2; id < 12; id++) await app.inject({ method: 'POST', url: '/api/users', payload: { id, name: randomBytes(290_000).toString('base64') } })
  const { port } = await listen(app)
  const readers = Array.from({ length: 17 }, () => open(port))
  const heads = await Promise.all(readers.map(async reader => {
    reader.write(written('GET', '/api/users', undefined, { 'accept-encoding': 'gzip' }))
    const [head] = await once(reader, 'data')
    reader.pause()
    return String(head)
  }))
  t.equal(heads.filter(head => head.includes('content-encoding: gzip')).length, 16)
  const codingNow = async () => (await app.inject({ url: '/api/users', headers: { 'accept-encoding': 'gzip' } })).headers['content-encoding']
  t.equal(await codingNow(), undefined)
  for (const reader of readers) reader.destroy()
  await until(async () => await codingNow() === 'gzip')
})

test('at most 16 pages are compressed at once, and further ones are refused if the client accepts nothing else', async t => {
  const app = helper.build(t)
  for (let id = 2; id < 4; id++) await app.inject({ method: 'POST', url: '/api/users', payload: { id, name: 'x'.repeat(100_000) } })
  const answers = async (accepted: string) => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => app.inject({ url: '/api/users?limit=2', headers: { 'accept-encoding': accepted } })))
    const compressed = answers.filter(({ headers }) => headers['content-encoding'] === 'gzip')
    return { compressed: compressed.map(({ statusCode }) => statusCode), others: answers.filter(answer => !compressed.includes(answer)) }
  }
  for (const round of ['first', 'later']) {
    const { compressed, others } = await answers('gzip')
    t.same([...compressed, ...others.map(({ statusCode }) => statusCode)], Array(50).fill(200), round)
    t.equal(compressed.length, 16, round)
    const required = await answers('gzip, identity;q=0')
    t.same(required.compressed, Array(16).fill(200), round)
    t.same(required.others.map(({ statusCode, headers, body }) => [statusCode, headers['retry-after'], body]), Array(34).fill([503, '1', '{"detail":"The service is overloaded"}']), round)
  }
})

test('the preferred coding is that of the client', async t => {
  const app = helper.build(t)
  await fill(app, '/api/items', collections[0]?.record ?? {}, 100)
  const [best = ''] = Object.keys(decoders)
  for (const [accepted, coding] of Object.entries({
    gzip: 'gzip',
    GZIP: 'gzip',
    'gzip, deflate, br, zstd': best,
    'br;q=0.5, gzip;q=0.8': 'gzip',
    'br ; q=0.5 , gzip;q=0.4': 'br',
    [`${'unknown, '.repeat(19)}gzip`]: 'gzip',
    [`${'unknown, '.repeat(20)}gzip`]: undefined,
    'gzip;q=0, br;q=0.001': 'br',
    '*': best,
    [`*, ${best};q=0`]: Object.keys(decoders)[1],
    'gzip;q=0.5, *;q=0.1': 'gzip',
    '': undefined,
    identity: undefined,
    deflate: undefined,
    'gzip;q=0': undefined,
    'gzip;q=0.5, identity': undefined,
    'gzip, identity;q=0.5': 'gzip',
    '*;q=0': undefined,
    ';;,,=;q=x': undefined
  })) {
    const { statusCode, headers } = await app.inject({ url: '/api/items', headers: { 'accept-encoding': accepted } })
    t.strictSame([statusCode, headers['content-encoding']], [200, coding], accepted)
  }
})

test('small responses and errors are not compressed, unless the client accepts nothing else', async t => {
  const app = helper.build(t)
  for (const accepted of ['gzip', 'gzip, identity;q=0.5']) {
    t.match((await app.inject({ url: '/api/items', headers: { 'accept-encoding': accepted } })).headers, { 'content-encoding': undefined, vary: 'accept-encoding' })
  }
  for (const accepted of ['gzip, identity;q=0', 'gzip, *;q=0.0']) {
    t.equal((await app.inject({ url: '/api/items', headers: { 'accept-encoding': accepted } })).headers['content-encoding'], 'gzip')
  }
  const url = `/api/items?limit=${'x'.repeat(2000)}`
  t.match((await app.inject({ url, headers: { 'accept-encoding': 'gzip' } })).headers, { 'content-encoding': undefined, vary: undefined })
})

test('the OpenAPI document is compressed and has an ETag', async t => {
  const app = helper.build(t)
  const plain = await app.inject('/openapi.json')
  for (const [coding, decode] of Object.entries(decoders)) {
    const compressed = await app.inject({ url: '/openapi.json', headers: { 'accept-encoding': coding } })
    t.match(compressed.headers, { 'content-encoding': coding, 'cache-control': 'no-cache' })
    t.ok(decode(compressed.rawPayload).equals(plain.rawPayload))
    const { etag } = compressed.headers
    t.equal((await app.inject({ url: '/openapi.json', headers: { 'accept-encoding': coding, 'if-none-match': etag } })).statusCode, 304)
  }
})

test('in memory, an unchanged list of up to 1 MiB is compressed once, and shared by all readers', async t => {
  let compressions = 0
  const hook = createHook({ init: (_id, type) => { if (type === 'ZLIB') compressions++ } }).enable()
  t.teardown(() => hook.disable())
  for (const size of [20, 1000, 15_000]) {
    const store = memory<User>({ schema: User, seed: Array.from({ length: size }, (_, id) => ({ id, name: `The user with number ${id} and a long name` })) })
    const app = helper.host(t)
    app.register(itemsUsers, { prefix: '/api', store: { users: store, items: memory<Item>({ schema: Item, seed: [] }) } })
    const get = async () => (await app.inject({ url: '/api/users', headers: { 'accept-encoding': 'gzip' } })).rawPayload
    for (const changes of [1, 2]) {
      compressions = 0
      const answers = [...await Promise.all(Array.from({ length: 10 }, get)), await get()]
      t.equal(compressions, 1, `${size} users, state ${changes}`)
      const list = JSON.parse(String(gunzipSync(answers[0] as Buffer)))
      t.equal(list.length, size + changes - 1)
      t.ok(answers.every(answer => answer.equals(answers[0] as Buffer)))
      store.append({ id: 1, name: 'more' })
    }
  }
})

test('requests that share a compression keep their own async context', async t => {
  const contexts = new AsyncLocalStorage<unknown>()
  const app = helper.host(t)
  app.addHook('onRequest', (request, _reply, done) => contexts.run(request.headers['x-name'], done))
  const seen: unknown[][] = []
  app.addHook('onResponse', async request => { seen.push([request.headers['x-name'], contexts.getStore()]) })
  const users = Array.from({ length: 5000 }, (_, id) => ({ id, name: `The user with number ${id}` }))
  app.register(itemsUsers, { prefix: '/api', seed: { users } })
  const { port } = await listen(app)
  await Promise.all(Array.from({ length: 20 }, (_, n) =>
    fetch(`http://127.0.0.1:${port}/api/users`, { headers: { 'accept-encoding': 'gzip', 'x-name': String(n) } }).then(response => response.json())))
  await until(() => seen.length === 20)
  for (const [name, context] of seen) t.equal(context, name)
})

test('in memory, the ETags of a list differ between processes', async t => {
  const [one, other] = await Promise.all([helper.build(t), helper.build(t)].map(app => app.inject('/api/users')))
  t.equal(one?.body, other?.body)
  t.not(one?.headers.etag, other?.headers.etag)
})

test('a 304 for a list does not read the list', async t => {
  const app = helper.host(t)
  const users = memory<User>({ schema: User, seed: [] })
  const unreadable: Store<User> = {
    ...users,
    select: () => { throw new Error('The list is read') },
    version: async () => 'one'
  }
  app.register(itemsUsers, { prefix: '/api', store: { users: unreadable, items: memory<Item>({ schema: Item, seed: [] }) } })
  for (const url of ['/api/users', '/api/users?limit=5']) {
    t.equal((await app.inject({ url, headers: { 'if-none-match': '"one"' } })).statusCode, 304)
    t.equal((await app.inject({ url, headers: { 'if-none-match': '"two"' } })).statusCode, 500)
  }
})

test('a store without a version has lists without ETag', async t => {
  const app = helper.host(t)
  const { version, ...users } = memory<User>({ schema: User, seed: [{ id: 1, name: 'Ada' }] })
  app.register(itemsUsers, { prefix: '/api', store: () => ({ users, items: memory<Item>({ schema: Item, seed: [] }) }) })
  const { body, headers } = await app.inject({ url: '/api/users', headers: { 'if-none-match': '"one"' } })
  t.equal(body, '[{"id":1,"name":"Ada"}]')
  t.equal(headers.etag, undefined)
  t.equal((await app.inject({ url: '/api/users', headers: { 'if-none-match': '*' } })).statusCode, 304)
})

test('a body that a hook of the host has compressed or replaced is left as it is', async t => {
  const app = helper.host(t)
  app.addHook('onSend', async (request, reply, body) => {
    if ('compressed' in (request.query as object)) reply.header('content-encoding', 'x-own')
    return 'empty' in (request.query as object) ? null : body
  })
  app.register(itemsUsers, { prefix: '/api', seed: { users: Array.from({ length: 100 }, (_, id) => ({ id, name: 'Ada' })) } })
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
