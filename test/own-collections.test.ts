import { AsyncResource } from 'node:async_hooks'
import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Type, type TObject } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import { test } from 'tap'
import { checkDefinition } from '../plugins/definition/definition.js'
import { collection, defineCollection, docs, items, memory, type Definition, type Store } from '../src/index.js'
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
    role: Type.String({ readOnly: true, default: 'guest' }),
    since: Type.Optional(Type.String({ readOnly: true })),
    place: Type.Optional(Type.Object({ city: Type.String({ default: 'Rome' }), area: Type.String({ default: 'centre' }) }))
  }, { additionalProperties: false }),
  seed: [{ id: 1, name: 'ada', role: 'guest', since: 'then' }]
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

  t.test('readOnly fields of a request are ignored, and defaults are added to new records', async t => {
    const { send } = await serve(t, address(), accounts)
    const first = accounts.seed?.[0]
    t.same((await send('GET', '/accounts')).body, [first])
    const posted = await send('POST', '/accounts', { name: 'grace', since: 5, role: 'admin', place: {} })
    const second = { id: 2, name: 'grace', role: 'guest', place: { city: 'Rome', area: 'centre' } }
    t.same([posted.status, posted.body, posted.headers.location], [201, second, './accounts/2'])
    t.same((await send('PATCH', '/accounts/1', { since: null, role: 'x', name: 'Ada' })).body, { ...first, name: 'Ada' })
    const put = await send('PUT', '/accounts/1', { name: 'ada', since: 'now', place: {} })
    t.same(put.body, { id: 1, name: 'ada', role: 'guest', since: 'then', place: { city: 'Rome', area: 'centre' } })
    const patched = await send('PATCH', '/accounts/1', { place: { area: 'north' } })
    t.same(patched.body.place, { city: 'Rome', area: 'north' }, 'PATCH adds no defaults')

    const { schemas } = (await send('GET', '/openapi.json')).body.components
    t.same(Object.keys(schemas.Account.properties), ['id', 'name', 'role', 'since', 'place'])
    t.same(Object.keys(schemas.NewAccount.properties), ['name', 'place'])
    t.same([schemas.Account.required, schemas.NewAccount.required], [['id', 'name', 'role'], ['name']])
    t.same([schemas.Account.examples, schemas.NewAccount.examples], [[first], [{ name: 'ada' }]])
  })

  t.test('no change of a large record is lost', async t => {
    const Note = Type.Object({ id: Type.Integer(), text: Type.String(), words: Type.Record(Type.String(), Type.Integer()) })
    const { send } = await serve(t, address(), defineCollection({ name: 'notes', schema: Note }))
    await send('POST', '/notes', { text: 'x'.repeat(300_000), words: {} })
    const patch = (words: object, headers = {}) => send('PATCH', '/notes/1', { words }, headers)
    const got = await send('GET', '/notes/1')
    const changed = await Promise.all(Array.from({ length: 9 }, (_, n) => patch({ [n]: n })))
    t.same(changed.map(({ status }) => status), Array(9).fill(200))
    t.equal((await patch({ a: 1 }, { 'if-match': got.etag })).status, 412)
    t.same((await patch({ a: 'x' })).body, invalidBody('body', ['/words/a', 'must be an integer']))
    const statuses = await Promise.all([patch({}), patch({}), patch({}), send('DELETE', '/notes/1')].map(async response => (await response).status))
    t.same(statuses.slice(1), [404, 404, 204])
  })

  t.test('PUT, PATCH and DELETE honour If-Match', async t => {
    const { send } = await serve(t, address(), orders)
    const { etag } = await send('GET', '/orders/1')
    const changes = [['PUT', { item_id: 1, quantity: 3 }], ['PATCH', { quantity: 3 }], ['DELETE', undefined]] as const
    for (const [method, body] of changes) {
      t.equal((await send(method, '/orders/1', body, { 'if-match': '"other"' })).status, 412, method)
      t.equal((await send(method, '/orders/99', body, { 'if-match': '*' })).status, 404)
    }
    let current = etag
    for (const [method, body] of changes) {
      const changed = await send(method, '/orders/1', body, { 'if-match': `"x", ${current}` })
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
    const again = await post({ text: 'a' }, 'one')
    t.same([again.status, again.body, again.headers.location], [201, first.body, first.headers.location])
    t.same((await post([{ text: 'b' }, { text: 'c' }], 'many')).body, many.body)
    for (const [body, key] of [[{ text: 'b' }, 'one'], [[{ text: 'b' }], 'many'], [[{ text: 'a' }], 'one']] as const) t.equal((await post(body, key)).status, 422)
    t.same((await send('GET', '/notes')).body, stored)
    await send('DELETE', '/notes/1')
    t.same((await post({ text: 'a' }, 'one')).body, first.body, 'also if it is deleted')

    const tickets = { name: 'tickets', schema: Type.Object({ id: Type.Integer(), at: Type.Optional(at) }), idSource: 'client' as const, seed: [{ id: 5, at: time(0) }] }
    const setTime = async ({ body }: FastifyRequest) => { Object.assign(Object(body), { at: time(1) }) }
    const clients = await serve(t, address(), { ...tickets, routes: { create: { preHandler: setTime } } })
    for (let n = 0; n < 2; n++) t.same((await clients.send('POST', '/tickets', { id: 5 }, { 'idempotency-key': 'k' })).body, { id: 5, at: time(1) }, 'not the first record with this id')
  })

  t.test('PATCH sets a required field to null if it can be null, also in nested objects', async t => {
    const schema = Type.Object({
      id: Type.Integer(),
      owner: Type.Union([Type.String(), Type.Null()]),
      place: Type.Object({ city: Type.String(), floor: Type.Unsafe<number | null>({ type: ['integer', 'null'] }), room: Type.Optional(Type.String()) })
    })
    const { send } = await serve(t, address(), { name: 'desks', schema, seed: [{ id: 1, owner: 'ada', place: { city: 'Rome', floor: 2, room: 'a' } }] })
    t.same((await send('PATCH', '/desks/1', { owner: null, place: { floor: null, room: null } })).body, { id: 1, owner: null, place: { city: 'Rome', floor: null } })
    t.same((await send('PATCH', '/desks/1', { place: { city: null } })).body, invalidBody('body', ['/place/city', 'is required']))
    t.same((await send('PATCH', '/desks/1', { owner: 'grace', place: { floor: 3 } })).body, { id: 1, owner: 'grace', place: { city: 'Rome', floor: 3 } })
    t.same((await send('GET', '/desks/1')).body, { id: 1, owner: 'grace', place: { city: 'Rome', floor: 3 } })

    const Coupon = Type.Object({ id: Type.Integer(), coupon: Type.Optional(Type.String()) }, { if: { required: ['coupon'], properties: { coupon: { minLength: 1 } } }, then: true })
    const sales = await serve(t, address(), { name: 'sales', schema: Coupon, seed: [{ id: 1, coupon: 'x' }] })
    t.same((await sales.send('PATCH', '/sales/1', { coupon: null })).body, { id: 1 }, 'a condition requires nothing')
  })

  if (engine === 'memory') return

  t.test('the release before keeps the fields of the newer one, also after a PATCH', async t => {
    const url = address()
    const { note, ...properties } = Order.properties
    const older = { ...orders, schema: Type.Object(properties) }
    await (await serve(t, url, older as typeof orders)).app.close()
    const newer = await serve(t, url, orders)
    await newer.send('PATCH', '/orders/1', { note: 'a' })
    await newer.app.close()
    const back = await serve(t, url, older as typeof orders)
    const patched = await back.send('PATCH', '/orders/1', { quantity: 9 })
    t.same([patched.status, patched.body], [200, { id: 1, item_id: 1, quantity: 9, note: 'a' }])
    t.same((await back.send('GET', '/orders/1')).body, patched.body)
  })

  t.test('a difference between the records and the schema that needs a decision ends the start', async t => {
    const url = address()
    await (await serve(t, url, orders)).app.close()
    const other = Type.Object({ id: Type.Integer(), item_id: Type.Optional(Type.Integer()), quantity: Type.String(), price: Type.Number() })
    await t.rejects(serve(t, url, { ...orders, schema: other, seed: [] }), {
      code: 'ERR_STARTUP',
      message: /^The schema does not fit the records in the option store\. Nothing was changed\.\n {2}orders: 3 records do not fit the schema, such as the one with id 1: price is required\n/
    })
  })
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

test('the document of a host is valid in OpenAPI 3.1', async t => {
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
  const app = host(t)
  await app.register(swagger, { openapi: { openapi: '3.1.0', info } })
  for (const definition of [orders, accounts, things] as Definition[]) {
    app.register(collection, { ...definition, prefix: `/${definition.name}` })
  }
  await app.ready()
  const document = JSON.parse(JSON.stringify(app.swagger()))
  t.match(await new Validator().validate(document), { valid: true })
  const schemas: TObject[] = Object.values(document.components.schemas)
  const { properties } = schemas.find(({ title, required }) => title === 'Thing' && required?.includes('id')) ?? {}
  t.match(properties, { above: { exclusiveMinimum: 0 }, empty: { required: [] }, any: true, some: { contains: {} } })
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

test('a hook of a host sets a required readOnly field', async t => {
  const schema = Type.Object({ id: Type.Integer(), name: Type.String(), at: Type.String({ readOnly: true }) })
  const notes = defineCollection({ name: 'notes', schema })
  const plain = await serve(t, undefined, notes)
  t.same((await plain.send('POST', '/notes', { name: 'a', at: 'x' })).body, invalidBody('body', ['/at', 'is required']))

  const stamp = async ({ body }: FastifyRequest) => { Object.assign(Object(body), { at: 'now' }) }
  const hooked = await serve(t, undefined, { ...notes, routes: { create: { preHandler: stamp }, update: { preHandler: stamp } } })
  t.same((await hooked.send('POST', '/notes', { name: 'a', at: 'x' })).body, { id: 1, name: 'a', at: 'now' })
})

test('schemas of hosts whose defaults refer to other parts or are null are accepted', async t => {
  const Money = Type.Object({ currency: Type.String({ default: 'EUR' }) }, { $id: 'Money', default: {} })
  const fields = {
    tree: Type.Recursive(This => Type.Object({ children: Type.Array(This, { default: [] }) }), { $id: 'Tree', default: {} }),
    a: Type.String({ minLength: 1 }),
    b: Type.Unsafe<string>({ $ref: '#/properties/a', default: 'x' }),
    price: Type.Object({ total: Money }, { default: {} }),
    none: Type.Union([Type.String(), Type.Null()], { default: null })
  }
  const { send } = await serve(t, 'memory', { name: 'things', schema: Type.Object({ id: Type.Integer(), ...fields }, { default: {} }) })
  t.same((await send('POST', '/things', { a: 'a' })).body, { id: 1, tree: { children: [] }, a: 'a', b: 'x', price: { total: { currency: 'EUR' } }, none: null })
})

test('a wrong definition is one error at startup', async t => {
  const schema = Order
  for (const [definition, message] of [
    [{ name: 'Orders', schema }, 'Invalid collection Orders: must have a name of at most 48 lower case letters, digits and _ that starts with a letter.'],
    [{ name: 'idempotency_keys', schema }, 'Invalid collection idempotency_keys: has a name that is reserved.'],
    [{ name: 'orders', schema: Type.String() }, 'schema must be a TypeBox object'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer({ readOnly: true }) }), idSource: 'client' }, 'schema must not have a readOnly id, because clients choose it'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Number() }) }, 'schema must have a required id that is an integer or a string'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Optional(Type.Integer()) }) }, 'schema must have a required id that is an integer or a string'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer({ nullable: true }) }) }, 'schema must have a required id that is an integer or a string'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), at: Type.Date() }) }, 'schema is not valid'],
    [{ name: 'orders', schema: { ...Order, maximumm: 1 } }, 'schema is not valid: strict mode: unknown keyword: "maximumm"'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), x: Type.String({ format: 'phone' }) }) }, 'unknown format "phone"'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), toString: Type.String() }) }, 'schema/properties/toString has a name that is reserved'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer() }, { additionalProperties: true }) }, 'schema must not have additionalProperties'],
    [{ name: 'sqlite_orders', schema }, 'has a name that is reserved'],
    [{ name: 'orders', schema, renames: { note: 'quantity', amount: 'size', count: 'quantity', number: 'quantity' } },
      'Invalid collection orders: renames/note is still a field of the schema. renames/amount must be the name of a field of the schema.'],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), pin: Type.String({ writeOnly: true }) }) }, 'schema/properties/pin must not be writeOnly, because a response is the stored record.'],
    [{ name: 'orders', schema, seed: [{ id: 1, item_id: 1 }] }, '/orders/0/quantity is required']
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

