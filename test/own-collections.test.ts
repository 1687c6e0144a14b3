import { AsyncResource } from 'node:async_hooks'
import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Type, type Static, type TObject } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import { test } from 'tap'
import { checkDefinition } from '../plugins/collection/definition.js'
import { collection, defineCollection, docs, items, memory, type Definition, type Store, type Stores } from '../src/index.js'
import { onEveryEngine } from './support/engines.js'
import { host, invalidBody } from './support/helper.js'
import { serve } from './support/serve.js'
import { edgesOf, recordOf, wrongOf } from './support/values.js'

const Order = Type.Object({
  id: Type.Integer(),
  item_id: Type.Integer(),
  quantity: Type.Integer({ minimum: 1 }),
  note: Type.Optional(Type.String())
})

const orders = defineCollection({ name: 'orders', schema: Order, seed: [{ id: 1, item_id: 1, quantity: 2 }, { id: 2, item_id: 1, quantity: 1, note: 'x' }, { id: 3, item_id: 9, quantity: 9 }] })

/** Orders whose ids repeat. */
const repeated = defineCollection({ ...orders, idSource: 'client', seed: [...orders.seed ?? [], { id: 2, item_id: 7, quantity: 7 }] })

/** Every type of field. */
const Everything = Type.Object({
  id: Type.Integer(),
  text: Type.String({ minLength: 1 }),
  number: Type.Number({ maximum: 1e9 }),
  count: Type.Integer(),
  flag: Type.Boolean(),
  colour: Type.Union([Type.Literal('red'), Type.Literal('green')]),
  size: Type.Unsafe<string>({ type: 'string', enum: ['small', "it's large"] }),
  stars: Type.Optional(Type.Union([Type.Literal(1), Type.Literal(2.5)])),
  contact: Type.Optional(Type.Union([Type.String({ format: 'email', examples: ['ada@example.com'] }), Type.Literal('none')])),
  shape: Type.Optional(Type.Union([Type.Object({ radius: Type.Number() }), Type.Object({ side: Type.Number() })])),
  fixed: Type.Optional(Type.Literal(true)),
  either: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  at: Type.Optional(Type.String({ format: 'date-time', examples: ['2026-11-16T12:00:00Z'] })),
  tags: Type.Array(Type.String()),
  pair: Type.Optional(Type.Tuple([Type.String(), Type.Number()], { examples: [['a', 1]] })),
  place: Type.Object({ city: Type.String(), at: Type.Optional(Type.Array(Type.Number())) })
})

const accounts = defineCollection({
  name: 'accounts',
  schema: Type.Object({
    id: Type.Integer({ readOnly: true }),
    name: Type.String(),
    password: Type.String({ writeOnly: true }),
    role: Type.String({ readOnly: true, default: 'guest' }),
    since: Type.Optional(Type.String({ readOnly: true })),
    keys: Type.Optional(Type.Array(Type.Object({ label: Type.String(), secret: Type.String({ writeOnly: true }), uses: Type.Optional(Type.Integer({ readOnly: true })) }))),
    place: Type.Optional(Type.Object({ city: Type.String({ default: 'Rome' }), area: Type.String({ default: 'centre' }), code: Type.Optional(Type.Integer({ writeOnly: true })) }))
  }, { additionalProperties: false }),
  seed: [{ id: 1, name: 'ada', password: 'p', role: 'guest', since: 'then', keys: [{ label: 'a', secret: 's' }] }]
})

test('a condition and the names of properties have one problem for each place', async t => {
  const Part = Type.Object({ id: Type.Integer(), weight: Type.Number(), labels: Type.Object({}, { propertyNames: { maxLength: 3 } }) }, {
    if: { properties: { weight: { minimum: 100 } } }, then: { properties: { id: { maximum: 9 } } }
  })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part, idSource: 'client' }))
  t.same((await send('POST', '/parts', { id: 10, weight: 100, labels: { long: 1 } })).body,
    invalidBody('body', ['/id', 'must be at most 9'], ['/labels/long', 'is a name that must not have more than 3 characters']))
  t.equal((await send('POST', '/parts', { id: 10, weight: 99, labels: {} })).status, 201)
})

test('a union in a union has a problem', async t => {
  const Part = Type.Object({ id: Type.Integer(), size: Type.Unsafe({ oneOf: [{ oneOf: [{ type: 'string' }, { type: 'integer' }] }, { type: 'object', properties: { a: { type: 'string', maxLength: 3 } } }] }) })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part }))
  for (const size of [{ a: 'long' }, null]) {
    t.same((await send('POST', '/parts', { size })).body, invalidBody('body', ['/size', 'must match one of the allowed schemas']))
    t.same((await send('POST', '/parts/batch', [{ size: 1 }, { size }])).body, invalidBody('body', ['/1/size', 'must match one of the allowed schemas']))
  }
})

test('an object can have many fields, and its id need not be the first one', async t => {
  const many = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`f${n}`, Type.Optional(Type.Integer())]))
  const Part = Type.Object({ sizes: Type.Array(Type.Unsafe({ type: 'object', allOf: [Type.Object(many)], unevaluatedProperties: false })), ...many, id: Type.Integer() })
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

test('a large record that cannot be changed now does not delay changes of others', async t => {
  const schema = Type.Object({ id: Type.Integer(), text: Type.String() })
  const inner = memory({ schema, seed: [1, 2].map(id => ({ id, text: 'x'.repeat(300_000) })) })
  let release = () => {}
  const isReleased = new Promise<void>(resolve => { release = resolve })
  const store: Store<Static<typeof schema>> = { ...inner, first: async id => id === 1 ? isReleased.then(() => inner.first(id)) : inner.first(id) }
  const { send } = await serve(t, undefined, defineCollection({ name: 'notes', schema, store }))
  const held = send('PATCH', '/notes/1', { text: 'a' })
  t.equal((await send('PATCH', '/notes/2', { text: 'b' })).status, 200)
  release()
  t.same((await held).body, { id: 1, text: 'a' })
})

