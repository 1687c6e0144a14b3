import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { test } from 'tap'
import { defineCollection, items, users } from '../../src/index.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build, invalidBody } from '../support/helper.js'
import { examplesIn } from '../support/markdown.js'
import { serve } from '../support/serve.js'
import { runSql } from '../support/sql.js'

const Order = Type.Object({
  id: Type.Integer(),
  email: Type.String({ format: 'email' }),
  quantity: Type.Integer({ minimum: 1, maximum: 1e6 }),
  note: Type.Optional(Type.String())
})
const orders = defineCollection({
  name: 'orders',
  schema: Order,
  seed: [{ id: 1, email: 'ada@example.com', quantity: 1 }]
})
const order = (quantity: number, note?: string) => ({
  email: 'grace@example.com',
  quantity,
  ...note !== undefined && { note }
})
const many = (length: number) => Array.from({ length }, (_, n) => order(n + 1))

onEveryEngine((t, address, engine) => {
  t.test('POST /orders/batch creates 1 to 1,000 records next to each other, whatever else is created', async t => {
    const url = address()
    const { send } = await serve(t, url, orders)
    const { etag } = await send('GET', '/orders')
    const one = await send('POST', '/orders/batch', [{ ...order(7), id: 99, unknown: true }])
    t.same([one.status, one.body, one.headers.location], [201, [{ id: 2, ...order(7) }], undefined])
    t.not((await send('GET', '/orders')).etag, etag)
    const single = (n: number) => send('POST', '/orders', order(n, 'single'))
    const [, , created, ...others] = await Promise.all([
      single(1), single(2), send('POST', '/orders/batch', many(1000)), send('POST', '/orders/batch', many(3)), single(3)
    ])
    t.equal(created.status, 201)
    t.same(created.body.map(({ id, ...fields }: { id: number }) => fields), many(1000))
    const list = (await send('GET', '/orders')).body
    t.equal(list.length, 2 + 1000 + 3 + 3)
    t.equal(new Set(list.map(({ id }: { id: number }) => id)).size, list.length, 'all ids are different')
    for (const { body } of [created, others[0]]) {
      const place = list.findIndex(({ id }: { id: number }) => id === body[0].id)
      t.same(list.slice(place, place + body.length), body)
    }
    t.same((await send('GET', `/orders/${created.body[999].id}`)).body, created.body[999])
    if (engine !== 'PostgreSQL') return
    const transactions = await runSql(url,
      "select count(*) filter (where record::json ->> 'note' is null)::int as many from orders group by xmin::text")
    t.ok(transactions.some(({ many }) => Number(many) >= 1000), 'in one transaction')
  })

  t.test('one invalid record prevents all, and its index is in the path of its problems', async t => {
    const { send } = await serve(t, address(), orders)
    const before = (await send('GET', '/orders')).body
    const refuse = async (body: unknown, ...problems: [path: string, message: string][]) => {
      const refused = await send('POST', '/orders/batch', body)
      t.same([refused.status, refused.body], [400, invalidBody('body', ...problems)])
    }
    await refuse(many(18).with(17, { email: 'x', quantity: 1.5 }), ['/17/email', 'must match the format email'],
      ['/17/quantity', 'must be an integer'])
    await refuse([
      order(0), {}, order(1), null, [order(1)]
    ], ['/0/quantity', 'must be at least 1'], ['/1/email', 'is required'], ['/1/quantity', 'is required'],
    ['/3', 'must be an object'], ['/4', 'must be an object'])
    await refuse([], ['', 'must not have fewer than 1 items'])
    await refuse(many(1001), ['', 'must not have more than 1000 items'])
    for (const body of [order(1), 7, 'x', null, { 0: order(1), length: 1 }]) {
      await refuse(body, ['', 'must be an array'])
    }
    await refuse(many(1000).with(500, { email: 'x', quantity: 0 }).with(999, order(0)),
      ['/500/email', 'must match the format email'])
    await refuse(many(3).with(1, order(2, '\ud800')), ['/1/note', 'must be well-formed Unicode text'])
    t.same((await send('GET', '/orders')).body, before)
  })

  t.test('an Idempotency-Key is for the whole array', async t => {
    const url = address()
    const instances = [await serve(t, url, orders)]
    if (engine === 'PostgreSQL') instances.push(await serve(t, url, orders))
    const post = (n: number, path: string, body: unknown, key = 'key') =>
      instances[n % instances.length]!.send('POST', path, body, { 'idempotency-key': key })
    const answers = await Promise.all([0, 1, 2, 3].map(n => post(n, '/orders/batch', many(1000))))
    const created = answers.filter(({ status }) => status === 201)
    t.ok(created.length > 0 && answers.every(({ status }) => status === 201 || status === 409))
    for (const { body } of created) t.same(body, created[0]?.body)
    const stored = (await instances[0]!.send('GET', '/orders')).body
    t.same(stored.slice(1), created[0]?.body)
    await instances[0]!.send('DELETE', `/orders/${stored[500].id}`)
    t.same((await post(1, '/orders/batch', many(1000))).body, created[0]?.body, 'the same records with their ids')
    for (const [path, body] of [
      ['/orders/batch', many(999)], ['/orders/batch', many(1000).toReversed()], ['/orders', order(1)],
      ['/orders/batch', [order(1)]]
    ] as const) {
      t.equal((await post(0, path, body)).status, 422)
    }
    t.equal((await post(0, '/orders', order(1), 'other')).status, 201)
    t.equal((await post(1, '/orders/batch', [order(1)], 'other')).status, 422, 'one record is not an array of one')
    t.equal((await instances[0]!.send('GET', '/orders')).body.length, 1001)
  })

  t.test('ids of clients may repeat, and are part of a retry', async t => {
    const { send } = await serve(t, address(), { ...orders, idSource: 'client' })
    const records = [5, 5, -3, 1].map((id, n) => ({ id, ...order(n + 1) }))
    for (const key of [undefined, 'key', 'key']) {
      t.same((await send('POST', '/orders/batch', records, key ? { 'idempotency-key': key } : {})).body, records)
    }
    t.same((await send('GET', '/orders')).body, [...orders.seed ?? [], ...records, ...records])
    t.same((await send('POST', '/orders/batch', [records[0], order(1)])).body,
      invalidBody('body', ['/1/id', 'is required']))
  })

  t.test('without enough consecutive ids, nothing is stored', async t => {
    const { send } = await serve(t, address(),
      {
        ...orders,
        schema: Type.Object({ ...Order.properties, id: Type.Integer({ minimum: 5, maximum: 10 }) }),
        seed: [{ id: 6, ...order(1) }]
      })
    for (const key of [undefined, 'key']) {
      const refused = await send('POST', '/orders/batch', many(5), key ? { 'idempotency-key': key } : {})
      t.same([refused.status, refused.body], [503, { detail: 'No more ids can be generated' }])
    }
    t.same((await send('POST', '/orders/batch', many(2))).body.map(({ id }: { id: number }) => id), [7, 8])
    t.same((await send('POST', '/orders/batch', many(2),
      { 'idempotency-key': 'key' })).body.map(({ id }: { id: number }) => id),
    [9, 10])
    t.equal((await send('GET', '/orders')).body.length, 5)
  })

  if (engine !== 'PostgreSQL') return

  t.test('a collection moves from SQLite to PostgreSQL with its ids, as docs/persistence.md shows', async t => {
    const folder = newFolder(t)
    const fileWith = (options: object) => {
      const file = `${folder}/${Object.keys(options)}.json`
      writeFileSync(file, JSON.stringify({ orders: { schema: Order, ...options } }))
      return file
    }
    const [ofServer, ofClient] = [fileWith({ idSource: 'server' }), fileWith({ idSource: 'client', filters: [] })]
    const listening = async (env: NodeJS.ProcessEnv) => {
      const app = build(t, env)
      await app.listen({ port: 0, host: '127.0.0.1' })
      return { app, url: `127.0.0.1:${(app.server.address() as AddressInfo).port}` }
    }
    const old = await listening({ DATABASE_URL: `sqlite:${folder}/old.db`, COLLECTIONS_FILE: ofServer })
    for (const size of [1000, 1000, 301]) {
      const payload = many(size).map((record, n) => n % 3 ? record : { ...record, note: 'Zoë "x" \\ %s $HOME \n 🫖' })
      t.equal((await old.app.inject({ method: 'POST', url: '/api/orders/batch', payload })).statusCode, 201)
    }
    for (const id of [7, 2000]) await old.app.inject({ method: 'DELETE', url: `/api/orders/${id}` })
    const { body } = await old.app.inject('/api/orders')
    const next = async (app: ReturnType<typeof build>) =>
      (await app.inject({ method: 'POST', url: '/api/orders', payload: order(1) })).json().id
    const examples = examplesIn('docs/persistence.md').filter(({ section }) => section === 'Export and import')
    const [exporting = '', starting = ''] = String(examples[0]?.code).split('\n')

    // It works without curl.
    const program = 'process.stdout.write(await (await fetch(process.argv.at(-1))).text())'
    const curl = `curl () { '${process.execPath}' --input-type=module -e '${program}' -- "$@"; }`
    await promisify(execFile)('sh', ['-c', `${curl}\n${exporting.replace('127.0.0.1:3000', old.url)}`], { cwd: folder })
    const [, SEED_FILE] = /^DATABASE_URL=postgres:\S+ SEED_FILE=(\S+) npm start$/.exec(starting) ?? []
    const seeded = build(t,
      { DATABASE_URL: address(), COLLECTIONS_FILE: ofServer, SEED_FILE: `${folder}/${SEED_FILE}` })
    t.ok((await seeded.inject('/api/orders')).body === body, 'SEED_FILE')
    t.equal(await next(seeded), 2302)

    const DATABASE_URL = address()
    const empty = await listening({ DATABASE_URL, COLLECTIONS_FILE: ofClient })
    const script = String(examples[1]?.code).replace('127.0.0.1:3000', old.url).replace('127.0.0.1:3001', empty.url)
    writeFileSync(`${folder}/move.mjs`, script)
    await import(pathToFileURL(`${folder}/move.mjs`).href)
    t.ok((await empty.app.inject('/api/orders')).body === body, 'createMany')
    await empty.app.close()
    t.equal(await next(build(t, { DATABASE_URL, COLLECTIONS_FILE: ofServer })), 2302)
  })
})