test('a collection that can only be read', async t => {
  const { send } = await serve(t, 'memory', { ...orders, operations: ['list', 'get'], renames: { amount: 'quantity', number: 'quantity' }, removes: ['old'] })
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
  t.equal(body.errors.length, 50)
  t.same((await send('POST', '/notes', { tags: Array.from({ length: 100_000 }, () => ({})) })).body, invalidBody('body', ['/tags/0', 'must match one of the allowed schemas']))
})

test('a field that needs another field', async t => {
  const schema = { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, card: { type: 'string' }, expires: { type: 'string', format: 'date' } }, dependentRequired: { card: ['expires'] } }
  const { send } = await serve(t, 'memory', { name: 'payments', schema: schema as never })
  t.same((await send('POST', '/payments', { card: '1' })).body, invalidBody('body', ['', 'needs expires']))
  t.equal((await send('POST', '/payments', { card: '1', expires: '2026-11-17' })).status, 201)
})

test('a store that returns null, or of each request', async t => {
  const own = memory({ schema: Order, seed: orders.seed ?? [] })
  const store: Store<{ id: number, item_id: number, quantity: number, note?: string }> = { ...own, first: async id => await own.first(id) ?? null }
  const { send } = await serve(t, undefined, { ...orders, store, operations: ['list', 'get', 'create', 'delete'] })
  t.equal((await send('GET', '/orders/1')).status, 200)
  t.equal((await send('GET', '/orders/99')).status, 404)

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
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: { n: '1', m: 2 } })).body, invalidBody('body', ['/tree/n', 'must be an integer']))
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: 5 })).body, invalidBody('body', ['/tree', 'must be an object']))
  }
  const all = await serve(t, undefined, { name: 'points', schema: Type.Object({ id: Type.Integer(), x: Type.Integer() }, strict) })
  t.same((await all.send('POST', '/points', { x: 1, y: 2 })).body, { id: 1, x: 1 })
})