onEveryEngine((t, address, engine) => {
  t.test('a collection of a host has all operations', async t => {
    const { send } = await serve(t, address(), orders)
    t.same((await send('GET', '/orders')).body, orders.seed)
    t.same((await send('GET', '/orders/2')).body, orders.seed?.[1])
    const created = await send('POST', '/orders', { item_id: 3, quantity: 4, id: 77 })
    t.same([created.status, created.body, created.headers.location], [201, { id: 4, item_id: 3, quantity: 4 }, './orders/4'])
    t.same((await send('POST', '/orders', { item_id: 3, quantity: 0 })).body, invalidBody('body', ['/quantity', 'must be at least 1']))
    t.equal((await send('DELETE', '/orders/1')).status, 204)
    t.same((await send('GET', '/orders?limit=2')).body, orders.seed?.slice(1))
  })

  t.test('PUT replaces the first record with the id, in its place', async t => {
    const { send } = await serve(t, address(), repeated)
    const list = await send('GET', '/orders')
    const replaced = await send('PUT', '/orders/2', { item_id: 5, quantity: 6 })
    t.same([replaced.status, replaced.body], [200, { id: 2, item_id: 5, quantity: 6 }])
    const now = await send('GET', '/orders')
    t.same(now.body, [repeated.seed?.[0], replaced.body, ...repeated.seed?.slice(2) ?? []])
    t.not(now.etag, list.etag)
    t.equal((await send('GET', '/orders/2')).etag, replaced.etag)
    t.equal((await send('PUT', '/orders/2', { id: 2, item_id: 5, quantity: 6, extra: 1 })).etag, replaced.etag)
    t.same((await send('PUT', '/orders/2', { id: 3, item_id: 5, quantity: 6 })).body, invalidBody('body', ['/id', 'must be the id in the path']))
    t.same((await send('PUT', '/orders/2', { item_id: 5 })).body, invalidBody('body', ['/quantity', 'is required']))
    t.same((await send('PUT', '/orders/2', [1])).body, invalidBody('body', ['', 'must be an object']))
    t.equal((await send('PUT', '/orders/99', { item_id: 5, quantity: 6 })).status, 404)
    t.equal((await send('PUT', '/orders/9007199254740993', { item_id: 5, quantity: 6 })).status, 404)
    t.equal((await send('PUT', '/orders/x', { item_id: 5, quantity: 6 })).status, 400)
    t.same((await send('GET', '/orders')).body, now.body)
  })

  t.test('PATCH merges a JSON Merge Patch, and null removes an optional field', async t => {
    const { send } = await serve(t, address(), orders)
    const patch = (body: unknown, type = 'application/merge-patch+json') => send('PATCH', '/orders/2', body, { 'content-type': type })
    t.same((await patch({ quantity: 5 })).body, { id: 2, item_id: 1, quantity: 5, note: 'x' })
    t.same((await patch({ note: null, quantity: 6 }, 'application/json')).body, { id: 2, item_id: 1, quantity: 6 })
    t.same((await patch({ id: 2, unknown: { a: null } })).body, { id: 2, item_id: 1, quantity: 6 })
    for (const [body, path, message] of [
      [{ quantity: null }, '/quantity', 'is required'], [{ quantity: '7' }, '/quantity', 'must be an integer'], [{ quantity: 0 }, '/quantity', 'must be at least 1'],
      [{ id: 3 }, '/id', 'must be the id in the path'], [[], '', 'must be an object'], [null, '', 'must be an object']
    ] as const) {
      const refused = await patch(body)
      t.equal(refused.status, 400)
      t.same(refused.body, invalidBody('body', [path, message]))
    }
    t.equal((await send('PATCH', '/orders/99', {})).status, 404)
    t.same((await send('GET', '/orders/2')).body, { id: 2, item_id: 1, quantity: 6 })
  })

  t.test('a large record is changed in several turns of the event loop, and no change is lost', async t => {
    const Note = Type.Object({ id: Type.Integer(), text: Type.String(), words: Type.Record(Type.String(), Type.Integer()) })
    const { app, send } = await serve(t, address(), defineCollection({ name: 'notes', schema: Note }))
    const created = await send('POST', '/notes', { text: 'x'.repeat(300_000), words: {} })
    const patch = (words: object, headers = {}) => send('PATCH', '/notes/1', { words }, headers)
    const got = await send('GET', '/notes/1')
    const changed = await Promise.all(Array.from({ length: 9 }, (_, n) => patch({ [n]: n })))
    t.same(changed.map(({ status }) => status), Array(9).fill(200))
    t.equal((await patch({ a: 1 }, { 'if-match': got.etag })).status, 412)
    t.same((await patch({ a: 'x' })).body, invalidBody('body', ['/words/a', 'must be an integer']))
    const store = (app.stores as unknown as Stores<{ notes: Static<typeof Note> }>).notes
    let turns = 0
    const late = { status: 0 }
    patch({ late: 1 }).then(({ status }) => Object.assign(late, { status }), t.threw)
    for (; late.status === 0; await nextTurn()) await store.change(1, current => ({ ...JSON.parse(current), words: { ...JSON.parse(current).words, turns: ++turns } }))
    t.equal(late.status, 200)
    t.ok(turns > (engine === 'PostgreSQL' ? 0 : 3), `others had ${turns} turns meanwhile`) // PostgreSQL answers when it can
    t.same((await send('GET', '/notes/1')).body, { ...created.body, words: { ...Array.from({ length: 9 }, (_, n) => n), late: 1, turns } })
    const statuses = await Promise.all([patch({}), patch({}), patch({}), send('DELETE', '/notes/1')].map(async response => (await response).status))
    t.same(statuses.slice(1), [404, 404, 204])
  })

  t.test('PUT, PATCH and DELETE honour If-Match and If-None-Match', async t => {
    const { send } = await serve(t, address(), orders)
    const { etag } = await send('GET', '/orders/1')
    const changes = [['PUT', { item_id: 1, quantity: 3 }], ['PATCH', { quantity: 3 }], ['DELETE', undefined]] as const
    for (const [method, body] of changes) {
      for (const headers of [{ 'if-match': '"other"' }, { 'if-none-match': etag }, { 'if-none-match': '*' }] as Record<string, string>[]) {
        t.equal((await send(method, '/orders/1', body, headers)).status, 412, `${method} ${JSON.stringify(headers)}`)
      }
      t.equal((await send(method, '/orders/99', body, { 'if-match': '*' })).status, 404)
    }
    let current = etag
    for (const [method, body] of changes) {
      const changed = await send(method, '/orders/1', body, { 'if-match': `"x", ${current}`, 'if-none-match': '"y"' })
      t.ok(changed.status < 300, method)
      current = changed.etag
    }
  })

  t.test('a change of a record that does not exist does not change the ETag of the list', async t => {
    const { send } = await serve(t, address(), orders)
    const { etag } = await send('GET', '/orders')
    for (const [method, body] of [['DELETE'], ['PUT', { item_id: 1, quantity: 1 }], ['PATCH', { quantity: 1 }]] as const) t.equal((await send(method, '/orders/99', body)).status, 404)
    t.equal((await send('GET', '/orders')).etag, etag)
    t.equal((await send('DELETE', '/orders/1')).status, 204)
    t.not((await send('GET', '/orders')).etag, etag)
  })

  t.test('concurrent changes lose no update, also from two instances', async t => {
    const url = address()
    const instances = [await serve(t, url, orders)]
    if (engine === 'PostgreSQL') instances.push(await serve(t, url, orders))
    const [first] = instances
    await Promise.all(Array.from({ length: 20 }, async function increment (_, n) {
      const { send } = instances[n % instances.length] ?? instances[0]!
      for (let done = 0; done < 3;) {
        const { body, etag } = await send('GET', '/orders/1')
        const changed = await send(n % 2 ? 'PATCH' : 'PUT', '/orders/1', { ...body, quantity: body.quantity + 1 }, { 'if-match': etag })
        if (changed.status === 200) done++
        else t.equal(changed.status, 412)
      }
    }))
    t.equal((await first!.send('GET', '/orders/1')).body.quantity, 62)
    await Promise.all([{ quantity: 1 }, { note: 'a' }, { item_id: 8 }].map((patch, n) => (instances[n % instances.length] ?? instances[0]!).send('PATCH', '/orders/1', patch)))
    t.same((await first!.send('GET', '/orders/1')).body, { id: 1, item_id: 8, quantity: 1, note: 'a' })
  })

  t.test('fields of every type are stored, replaced, updated and validated', async t => {
    const { send } = await serve(t, address(), { name: 'things', schema: Everything, idSource: 'client' })
    const record = recordOf(Everything, 7)
    t.same((await send('POST', '/things', record)).body, record)
    for (const [name, field] of Object.entries(Everything.properties).slice(1)) {
      for (const value of edgesOf(field)) {
        t.same((await send('PUT', '/things/7', { ...record, [name]: value })).body[name], value, `PUT ${name}`)
        if (value !== null) t.same((await send('PATCH', '/things/7', { [name]: value })).body[name], value, `PATCH ${name}`)
      }
      for (const [value, message] of wrongOf(field)) {
        t.same((await send('PUT', '/things/7', { ...record, [name]: value })).body, invalidBody('body', [`/${name}`, message]))
      }
      const isOptional = !(Everything as TObject).required?.includes(name)
      t.equal((await send('PATCH', '/things/7', { [name]: null })).status, isOptional ? 200 : 400, `${name}: null`)
    }
    t.same((await send('PATCH', '/things/7', { place: { city: 'Rome', at: null } })).body.place, { city: 'Rome' })
    t.same((await send('PATCH', '/things/7', { at: 'noon' })).body, invalidBody('body', ['/at', 'must match the format date-time']))
    for (const [fields, path, message] of [
      [{ colour: 'blue' }, '/colour', 'must match one of the allowed schemas'], [{ size: 'x' }, '/size', "must be one of small, it's large"], [{ fixed: false }, '/fixed', 'must be true'], [{ shape: { radius: 'x' } }, '/shape', 'must match one of the allowed schemas'],
      [{ contact: 'x' }, '/contact', 'must match one of the allowed schemas'], [{ place: { city: 1 } }, '/place/city', 'must be a string'], [{ tags: ['a', 1] }, '/tags/1', 'must be a string']
    ] as const) t.same((await send('PUT', '/things/7', { ...record, ...fields })).body, invalidBody('body', [path, message]))
  })

  t.test('a request has its own time, also if a hook continues it in the async context of an older request', async t => {
    let older: AsyncResource | undefined
    const preHandler = (_request: unknown, _reply: unknown, done: () => void) => {
      older ??= new AsyncResource('older')
      older.runInAsyncScope(done)
    }
    const { send } = await serve(t, address(), { ...orders, routes: { list: { preHandler } } })
    t.equal((await send('GET', '/orders')).status, 200)
    const { now } = Date
    t.teardown(() => { Date.now = now })
    Date.now = () => now() + 60_000
    t.equal((await send('GET', '/orders')).status, 200)
  })

  t.test('writeOnly fields are in no response, readOnly fields of a request are ignored, and defaults are added to new records', async t => {
    const { app, send } = await serve(t, address(), accounts)
    const first = { id: 1, name: 'ada', role: 'guest', since: 'then', keys: [{ label: 'a' }] }
    t.same((await send('GET', '/accounts')).body, [first])
    const got = await send('GET', '/accounts/1')
    t.same(got.body, first)
    t.equal((await send('GET', '/accounts/1', undefined, { 'if-none-match': got.etag })).status, 304)
    t.equal((await send('HEAD', '/accounts')).headers['content-length'], String(JSON.stringify([first]).length))

    const posted = await send('POST', '/accounts', { name: 'grace', password: 'x', since: 5, role: 'admin', keys: [{ label: 'b', secret: 's', uses: 9 }], place: {} }, { 'idempotency-key': 'k' })
    const second = { id: 2, name: 'grace', role: 'guest', keys: [{ label: 'b' }], place: { city: 'Rome', area: 'centre' } }
    t.same([posted.status, posted.body, posted.headers.location], [201, second, './accounts/2'])
    t.same((await send('POST', '/accounts', { name: 'grace', password: 'x', keys: [{ label: 'b', secret: 's' }], place: { city: 'Rome' } }, { 'idempotency-key': 'k' })).body, second)
    t.same((await send('POST', '/accounts', { name: 'grace' })).body, invalidBody('body', ['/password', 'is required']))
    t.same((await send('GET', '/accounts?limit=9')).body, [first, second])

    const store = app.getDecorator<Stores<{ accounts: { id: number } }>>('stores').accounts
    t.same(JSON.parse(String(await store.first(1))), accounts.seed?.[0], 'the store has them all')
    const patched = await send('PATCH', '/accounts/1', { password: 'y', since: null, id: 1 }, { 'if-match': got.etag })
    t.same([patched.status, patched.body], [200, first])
    t.not(patched.etag, got.etag, 'the ETag changes with the password')
    t.equal((await send('GET', '/accounts/1', undefined, { 'if-none-match': got.etag })).etag, patched.etag)
    t.equal((await send('DELETE', '/accounts/1', undefined, { 'if-match': got.etag })).status, 412)

    const put = await send('PUT', '/accounts/1', { name: 'ada', password: 'z', since: 'now', place: {} })
    t.same([put.status, put.body], [200, { id: 1, name: 'ada', role: 'guest', since: 'then', place: { city: 'Rome', area: 'centre' } }])
    t.same(JSON.parse(String(await store.first(1))), { ...put.body, password: 'z' })
    t.same((await send('PUT', '/accounts/1', { name: 'ada' })).body, invalidBody('body', ['/password', 'is required']))
    t.same((await send('PATCH', '/accounts/1', { place: { area: 'north', code: 7 } })).body.place, { city: 'Rome', area: 'north' }, 'PATCH adds no defaults')
    t.same((await send('PUT', '/accounts/1', 5)).body, invalidBody('body', ['', 'must be an object']))

    const { schemas } = (await send('GET', '/openapi.json')).body.components
    t.same(Object.keys(schemas.Account.properties), ['id', 'name', 'role', 'since', 'keys', 'place'])
    t.same(Object.keys(schemas.NewAccount.properties), ['id', 'name', 'password', 'keys', 'place'], 'the id is ignored')
    t.same([schemas.Account.required, schemas.NewAccount.required], [['id', 'name', 'role'], ['name', 'password']])
    t.same([schemas.Account.examples, schemas.NewAccount.examples], [[first], [{ name: 'ada', password: 'p', keys: [{ label: 'a', secret: 's' }] }]])
  })

  t.test('the readOnly times that a hook sets do not make a retry another request, and it gets the stored record', async t => {
    let n = 0
    const time = (n: number) => `2026-11-19T12:00:${String(n).padStart(2, '0')}Z`
    const at = Type.String({ readOnly: true, format: 'date-time' })
    const schema = Type.Object({ id: Type.Integer(), at, text: Type.String(), owner: Type.Optional(Type.String({ readOnly: true })), seen: Type.Optional(Type.Union([at, Type.Null()])) })
    const stamp = async ({ body, headers: { user } }: FastifyRequest) => { for (const record of [body].flat().map(Object)) Object.assign(record, { at: time(++n), seen: time(n), owner: user }) }
    const notes = { name: 'notes', schema, routes: { create: { preHandler: stamp }, createMany: { preHandler: stamp } } }
    const { send } = await serve(t, address(), notes)
    const post = (body: object, key: string, user?: string) => send('POST', Array.isArray(body) ? '/notes/batch' : '/notes', body, { 'idempotency-key': key, ...user && { user } })
    const [first, many] = [await post({ text: 'a' }, 'one'), await post([{ text: 'b' }, { text: 'c' }], 'many')]
    const stored = [1, 2, 3].map(id => ({ id, at: time(id), text: 'abc'[id - 1], seen: time(id) }))
    t.same([first.body, ...many.body], stored)
    const again = await post({ unknown: 1, at: 'x', text: 'a', id: 7 }, 'one')
    t.same([again.status, again.body, again.headers.location], [201, first.body, first.headers.location])
    t.same((await post([{ text: 'b' }, { text: 'c' }], 'many')).body, many.body)
    for (const [body, key] of [[{ text: 'b' }, 'one'], [[{ text: 'b' }], 'many'], [[{ text: 'a' }], 'one']] as const) t.equal((await post(body, key)).status, 422)
    t.equal((await post({ text: 'a' }, 'one', 'bob')).status, 422, 'not the record of somebody else')
    t.same((await send('GET', '/notes')).body, stored)
    await send('DELETE', '/notes/1')
    t.match((await post({ text: 'a' }, 'one')).body, { id: 1, text: 'a' }, 'the time of a deleted record is that of the retry')

    const tickets = { name: 'tickets', schema: Type.Object({ id: Type.Integer(), at: Type.Optional(at) }), idSource: 'client' as const, seed: [{ id: 5, at: time(0) }] }
    const setTime = async ({ body }: FastifyRequest) => { Object.assign(Object(body), { at: time(1) }) }
    const clients = await serve(t, address(), { ...tickets, routes: { create: { preHandler: setTime } } })
    for (let n = 0; n < 2; n++) t.same((await clients.send('POST', '/tickets', { id: 5 }, { 'idempotency-key': 'k' })).body, { id: 5, at: time(1) }, 'not the first record with this id')
  })

  t.test('PATCH sets a required field to null if it can be null, also in nested objects', async t => {
    const schema = Type.Object({
      id: Type.Integer(),
      owner: Type.Union([Type.String(), Type.Null()]),
      place: Type.Object({ city: Type.String(), floor: Type.Ref('#/$defs/Floor'), room: Type.Optional(Type.String()) })
    }, { $defs: { Floor: Type.Unsafe<number | null>({ type: ['integer', 'null'] }) } })
    const { send } = await serve(t, address(), { name: 'desks', schema, seed: [{ id: 1, owner: 'ada', place: { city: 'Rome', floor: 2, room: 'a' } }] })
    t.same((await send('PATCH', '/desks/1', { owner: null, place: { floor: null, room: null } })).body, { id: 1, owner: null, place: { city: 'Rome', floor: null } })
    t.same((await send('PATCH', '/desks/1', { place: { city: null } })).body, invalidBody('body', ['/place/city', 'is required']))
    t.same((await send('PATCH', '/desks/1', { owner: 'grace', place: { floor: 3 } })).body, { id: 1, owner: 'grace', place: { city: 'Rome', floor: 3 } })
    t.same((await send('GET', '/desks/1')).body, { id: 1, owner: 'grace', place: { city: 'Rome', floor: 3 } })

    const Coupon = Type.Object({ id: Type.Integer(), coupon: Type.Optional(Type.String()) }, { if: { required: ['coupon'], properties: { coupon: { minLength: 1 } } }, then: true })
    const sales = await serve(t, address(), { name: 'sales', schema: Coupon, seed: [{ id: 1, coupon: 'x' }] })
    t.same((await sales.send('PATCH', '/sales/1', { coupon: null })).body, { id: 1 }, 'a condition requires nothing')
  })

  t.test('writeOnly fields are not in a long list', async t => {
    const { app, send } = await serve(t, address(), accounts)
    const store = app.getDecorator<Stores<{ accounts: { id: number, [field: string]: unknown } }>>('stores').accounts
    const record = { name: '"\\"}]愛{[\\', password: 'p'.repeat(2000), role: '🫖'.repeat(2000), place: { city: '\\\\', area: ']' } }
    await Promise.all(Array.from({ length: 600 }, () => store.append(record)))
    for (const url of ['/accounts', '/accounts?limit=601']) {
      const { body } = await send('GET', url)
      t.equal(body.length, 601)
      const { password, ...visible } = record
      t.ok(body.slice(1).every((found: object, n: number) => JSON.stringify(found) === JSON.stringify({ id: n + 2, ...visible })))
    }
    t.equal((await send('HEAD', '/accounts')).status, 200)
  })

  if (engine === 'memory') return

  t.test('a new optional field adds its column, and both releases run side by side', async t => {
    const url = address()
    const grown = { ...orders, schema: Type.Object({ ...Order.properties, colour: Type.Optional(Type.String()), weight: Type.Optional(Type.Number({ minimum: 0 })) }) }
    const old = await serve(t, url, orders)
    if (engine === 'SQLite') await old.app.close()
    const grew = await serve(t, url, grown)
    t.same((await grew.send('PATCH', '/orders/1', { colour: 'red', weight: 1.5 })).body, { id: 1, item_id: 1, quantity: 2, colour: 'red', weight: 1.5 })
    if (engine === 'SQLite') await grew.app.close()
    const again = engine === 'SQLite' ? await serve(t, url, orders) : old
    t.same((await again.send('PATCH', '/orders/1', { quantity: 7 })).body, { id: 1, item_id: 1, quantity: 7 })
    t.equal((await again.send('POST', '/orders', { item_id: 1, quantity: 1 })).status, 201)
    if (engine === 'SQLite') await again.app.close()
    const { send } = engine === 'SQLite' ? await serve(t, url, grown) : grew
    t.same((await send('GET', '/orders/1')).body, { id: 1, item_id: 1, quantity: 7, colour: 'red', weight: 1.5 })
  })

  t.test('a field that a release hides, or shows again, changes the ETags', async t => {
    const url = address()
    const definition = (options: object) => ({ name: 'notes', schema: Type.Object({ id: Type.Integer(), text: Type.Optional(Type.String(options)) }), seed: [{ id: 1, text: 'x' }] })
    const known = new Map<string, unknown>()
    for (const options of [{}, { writeOnly: true }, {}]) {
      const { app, send } = await serve(t, url, definition(options))
      for (const path of ['/notes', '/notes?limit=1', '/notes/1']) {
        const { body, etag } = await send('GET', path)
        t.equal((await send('GET', path, undefined, { 'if-none-match': etag })).status, 304)
        t.same(known.get(`${path} ${etag}`) ?? body, body, 'an ETag has one body')
        known.set(`${path} ${etag}`, body)
        if (path === '/notes/1') t.same((await send('PATCH', path, {}, { 'if-match': etag })).etag, etag)
      }
      await app.close()
    }
  })

  t.test('a difference between the records and the schema that needs a decision ends the start', async t => {
    const url = address()
    await (await serve(t, url, orders)).app.close()
    const other = Type.Object({ id: Type.Integer(), item_id: Type.Optional(Type.Integer()), quantity: Type.String(), price: Type.Number() })
    await t.rejects(serve(t, url, { ...orders, schema: other, seed: [] }), {
      code: 'ERR_STARTUP',
      message: /^The schema does not fit the records in the option store\. Nothing was changed\.\n {2}orders\.quantity has values of the type integer, but the schema needs string\. .*\n {2}orders\.price is required, but existing records do not have it\. .*$/
    })
  })
})