test('readOnly fields are ignored, and defaults are added', async t => {
  const Account = Type.Object({
    id: Type.Integer(),
    name: Type.String(),
    role: Type.String({ readOnly: true, default: 'guest', maxLength: 9 }),
    place: Type.Object({ city: Type.String({ default: 'Rome' }) }, { default: {}, additionalProperties: false })
  })
  const { send } = await serve(t, 'memory', { name: 'accounts', schema: Account })
  const created = await send('POST', '/accounts/batch',
    [{ name: 'ada', role: 'admin' }, { name: 'grace', place: { city: 'Oslo', zip: 1 } }])
  t.same(created.body,
    [
      { id: 1, name: 'ada', role: 'guest', place: { city: 'Rome' } },
      { id: 2, name: 'grace', role: 'guest', place: { city: 'Oslo' } }
    ])
  t.same((await send('POST', '/accounts/batch', [{ name: 'x' }, {}])).body,
    invalidBody('body', ['/1/name', 'is required']))
  t.equal((await send('GET', '/accounts')).body.length, 2)
})

test('the path, its methods and the size of the body', async t => {
  const { send } = await serve(t, 'memory',
    { ...orders, routes: { create: { bodyLimit: 2000 }, createMany: { bodyLimit: 2000 } } })
  t.same((await send('GET', '/orders/batch')).body, invalidBody('path', ['/id', 'must be an integer']),
    'as for other ids that are not integers')
  t.equal((await send('DELETE', '/orders/batch')).status, 400)
  const size = JSON.stringify(many(40)).length
  t.ok(size > 1600 && size < 2000)
  t.equal((await send('POST', '/orders/batch', many(40))).status, 201)
  t.equal((await send('POST', '/orders/batch', many(50))).status, 413)
  t.equal((await send('GET', '/orders')).body.length, 41)
})

