import { AsyncResource } from 'node:async_hooks'
import { Type, type TObject } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import { defineCollection } from '../../src/index.js'
import { onEveryEngine } from '../support/engines.js'
import { invalidBody } from '../support/helper.js'
import { serve } from '../support/serve.js'
import { edgesOf, recordOf, wrongOf } from '../support/values.js'
import { accounts, orders } from './orders.js'

/** Orders whose ids repeat. */
const repeated = defineCollection({
  ...orders,
  idSource: 'client',
  seed: [...orders.seed ?? [], { id: 2, item_id: 7, quantity: 7 }]
})

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
  contact: Type.Optional(Type.Union([
    Type.String({ format: 'email', examples: ['ada@example.com'] }), Type.Literal('none')
  ])),
  shape: Type.Optional(Type.Union([Type.Object({ radius: Type.Number() }), Type.Object({ side: Type.Number() })])),
  fixed: Type.Optional(Type.Literal(true)),
  either: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  at: Type.Optional(Type.String({ format: 'date-time', examples: ['2026-11-16T12:00:00Z'] })),
  tags: Type.Array(Type.String()),
  pair: Type.Optional(Type.Tuple([Type.String(), Type.Number()], { examples: [['a', 1]] })),
  place: Type.Object({ city: Type.String(), at: Type.Optional(Type.Array(Type.Number())) })
})