test('a collection whose clients choose the ids can have writeOnly fields', async t => {
  const { send } = await serve(t, undefined, { name: 'keys', schema: Type.Object({ id: Type.Integer(), pin: Type.String({ writeOnly: true }) }), idSource: 'client' })
  t.same((await send('POST', '/keys', { id: 5, pin: '1234' })).body, { id: 5 })
  t.same((await send('PUT', '/keys/5', { pin: '5678' })).body, { id: 5 })
  t.equal((await send('POST', '/keys', { id: 6 })).status, 400)
})

test('readOnly, writeOnly and default work at every place of a schema', async t => {
  const secret = { type: 'string', writeOnly: true }
  const schema = {
    type: 'object',
    required: ['id', 'size'],
    properties: {
      id: { type: 'integer' },
      size: { $ref: '#/$defs/Size' },
      tree: { $ref: '#/$defs/Node' },
      either: { anyOf: [{ type: 'object', required: ['kind'], properties: { kind: { const: 'a' }, a: secret, b: { default: 1 } } }, { type: 'null' }] },
      both: { allOf: [{ properties: { c: { default: { d: 2 } } } }, { properties: { e: secret } }] },
      map: { type: 'object', additionalProperties: { type: 'object', properties: { s: secret, f: { default: 3 } } }, patternProperties: { '^x': { type: 'object', properties: { made: { readOnly: true } } } } },
      pair: { type: 'array', prefixItems: [{ type: 'object', properties: { s: secret } }], items: { type: 'object', properties: { made: { readOnly: true } } } }
    },
    $defs: { Size: { type: 'integer', default: 5 }, Node: { type: 'object', required: ['label'], properties: { label: { type: 'string' }, s: secret, made: { type: 'string', readOnly: true }, children: { type: 'array', items: { $ref: '#/$defs/Node' } }, parent: { $ref: '#/$defs/Node' } } } }
  }
  const { send } = await serve(t, 'memory', { name: 'things', schema: schema as never })
  const value = {
    tree: { label: 'a', s: 's', made: 'x', children: [{ label: 'b', s: 's', made: 'x' }], parent: { label: 'c', s: 's' } },
    either: { kind: 'a', a: 's' },
    both: { e: 's' },
    map: { one: { s: 's' }, x: { s: 's', made: 1 } },
    pair: [{ s: 's', made: 2 }, { s: 's', made: 2 }]
  }
  const visible = {
    id: 1,
    size: 5,
    tree: { label: 'a', children: [{ label: 'b' }], parent: { label: 'c' } },
    either: { kind: 'a' },
    both: { c: { d: 2 } },
    map: { one: { f: 3 }, x: { s: 's' } },
    pair: [{ made: 2 }, { s: 's' }]
  }
  t.same((await send('POST', '/things', value)).body, visible)
  t.same((await send('PUT', '/things/1', { either: null })).body, { id: 1, size: 5, either: null })
  const { schemas } = (await send('GET', '/openapi.json')).body.components
  const { tree, either, both, map } = schemas.ThingPatch.properties
  t.same(tree.anyOf[0].properties.label, { type: 'string' })
  t.same([tree.anyOf[0].required, tree.anyOf[0].properties.parent], [undefined, { anyOf: [{ type: 'object' }, { type: 'null' }] }])
  t.same(either.anyOf[0].anyOf[0].required, undefined)
  t.equal(both.anyOf[0].allOf.length, 2)
  t.same(map.anyOf[0].additionalProperties.anyOf[1], { type: 'null' })
})