test('items and users do not have it, and a definition can leave it out', async t => {
  const app = build(t)
  for (const name of ['items', 'users']) {
    const { statusCode } = await app.inject({
      method: 'POST',
      url: `/api/${name}/batch`,
      payload: [{ id: 7, name: 'x', price: 1 }]
    })
    t.equal(statusCode, 405)
  }
  t.notOk([items, users].some(({ operations }) => operations?.includes('createMany')))
  const { send } = await serve(t, undefined, { ...orders, operations: ['create', 'list'] },
    { ...orders, name: 'parts', operations: ['createMany'] })
  t.equal((await send('POST', '/orders/batch', many(1))).status, 404)
  t.equal((await send('POST', '/parts/batch', many(1))).status, 201)
  t.equal((await send('GET', '/parts/batch')).status, 404)
})

test('a host with options for create has createMany only if it asks for it', async t => {
  const onRequest = async () => { throw Object.assign(new Error('No'), { statusCode: 403 }) }
  const statusIn = async (options: object, body: unknown = many(1)) =>
    (await (await serve(t, undefined, { ...orders, ...options })).send('POST', '/orders/batch', body)).status
  t.equal(await statusIn({ routes: { create: { onRequest } } }), 404, 'the hook may expect one record')
  t.equal(await statusIn({ routes: { create: { onRequest }, createMany: { onRequest } } }), 403)
  t.equal(await statusIn({ routes: { create: { onRequest } }, operations: ['createMany'] }), 201)
})