onEveryEngine((t, address, engine) => {
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
    t.same((await send('PUT', '/orders/2', { id: 3, item_id: 5, quantity: 6 })).body,
      invalidBody('body', ['/id', 'must be the id in the path']))
    t.same((await send('PUT', '/orders/2', { item_id: 5 })).body, invalidBody('body', ['/quantity', 'is required']))
    t.same((await send('PUT', '/orders/2', [1])).body, invalidBody('body', ['', 'must be an object']))
    t.equal((await send('PUT', '/orders/99', { item_id: 5, quantity: 6 })).status, 404)
    t.equal((await send('PUT', '/orders/9007199254740993', { item_id: 5, quantity: 6 })).status, 404)
    t.equal((await send('PUT', '/orders/x', { item_id: 5, quantity: 6 })).status, 400)
    t.same((await send('GET', '/orders')).body, now.body)
  })

  t.test('PATCH merges a JSON Merge Patch, and null removes an optional field', async t => {
    const { send } = await serve(t, address(), orders)
    const patch = (body: unknown, type = 'application/merge-patch+json') =>
      send('PATCH', '/orders/2', body, { 'content-type': type })
    t.same((await patch({ quantity: 5 })).body, { id: 2, item_id: 1, quantity: 5, note: 'x' })
    t.same((await patch({ note: null, quantity: 6 }, 'application/json')).body, { id: 2, item_id: 1, quantity: 6 })
    t.same((await patch({ id: 2, unknown: { a: null } })).body, { id: 2, item_id: 1, quantity: 6 })
    for (const [body, path, message] of [
      [{ quantity: null }, '/quantity', 'is required'], [{ quantity: '7' }, '/quantity', 'must be an integer'],
      [{ quantity: 0 }, '/quantity', 'must be at least 1'],
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
    t.same((await send('PATCH', '/accounts/1', { since: null, role: 'x', name: 'Ada' })).body,
      { ...first, name: 'Ada' })
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
    const Note = Type.Object({
      id: Type.Integer(),
      text: Type.String(),
      words: Type.Record(Type.String(), Type.Integer())
    })
    const { send } = await serve(t, address(), defineCollection({ name: 'notes', schema: Note }))
    await send('POST', '/notes', { text: 'x'.repeat(300_000), words: {} })
    const patch = (words: object, headers = {}) => send('PATCH', '/notes/1', { words }, headers)
    const got = await send('GET', '/notes/1')
    const changed = await Promise.all(Array.from({ length: 9 }, (_, n) => patch({ [n]: n })))
    t.same(changed.map(({ status }) => status), Array(9).fill(200))
    t.equal((await patch({ a: 1 }, { 'if-match': got.etag })).status, 412)
    t.same((await patch({ a: 'x' })).body, invalidBody('body', ['/words/a', 'must be an integer']))
    const statuses = await Promise.all([
      patch({}), patch({}), patch({}), send('DELETE', '/notes/1')
    ].map(async response => (await response).status))
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
    for (const [method, body] of [
      ['DELETE'], ['PUT', { item_id: 1, quantity: 1 }], ['PATCH', { quantity: 1 }]
    ] as const) {
      t.equal((await send(method, '/orders/99', body)).status, 404)
    }
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
        const changed = await send(n % 2 ? 'PATCH' : 'PUT', '/orders/1', { ...body, quantity: body.quantity + 1 },
          { 'if-match': etag })
        if (changed.status === 200) done++
        else t.equal(changed.status, 412)
      }
    }))
    t.equal((await first!.send('GET', '/orders/1')).body.quantity, 62)
    await Promise.all([
      { quantity: 1 }, { note: 'a' }, { item_id: 8 }
    ].map((patch, n) => (instances[n % instances.length] ?? instances[0]!).send('PATCH', '/orders/1', patch)))
    t.same((await first!.send('GET', '/orders/1')).body, { id: 1, item_id: 8, quantity: 1, note: 'a' })
  })

  t.test('fields of every type are stored, replaced, updated and validated', async t => {
    const { send } = await serve(t, address(), { name: 'things', schema: Everything, idSource: 'client' })
    const record = recordOf(Everything, 7)
    t.same((await send('POST', '/things', record)).body, record)
    for (const [name, field] of Object.entries(Everything.properties).slice(1)) {
      for (const value of edgesOf(field)) {
        t.same((await send('PUT', '/things/7', { ...record, [name]: value })).body[name], value, `PUT ${name}`)
        if (value !== null) {
          t.same((await send('PATCH', '/things/7', { [name]: value })).body[name], value, `PATCH ${name}`)
        }
      }
      for (const [value, message] of wrongOf(field)) {
        t.same((await send('PUT', '/things/7', { ...record, [name]: value })).body,
          invalidBody('body', [`/${name}`, message]))
      }
      const isOptional = !(Everything as TObject).required?.includes(name)
      t.equal((await send('PATCH', '/things/7', { [name]: null })).status, isOptional ? 200 : 400, `${name}: null`)
    }
    t.same((await send('PATCH', '/things/7', { place: { city: 'Rome', at: null } })).body.place, { city: 'Rome' })
    t.same((await send('PATCH', '/things/7', { at: 'noon' })).body,
      invalidBody('body', ['/at', 'must match the format date-time']))
    for (const [fields, path, message] of [
      [{ colour: 'blue' }, '/colour', 'must match one of the allowed schemas'],
      [{ size: 'x' }, '/size', "must be one of small, it's large"], [{ fixed: false }, '/fixed', 'must be true'],
      [{ shape: { radius: 'x' } }, '/shape', 'must match one of the allowed schemas'],
      [{ contact: 'x' }, '/contact', 'must match one of the allowed schemas'],
      [{ place: { city: 1 } }, '/place/city', 'must be a string'], [{ tags: ['a', 1] }, '/tags/1', 'must be a string']
    ] as const) {
      t.same((await send('PUT', '/things/7', { ...record, ...fields })).body, invalidBody('body', [path, message]))
    }
  })

  t.test('a retry gets the stored record, also if a hook sets other readOnly times', async t => {
    let n = 0
    const time = (n: number) => `2026-11-19T12:00:${String(n).padStart(2, '0')}Z`
    const at = Type.String({ readOnly: true, format: 'date-time' })
    const schema = Type.Object({
      id: Type.Integer(),
      at,
      text: Type.String(),
      owner: Type.Optional(Type.String({ readOnly: true })),
      seen: Type.Optional(Type.Union([at, Type.Null()]))
    })
    const stamp = async ({ body, headers: { user } }: FastifyRequest) => {
      for (const record of [body].flat().map(Object)) {
        Object.assign(record, { at: time(++n), seen: time(n), owner: user })
      }
    }
    const notes = {
      name: 'notes',
      schema,
      routes: { create: { preHandler: stamp }, createMany: { preHandler: stamp } }
    }
    const { send } = await serve(t, address(), notes)
    const post = (body: object, key: string, user?: string) =>
      send('POST', Array.isArray(body) ? '/notes/batch' : '/notes', body,
        { 'idempotency-key': key, ...user && { user } })
    const [first, many] = [await post({ text: 'a' }, 'one'), await post([{ text: 'b' }, { text: 'c' }], 'many')]
    const stored = [1, 2, 3].map(id => ({ id, at: time(id), text: 'abc'[id - 1], seen: time(id) }))
    t.same([first.body, ...many.body], stored)
    const again = await post({ text: 'a' }, 'one')
    t.same([again.status, again.body, again.headers.location], [201, first.body, first.headers.location])
    t.same((await post([{ text: 'b' }, { text: 'c' }], 'many')).body, many.body)
    for (const [body, key] of [[{ text: 'b' }, 'one'], [[{ text: 'b' }], 'many'], [[{ text: 'a' }], 'one']] as const) {
      t.equal((await post(body, key)).status, 422)
    }
    t.same((await send('GET', '/notes')).body, stored)
    await send('DELETE', '/notes/1')
    t.same((await post({ text: 'a' }, 'one')).body, first.body, 'also if it is deleted')

    const tickets = {
      name: 'tickets',
      schema: Type.Object({ id: Type.Integer(), at: Type.Optional(at) }),
      idSource: 'client' as const,
      seed: [{ id: 5, at: time(0) }]
    }
    const setTime = async ({ body }: FastifyRequest) => { Object.assign(Object(body), { at: time(1) }) }
    const clients = await serve(t, address(), { ...tickets, routes: { create: { preHandler: setTime } } })
    for (let n = 0; n < 2; n++) {
      t.same((await clients.send('POST', '/tickets', { id: 5 }, { 'idempotency-key': 'k' })).body,
        { id: 5, at: time(1) }, 'not the first record with this id')
    }
  })

  if (engine !== 'memory') return // what follows does not depend on the engine

  t.test('a request that continues in the async context of an older one has its own time', async t => {
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

  t.test('PATCH sets a required field to null if it can be null, also in nested objects', async t => {
    const schema = Type.Object({
      id: Type.Integer(),
      owner: Type.Union([Type.String(), Type.Null()]),
      place: Type.Object({
        city: Type.String(),
        floor: Type.Unsafe<number | null>({ type: ['integer', 'null'] }),
        room: Type.Optional(Type.String())
      })
    })
    const { send } = await serve(t, address(),
      { name: 'desks', schema, seed: [{ id: 1, owner: 'ada', place: { city: 'Rome', floor: 2, room: 'a' } }] })
    t.same((await send('PATCH', '/desks/1', { owner: null, place: { floor: null, room: null } })).body,
      { id: 1, owner: null, place: { city: 'Rome', floor: null } })
    t.same((await send('PATCH', '/desks/1', { place: { city: null } })).body,
      invalidBody('body', ['/place/city', 'is required']))
    t.same((await send('PATCH', '/desks/1', { owner: 'grace', place: { floor: 3 } })).body,
      { id: 1, owner: 'grace', place: { city: 'Rome', floor: 3 } })
    t.same((await send('GET', '/desks/1')).body, { id: 1, owner: 'grace', place: { city: 'Rome', floor: 3 } })

    const Coupon = Type.Object({ id: Type.Integer(), coupon: Type.Optional(Type.String()) },
      { if: { required: ['coupon'], properties: { coupon: { minLength: 1 } } }, then: true })
    const sales = await serve(t, address(), { name: 'sales', schema: Coupon, seed: [{ id: 1, coupon: 'x' }] })
    t.same((await sales.send('PATCH', '/sales/1', { coupon: null })).body, { id: 1 }, 'a condition requires nothing')
  })
})