test('a field is readOnly, writeOnly or has a default if one of the schemas for its value says so', async t => {
  const secret = { type: 'string', writeOnly: true }
  const made = { type: 'string', readOnly: true }
  const inMaps = { type: 'object', patternProperties: { '^s': secret, '^m': made }, additionalProperties: secret }
  const schema = {
    type: 'object',
    required: ['id'],
    properties: {
      id: { type: 'integer' },
      chain: { $ref: '#/$defs/chain' },
      all: { allOf: [{ $ref: '#/$defs/secret' }] },
      any: { anyOf: [secret, { type: 'null' }] },
      made: { allOf: [{ $ref: '#/$defs/made' }] },
      map: inMaps,
      rest: { type: 'object', properties: { a: { type: 'integer' } }, unevaluatedProperties: secret },
      dependent: { type: 'object', dependentSchemas: { a: { properties: { a: secret } } }, if: { properties: { b: secret } }, then: true },
      found: { type: 'array', contains: { properties: { s: secret } } },
      size: { $ref: '#/$defs/sizeChain' },
      sizes: { type: 'object', properties: { valueOf: { default: 1 }, toString: { allOf: [{ default: 2 }] } } },
      kept: { type: 'object', properties: { constructor: made } },
      node: Type.Recursive(This => Type.Object({ pin: Type.Optional(Type.Unsafe(secret)), children: Type.Optional(Type.Array(This)) }), { $id: 'Node' }),
      same: { $ref: '#/properties/chain' },
      part: { type: 'object', allOf: [{ properties: { city: { type: 'string' } }, patternProperties: { '^x-': { type: 'string' } } }], unevaluatedProperties: made },
      kinds: { type: 'object', oneOf: [{ required: ['a'], properties: { a: {} }, patternProperties: { '^s': {} }, additionalProperties: false }, { required: ['b'], properties: { b: {} } }], unevaluatedProperties: secret }
    },
    $defs: { secret, made, chain: { $ref: '#/$defs/secret' }, size: { type: 'integer', default: 5 }, sizeChain: { $ref: '#/$defs/size' } }
  }
  const { app, send } = await serve(t, 'memory', { name: 'things', schema: schema as never })
  const value = {
    chain: 's',
    all: 's',
    any: 's',
    made: 'client',
    map: { s1: 's', m1: 'client', x: 's' },
    rest: { a: 1, b: 's' },
    dependent: { a: 's', b: 's', c: 1 },
    found: [{ s: 's' }],
    sizes: {},
    kept: { constructor: 'client' },
    node: { pin: 's', children: [{ pin: 's', children: [] }] },
    same: 's',
    part: { city: 'Rome', 'x-a': 'a', rest: 'client' },
    kinds: { b: 1, s: 's' }
  }
  const visible = { map: {}, rest: { a: 1 }, dependent: { c: 1 }, found: [{}], size: 5, sizes: { valueOf: 1, toString: 2 }, kept: {}, node: { children: [{ children: [] }] }, part: { city: 'Rome', 'x-a': 'a' }, kinds: { b: 1 } }
  t.same((await send('POST', '/things', value)).body, { id: 1, ...visible })
  const store = app.getDecorator<Stores<{ things: { id: number, made?: string, map?: object } }>>('stores').things
  await store.change(1, current => ({ ...JSON.parse(current), made: 'stored', map: { m1: 'stored' }, kept: { constructor: 'stored' } }))
  const { made: _made, kept: _kept, ...put } = value
  t.same((await send('PUT', '/things/1', { ...put, kept: {} })).body, { id: 1, ...visible, made: 'stored', map: { m1: 'stored' }, kept: { constructor: 'stored' } })
  t.match(JSON.parse(String(await store.first(1))), { chain: 's', any: 's', map: { s1: 's', m1: 'stored', x: 's' } })
  const { schemas } = (await send('GET', '/openapi.json')).body.components
  t.same(Object.keys(schemas.Thing.properties), ['id', 'made', 'map', 'rest', 'dependent', 'found', 'size', 'sizes', 'kept', 'node', 'part', 'kinds'])
  t.notOk('made' in schemas.NewThing.properties)
})