test('the document describes it', async t => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify({ orders: { schema: Order, seed: orders.seed } }))
  const { paths } = (await build(t, { COLLECTIONS_FILE: file, AUTH_TOKENS: 'one' }).inject('/openapi.json')).json()
  const { post } = paths['/api/orders/batch']
  t.match(post,
    {
      operationId: 'createManyOrders',
      tags: ['orders'],
      security: [{ bearer: ['orders:write'] }],
      parameters: [{ name: 'Idempotency-Key' }]
    })
  t.match(post.requestBody.content['application/json'],
    { schema: { type: 'array', minItems: 1, maxItems: 1000, items: { $ref: '#/components/schemas/NewOrder' } } })
  t.match(post.responses[201].content['application/json'],
    { schema: { type: 'array', items: { $ref: '#/components/schemas/Order' } } })
  t.same(Object.keys(post.responses), ['201', '400', '401', '403', '409', '413', '422', '500', '503', 'default'])
})

test('the log does not contain the values of a rejected array, and metrics count it', async t => {
  const lines: string[] = []
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify({ orders: { schema: Order } }))
  const app = build(t, { COLLECTIONS_FILE: file, LOG_LEVEL: 'info', METRICS_PORT: '0' },
    { write: line => { lines.push(line) } })
  await app.inject({ method: 'POST', url: '/api/orders/batch', payload: many(20) })
  await app.inject({
    method: 'POST',
    url: '/api/orders/batch',
    payload: many(20).map(() => ({ email: 'secret', quantity: 0 }))
  })
  const logged = lines.map(line => JSON.parse(line))
  const rejected = logged.find(({ reason }) => reason)
  t.match(rejected.reason,
    /^Invalid body: 0\/email must match the format email, 0\/quantity must be at least 1, 1\/email/)
  t.notMatch(lines.join(), /secret/)
  const address = /http:\S+/.exec(logged.find(({ msg }) => msg.startsWith('metrics at')).msg)
  const metrics = await (await fetch(String(address))).text()
  t.match(metrics, /http_request_duration_seconds_count\{method="POST",route="\/api\/orders\/batch",status="201"\} 1/)
  t.match(metrics, /store_operation_duration_seconds_count\{collection="orders",operation="append"\} 1/)
})