test('annotations of OpenAPI are in the document, and do not change what is valid', async t => {
  const annotations = { 'x-unit': 'pieces', example: 5, externalDocs: { url: 'https://example.com' }, deprecated: true }
  const schema = Type.Object({ id: Type.Integer(), size: Type.Integer(annotations), shape: Type.Optional(Type.Unsafe({ oneOf: [{ type: 'object', required: ['kind'], properties: { kind: { const: 'a' } } }], discriminator: { propertyName: 'kind' } })) }, { 'x-own': true })
  const { send } = await serve(t, undefined, { name: 'things', schema })
  t.equal((await send('POST', '/things', { size: 1, shape: { kind: 'a' } })).status, 201)
  t.equal((await send('POST', '/things', { size: 'x' })).status, 400)
  const { Thing } = (await send('GET', '/openapi.json')).body.components.schemas
  t.match(Thing, { 'x-own': true, properties: { size: annotations, shape: { discriminator: { propertyName: 'kind' } } } })
})

test('the prefix of a collection is not in its operation ids and tags, unless they would be the same', async t => {
  const app = host(t)
  await app.register(docs)
  const schema = Type.Object({ id: Type.Integer() })
  app.register(collection, { prefix: '/order-lines', name: 'order_lines', schema, routes: { get: { schema: { operationId: 'readLine', tags: ['mine'] } } } })
  app.register(collection, { prefix: '/v2/order_lines', name: 'order_lines', schema, routes: { get: { schema: { operationId: 'readLine2', tags: ['mine'] } } } })
  const { paths } = (await app.inject('/openapi.json')).json()
  const named = (path: string) => [paths[path].get.operationId, paths[path].get.tags]
  t.same(named('/order-lines'), ['listOrderLines', ['order_lines']])
  t.same(named('/v2/order_lines'), ['listOrderLinesV2', ['order_lines (/v2)']])
  t.same(named('/order-lines/{id}'), ['readLine', ['mine']])
  t.same(named('/v2/order_lines/{id}'), ['readLine2', ['mine']])
})

test('the schema of a collection has the singular of its name', async t => {
  const singulars = 'orders:Order categories:Category movies:Movie sizes:Size prizes:Prize boxes:Box addresses:Address address:Address houses:House statuses:Status cases:Case causes:Cause uses:Use prices:Price series:Series branches:Branch caches:Cache wishes:Wish aliases:Alias order_lines:OrderLine sheep:Sheep'
  for (const [name = '', singular] of singulars.split(' ').map(pair => pair.split(':'))) {
    t.equal(checkDefinition({ name, schema: Type.Object({ id: Type.Integer() }) }).words.One, singular)
  }
})

test('the documents of a host are valid in OpenAPI 3.0, OpenAPI 3.1 and Swagger 2.0', async t => {
  const info = { title: 'Shop', version: '1.0.0' }
  const a = { type: 'object', properties: { a: { type: 'string', examples: ['x'] } } }
  const things = {
    name: 'things',
    filters: ['above', 'only'],
    schema: {
      type: 'object',
      title: 'Thing',
      required: ['id', 'above'],
      $defs: { Part: { type: 'number', exclusiveMinimum: 0 } },
      properties: {
        id: { type: 'integer' },
        above: { type: 'number', exclusiveMinimum: 0 },
        atLeast: { type: 'integer', minimum: 5, exclusiveMinimum: 1 },
        below: { type: 'integer', exclusiveMaximum: 9 },
        only: { type: 'string', const: 'a' },
        state: { anyOf: [{ type: 'string', const: 'a' }, { type: 'string', const: 'b' }] },
        mixed: { anyOf: [{ type: 'string' }, { type: 'integer' }] },
        maybe: { anyOf: [{ type: 'string' }, { type: 'null' }] },
        nullable: { type: 'string', nullable: true },
        types: { type: ['string', 'null'] },
        either: { oneOf: [{ type: 'object', required: ['k'], properties: { k: { const: 'a' } } }], discriminator: { propertyName: 'k' } },
        empty: { ...a, required: [] },
        any: true,
        part: { $ref: '#/$defs/Part' },
        pair: { type: 'array', prefixItems: [{ type: 'string' }], items: false, minItems: 1 },
        some: { type: 'array', items: { type: 'string' }, contains: { const: 'a' }, $comment: 'x' },
        names: { type: 'object', propertyNames: { minLength: 1 }, patternProperties: { '^a': { type: 'string' } } },
        closed: { ...a, unevaluatedProperties: false, dependentRequired: { a: ['a'] }, if: { required: ['a'] }, then: { required: ['a'] } },
        not: { type: 'string', not: { enum: ['x'] }, deprecated: true, contentEncoding: 'base64', example: 'a', 'x-own': 1 }
      }
    }
  }
  for (const options of [{ openapi: { info } }, { openapi: { openapi: '3.1.0', info } }, { swagger: { info } }]) {
    const app = host(t)
    await app.register(swagger, options)
    for (const definition of [orders, accounts, things] as Definition[]) app.register(collection, { ...definition, prefix: `/${definition.name}` })
    await app.ready()
    const document = JSON.parse(JSON.stringify(app.swagger()))
    t.match(await new Validator().validate(document), { valid: true })
    const schemas: Record<string, TObject> = document.definitions ?? document.components.schemas
    const { properties } = Object.values(schemas).find(({ title, required }) => title === 'Thing' && required?.includes('id')) ?? {}
    if (document.openapi === '3.1.0') {
      t.match(properties, { above: { exclusiveMinimum: 0 }, empty: { required: [] }, any: true, some: { contains: {} } })
    } else {
      t.match(properties, { above: { minimum: 0, exclusiveMinimum: true }, atLeast: { minimum: 5, exclusiveMinimum: undefined }, below: { maximum: 9, exclusiveMaximum: true }, only: { enum: ['a'] } })
      t.match(properties, { empty: { required: undefined }, any: {}, pair: { items: {}, prefixItems: undefined }, some: { contains: undefined } })
    }
    if ('swagger' in options) t.match(properties, { state: { type: 'string', enum: ['a', 'b'] }, mixed: { anyOf: undefined }, maybe: { type: 'string', 'x-nullable': true }, either: { oneOf: undefined, discriminator: undefined } })
  }
})

test('client ids with defaults, a readOnly id and unions with a title work', async t => {
  const shape = { title: 'Shape', description: 'A shape', oneOf: [{ type: 'object', properties: { r: { type: 'number' } } }, { type: 'string' }] }
  const shapes = { name: 'shapes', idSource: 'client' as const, schema: { type: 'object', required: ['id', 'size'], properties: { id: { type: 'integer' }, size: { type: 'integer', default: 3 }, shape } } }
  const marks = { name: 'marks', schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer', readOnly: true }, text: { type: 'string' } } } }
  const { send } = await serve(t, undefined, ...[shapes, marks] as object[] as Definition<TObject>[])
  t.same((await send('POST', '/shapes', { id: 5 })).body, { id: 5, size: 3 })
  t.same((await send('POST', '/marks', { id: 9, text: 'x' })).body, { id: 1, text: 'x' })
  const { schemas } = (await send('GET', '/openapi.json')).body.components
  t.match(schemas.ShapePatch.properties.shape.anyOf[0], { title: 'Shape', description: 'A shape' })
})

test('a hook or the store of a host sets a required readOnly field', async t => {
  const schema = Type.Object({ id: Type.Integer(), name: Type.String(), at: Type.String({ readOnly: true }), key: Type.Optional(Type.String({ writeOnly: true })) })
  const notes = defineCollection({ name: 'notes', schema })
  const plain = await serve(t, undefined, notes)
  t.same((await plain.send('POST', '/notes', { name: 'a', at: 'x' })).body, invalidBody('body', ['/at', 'is required']))

  const stamp = async ({ body }: FastifyRequest) => { Object.assign(Object(body), { at: 'now' }) }
  const hooked = await serve(t, undefined, { ...notes, routes: { create: { preHandler: stamp }, update: { preHandler: stamp } } })
  t.same((await hooked.send('POST', '/notes', { name: 'a', at: 'x', key: 'k' })).body, { id: 1, name: 'a', at: 'now' })

  const { append, ...others } = memory<Static<typeof schema>>({ schema, seed: [] })
  const { schema: _schema, ...store } = { ...others, append: (record: object) => append({ name: '', at: 'stored', ...record }), select: () => ({ list: Readable.from(['[', '{"id":1,"key":"k', '","name":"b","at":"x"},{"id":2', ',"key":"","name":"","at":""}', ']']) }) }
  const stored = await serve(t, undefined, { ...notes, store })
  t.same((await stored.send('POST', '/notes', { name: 'a', at: 'x', key: 'k' })).body, { id: 1, name: 'a', at: 'stored' })
  t.same((await stored.send('PUT', '/notes/1', { name: 'b', at: 'x' })).body, { id: 1, name: 'b', at: 'stored' })
  t.same((await stored.app.inject('/notes')).body, '[{"id":1,"name":"b","at":"x"},{"id":2,"name":"","at":""}]')
})

test('schemas of hosts whose defaults refer to other parts, are null or need a hook are accepted', async t => {
  const Money = Type.Object({ currency: Type.String({ default: 'EUR' }) }, { $id: 'Money', default: {} })
  const fields = {
    tree: Type.Recursive(This => Type.Object({ children: Type.Array(This, { default: [] }) }), { $id: 'Tree', default: {} }),
    a: Type.String({ minLength: 1 }),
    b: Type.Unsafe<string>({ $ref: '#/properties/a', default: 'x' }),
    price: Type.Object({ total: Money }, { default: {} }),
    none: Type.Union([Type.String(), Type.Null()], { default: null }),
    made: Type.Object({ by: Type.String({ readOnly: true }) }, { default: {} }),
    tags: Type.Unsafe<object>({ anyOf: [{ type: 'object', required: ['by'], properties: { by: { type: 'string', readOnly: true } } }, { type: 'null' }], default: {} }),
    secrets: Type.Optional(Type.Array(Type.String({ writeOnly: true }), { writeOnly: true }))
  }
  const { send } = await serve(t, 'memory', { name: 'things', schema: Type.Object({ id: Type.Integer(), ...fields }, { default: {} }), routes: { create: { preHandler: async ({ body }) => { for (const part of ['made', 'tags']) Object.assign(Object(body)[part], { by: 'me' }) } } } })
  t.same((await send('POST', '/things', { a: 'a', secrets: ['s'] })).body, { id: 1, tree: { children: [] }, a: 'a', b: 'x', price: { total: { currency: 'EUR' } }, none: null, made: { by: 'me' }, tags: { by: 'me' } })
})

test('a wrong definition is one error at startup', async t => {
  const endless = { type: 'object', properties: { child: { $ref: '#/$defs/node', default: {} } } }
  const doubling = Object.fromEntries(Array.from({ length: 18 }, (_, n) => {
    const child = { $ref: `#/$defs/n${n + 1}`, default: {} }
    return [`n${n}`, n < 17 ? { type: 'object', properties: { a: child, b: child } } : {}]
  }))
  const schema = Order
  for (const [definition, message] of [
    [{ name: 'Orders', schema }, 'Invalid collection Orders: must have a name of at most 48 lower case letters, digits and _ that starts with a letter.'],
    [{ name: 'last_ids', schema }, 'Invalid collection last_ids: has a name that is reserved.'],
    [{ name: 'orders' }, 'collection: schema is required'],
    [{ schema }, 'collection: name is required'],
    [{ name: 'orders', schema: Type.String() }, 'schema must be a TypeBox object'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer({ readOnly: true }) }), idSource: 'client' }, 'schema must not have a readOnly id, because clients choose it'],
    [{ name: 'orders', schema: Type.Object({ id: Type.String() }) }, 'schema must have a required integer id'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Optional(Type.Integer()) }) }, 'schema must have a required integer id'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer({ nullable: true }) }) }, 'schema must have a required integer id'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), at: Type.Date() }) }, 'schema is not valid'],
    [{ name: 'orders', schema: { ...Order, maximumm: 1 } }, 'schema is not valid: strict mode: unknown keyword: "maximumm"'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), x: Type.String({ format: 'phone' }) }) }, 'unknown format "phone"'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), position: Type.String() }) }, 'schema/properties/position cannot be stored: '],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer() }, { additionalProperties: true }) }, 'schema must not have additionalProperties'],
    [{ name: 'orders', schema, operations: ['get', 'steal'] }, 'operations'],
    [{ name: 'orders', schema, operations: ['get', 'get'] }, 'operations must not have duplicate items'],
    [{ name: 'sqlite_orders', schema }, 'has a name that is reserved'],
    [{ name: 'orders', schema, idSource: 'nobody' }, 'idSource'],
    [{ name: 'orders', schema, renames: { note: 'quantity', amount: 'size', count: 'quantity', number: 'quantity' } },
      'Invalid collection orders: renames/note is still a field of the schema. renames/amount must be the name of a field of the schema. renames/count is the new name of several fields. renames/number is the new name of several fields.'],
    [{ name: 'orders', schema: { ...Order, properties: { ...Order.properties, id: Type.Integer({ allOf: [{ readOnly: true }] }) } }, idSource: 'client' }, 'must not have a readOnly id, because clients choose it'],
    [{ name: 'orders', schema, seed: [{ id: 1, item_id: 1 }] }, '/orders/0/quantity is required'],
    ...[
      [{ type: 'array', items: { type: 'string', writeOnly: true } }, 'schema/properties/x must not have writeOnly items, because only fields can be writeOnly.'],
      [{ type: 'array', contains: { allOf: [{ readOnly: true }] } }, 'schema/properties/x must not have readOnly items'],
      [{ type: 'string', enum: ['open'], default: 'opne' }, 'schema/properties/x/default must be one of open.'],
      [{ type: 'object', properties: { 'a/b': { type: 'integer', minimum: 1, default: 0 } } }, 'schema/properties/x/properties/a~1b/default must be at least 1.'],
      [{ type: 'object', properties: { n: { $ref: '#/$defs/node' } } }, 'schema/$defs/node must not add more than 65536 characters to an empty object with its defaults.', { node: endless }],
      [{ type: 'object', properties: { n: { $ref: '#/$defs/n0' } } }, 'schema/$defs/n0 must not add more than 65536 characters', doubling]
    ].map(([x, message, $defs = {}]) => [{ name: 'orders', schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, x }, $defs } }, message]),
    [{ name: 'orders', schema, routes: { remove: {} } }, 'routes']
  ] as [Definition, string][]) {
    const app = host(t)
    app.register(collection, definition)
    await t.rejects(async () => app.ready(), { code: 'ERR_STARTUP', message }, message)
  }
})

test('a host adds a field to items, hides an operation, and protects another', async t => {
  const schema = Type.Object({ ...items.schema.properties, colour: Type.Optional(Type.String()) }, { title: 'Item' })
  const forbid = async () => { throw Object.assign(new Error('Only administrators can do this'), { statusCode: 403 }) }
  const { send } = await serve(t, undefined, { ...items, schema, operations: ['list', 'create', 'delete'], routes: { delete: { onRequest: forbid }, list: { schema: { summary: 'All of them' } } } })
  t.same((await send('POST', '/items', { id: 3, name: 'Lamp', price: 1, colour: 'red' })).body, { id: 3, name: 'Lamp', price: 1, colour: 'red' })
  t.equal((await send('GET', '/items/3')).status, 404)
  t.same((await send('DELETE', '/items/3')).body, { detail: 'Only administrators can do this' })
  const { paths } = (await send('GET', '/openapi.json')).body
  t.same(Object.keys(paths['/items/{item_id}']), ['delete'])
  t.equal(paths['/items'].get.summary, 'All of them')
})

test('a collection that can only be read, and one with upgrades', async t => {
  const { send } = await serve(t, 'memory', { ...orders, operations: ['list', 'get'], renames: { amount: 'quantity' }, upgrades: ['select 1', { sqlite: 'select 1', postgres: 'select 1' }] })
  t.equal((await send('POST', '/orders', { item_id: 1, quantity: 1 })).status, 404)
  t.same(Object.keys((await send('GET', '/openapi.json')).body.components.schemas).sort(), ['ErrorBody', 'InvalidRequest', 'Order', 'Problem'])
  await t.rejects(serve(t, 'memory', orders, { ...orders, prefix: '/more', schema: Type.Object({ id: Type.Integer() }), seed: [] } as Definition), {
    code: 'ERR_STARTUP', message: 'The collection orders is registered with two different schemas.'
  })
})

test('an array has many problems, and only the first one if it is large', async t => {
  const schema = Type.Object({ id: Type.Integer(), tags: Type.Array(Type.Union([Type.String(), Type.Object({ a: Type.Literal(1) })])) })
  const { send } = await serve(t, 'memory', { name: 'notes', schema })
  const { status, body } = await send('POST', '/notes', { tags: Array.from({ length: 1000 }, () => ({})) })
  t.equal(status, 400)
  t.ok(body.errors.length > 50 && body.errors.length <= 300)
  t.same((await send('POST', '/notes', { tags: Array.from({ length: 100_000 }, () => ({})) })).body, invalidBody('body', ['/tags/0', 'must match one of the allowed schemas']))
})

test('a field that needs another field', async t => {
  const schema = { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, card: { type: 'string' }, expires: { type: 'string', format: 'date' } }, dependentRequired: { card: ['expires'] } }
  const { send } = await serve(t, 'memory', { name: 'payments', schema: schema as never })
  t.same((await send('POST', '/payments', { card: '1' })).body, invalidBody('body', ['', 'needs expires']))
  t.equal((await send('POST', '/payments', { card: '1', expires: '2026-11-17' })).status, 201)
})

test('a store that returns null, or of each request, or without optional methods', async t => {
  const { version, ...minimal } = memory({ schema: Order, seed: orders.seed ?? [] })
  const store: Store<{ id: number, item_id: number, quantity: number, note?: string }> = { ...minimal, first: async id => await minimal.first(id) ?? null }
  const { send } = await serve(t, undefined, { ...orders, store, operations: ['list', 'get', 'create', 'delete'] })
  t.equal((await send('GET', '/orders/1')).status, 200)
  t.equal((await send('GET', '/orders/99')).status, 404)
  t.equal((await send('GET', '/orders')).etag, 'undefined')

  const tenants = new Map(['a', 'b'].map(tenant => [tenant, memory({ schema: Order, seed: [] })]))
  const shop = await serve(t, undefined, {
    ...orders,
    async store ({ headers }) {
      return tenants.get(String(headers.tenant)) ?? Promise.reject(Object.assign(new Error('There is no such tenant'), { statusCode: 404 }))
    }
  })
  t.equal((await shop.send('POST', '/orders', { item_id: 1, quantity: 1 }, { tenant: 'a' })).status, 201)
  t.equal((await shop.send('PATCH', '/orders/1', { quantity: 2 }, { tenant: 'a' })).body.quantity, 2)
  t.equal((await shop.send('GET', '/orders/1', undefined, { tenant: 'b' })).status, 404)
  const unknown = await shop.send('GET', '/orders', undefined, { tenant: 'c' })
  t.same([unknown.status, unknown.body], [404, { detail: 'There is no such tenant' }])

  await t.rejects(serve(t, undefined, { ...orders, store: memory({ schema: Type.Object({ id: Type.Integer() }), seed: [] }) as never }), {
    message: 'The option store has a store of other records for the collection orders.'
  })
})

test('unknown fields of nested objects are removed if the schema forbids them', async t => {
  const strict = { additionalProperties: false }
  const Point = Type.Object({ x: Type.Integer() }, strict)
  const schema = Type.Object({
    id: Type.Integer(),
    tree: Type.Unsafe<object>({ $ref: '#/$defs/Tree' }),
    pair: Type.Optional(Type.Tuple([Point, Type.Object({})])),
    named: Type.Optional(Type.Unsafe<object>({ type: 'object', patternProperties: { '^p': Point }, additionalProperties: false })),
    others: Type.Optional(Type.Record(Type.String({ pattern: '.' }), Point)),
    either: Type.Optional(Type.Union([Point, Type.Object({ y: Type.Integer() }, strict)]))
  }, { $defs: { Tree: { type: 'object', required: ['n'], properties: { n: { type: 'integer' }, children: { type: 'array', items: { $ref: '#/$defs/Tree' } } }, ...strict } } })
  const { send } = await serve(t, undefined, { name: 'trees', schema })
  const x = { x: 1, z: 2 }
  const sent = { tree: { n: 1, m: 2, children: [{ n: 3, children: [], valueOf: 1 }] }, pair: [x, x], named: { p: x, r: x }, others: { a: x } }
  const stored = { tree: { n: 1, children: [{ n: 3, children: [] }] }, pair: [{ x: 1 }, x], named: { p: { x: 1 } }, others: { a: { x: 1 } } }
  t.same((await send('POST', '/trees', sent)).body, { id: 1, ...stored })
  t.same((await send('PUT', '/trees/1', { tree: { n: 5, m: 6 }, either: { y: 1 } })).body, { id: 1, tree: { n: 5 }, either: { y: 1 } })
  t.same((await send('PATCH', '/trees/1', { ...sent, either: null })).body, { id: 1, ...stored })
  for (const method of ['POST', 'PUT', 'PATCH'] as const) {
    t.equal((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: { n: 1 }, either: { ...x, y: 1 } })).status, 400, 'the variants of a union stay apart')
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: { n: '1', m: 2 } })).body, invalidBody('body', ['/tree/n', 'must be an integer']))
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: 5 })).body, invalidBody('body', ['/tree', 'must be an object']))
  }
  const all = await serve(t, undefined, { name: 'points', schema: Type.Object({ id: Type.Integer(), x: Type.Integer() }, strict) })
  t.same((await all.send('POST', '/points', { x: 1, y: 2 })).body, invalidBody('body', ['/y', 'is not a known field']))
})
