import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Type, type TObject } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import { test } from 'tap'
import {
  collection, defineCollection, docs, items, memory, stores, type Definition, type Store
} from '../../src/index.js'
import { host, invalidBody } from '../support/helper.js'
import { serve } from '../support/serve.js'
import { accounts, Order, orders } from './orders.js'

test('annotations of OpenAPI are in the document, and do not change what is valid', async t => {
  const annotations = { 'x-unit': 'pieces', example: 5, externalDocs: { url: 'https://example.com' }, deprecated: true }
  const schema = Type.Object({
    id: Type.Integer(),
    size: Type.Integer(annotations),
    shape: Type.Optional(Type.Unsafe({
      oneOf: [{ type: 'object', required: ['kind'], properties: { kind: { const: 'a' } } }],
      discriminator: { propertyName: 'kind' }
    }))
  },
  { 'x-own': true })
  const { send } = await serve(t, undefined, { name: 'things', schema })
  t.equal((await send('POST', '/things', { size: 1, shape: { kind: 'a' } })).status, 201)
  t.equal((await send('POST', '/things', { size: 'x' })).status, 400)
  const { Thing } = (await send('GET', '/openapi.json')).body.components.schemas
  t.match(Thing,
    { 'x-own': true, properties: { size: annotations, shape: { discriminator: { propertyName: 'kind' } } } })
})

test('the prefix of a collection is not in its operation ids and tags, unless they would be the same', async t => {
  const app = host(t)
  await app.register(docs)
  const schema = Type.Object({ id: Type.Integer() })
  app.register(collection,
    {
      prefix: '/order-lines',
      name: 'order_lines',
      schema,
      routes: { get: { schema: { operationId: 'readLine', tags: ['mine'] } } }
    })
  app.register(collection,
    {
      prefix: '/v2/order_lines',
      name: 'order_lines',
      schema,
      routes: { get: { schema: { operationId: 'readLine2', tags: ['mine'] } } }
    })
  const { paths } = (await app.inject('/openapi.json')).json()
  const named = (path: string) => [paths[path].get.operationId, paths[path].get.tags]
  t.same(named('/order-lines'), ['listOrderLines', ['order_lines']])
  t.same(named('/v2/order_lines'), ['listOrderLinesV2', ['order_lines (/v2)']])
  t.same(named('/order-lines/{id}'), ['readLine', ['mine']])
  t.same(named('/v2/order_lines/{id}'), ['readLine2', ['mine']])
})

test('the records of a collection are named by the singular of its name', async t => {
  const singulars = [
    'orders:Order', 'categories:Category', 'movies:Movie', 'sizes:Size', 'prizes:Prize', 'boxes:Box', 'sheep:Sheep',
    'addresses:Address', 'houses:House', 'statuses:Status', 'cases:Case', 'causes:Cause', 'uses:Use', 'prices:Price',
    'series:Series', 'branches:Branch', 'caches:Cache', 'wishes:Wish', 'aliases:Alias', 'order_lines:OrderLine'
  ].map(pair => pair.split(':') as [string, string])
  const schema = Type.Object({ id: Type.Integer() })
  const { send } = await serve(t, 'memory', ...singulars.map(([name]) => ({ name, schema })))
  const { paths } = (await send('GET', '/openapi.json')).body
  for (const [name, singular] of singulars) {
    t.equal(paths[`/${name}/{id}`].get.operationId, `get${singular}`)
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
        either: {
          oneOf: [{ type: 'object', required: ['k'], properties: { k: { const: 'a' } } }],
          discriminator: { propertyName: 'k' }
        },
        empty: { ...a, required: [] },
        any: true,
        part: { $ref: '#/$defs/Part' },
        pair: { type: 'array', prefixItems: [{ type: 'string' }], items: false, minItems: 1 },
        some: { type: 'array', items: { type: 'string' }, contains: { const: 'a' }, $comment: 'x' },
        names: { type: 'object', propertyNames: { minLength: 1 }, patternProperties: { '^a': { type: 'string' } } },
        closed: {
          ...a,
          unevaluatedProperties: false,
          dependentRequired: { a: ['a'] },
          if: { required: ['a'] },
          then: { required: ['a'] }
        },
        not: {
          type: 'string',
          not: { enum: ['x'] },
          deprecated: true,
          contentEncoding: 'base64',
          example: 'a',
          'x-own': 1
        }
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
  const shape = {
    title: 'Shape',
    description: 'A shape',
    oneOf: [{ type: 'object', properties: { r: { type: 'number' } } }, { type: 'string' }]
  }
  const shapes = {
    name: 'shapes',
    idSource: 'client' as const,
    schema: {
      type: 'object',
      required: ['id', 'size'],
      properties: { id: { type: 'integer' }, size: { type: 'integer', default: 3 }, shape }
    }
  }
  const marks = {
    name: 'marks',
    schema: {
      type: 'object',
      required: ['id'],
      properties: { id: { type: 'integer', readOnly: true }, text: { type: 'string' } }
    }
  }
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
  const hooked = await serve(t, undefined,
    { ...notes, routes: { create: { preHandler: stamp }, update: { preHandler: stamp } } })
  t.same((await hooked.send('POST', '/notes', { name: 'a', at: 'x' })).body, { id: 1, name: 'a', at: 'now' })
})

test('schemas of hosts whose defaults refer to other parts or are null are accepted', async t => {
  const Money = Type.Object({ currency: Type.String({ default: 'EUR' }) }, { $id: 'Money', default: {} })
  const fields = {
    tree: Type.Recursive(This => Type.Object({ children: Type.Array(This, { default: [] }) }),
      { $id: 'Tree', default: {} }),
    a: Type.String({ minLength: 1 }),
    b: Type.Unsafe<string>({ $ref: '#/properties/a', default: 'x' }),
    price: Type.Object({ total: Money }, { default: {} }),
    none: Type.Union([Type.String(), Type.Null()], { default: null })
  }
  const { send } = await serve(t, 'memory',
    { name: 'things', schema: Type.Object({ id: Type.Integer(), ...fields }, { default: {} }) })
  t.same((await send('POST', '/things', { a: 'a' })).body,
    { id: 1, tree: { children: [] }, a: 'a', b: 'x', price: { total: { currency: 'EUR' } }, none: null })
})

test('a wrong definition is one error at startup', async t => {
  const schema = Order
  for (const [definition, message] of [
    [
      { name: 'Orders', schema },
      'Orders: must have a name of at most 48 lower case letters, digits and _ that starts with a letter.'
    ],
    [{ name: 'idempotency_keys', schema }, 'Invalid collection idempotency_keys: has a name that is reserved.'],
    [{ name: 'orders', schema: Type.String() }, 'schema must be a TypeBox object'],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Integer({ readOnly: true }) }), idSource: 'client' },
      'schema must not have a readOnly id, because clients choose it'
    ],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Number() }) },
      'schema must have a required id that is an integer or a string'
    ],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Optional(Type.Integer()) }) },
      'schema must have a required id that is an integer or a string'
    ],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Integer({ nullable: true }) }) },
      'schema must have a required id that is an integer or a string'
    ],
    [{ name: 'orders', schema: Type.Object({ id: Type.Integer(), at: Type.Date() }) }, 'schema is not valid'],
    [
      { name: 'orders', schema: { ...Order, maximumm: 1 } },
      'schema is not valid: strict mode: unknown keyword: "maximumm"'
    ],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Integer(), x: Type.String({ format: 'phone' }) }) },
      'unknown format "phone"'
    ],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Integer(), toString: Type.String() }) },
      'schema/properties/toString has a name that is reserved'
    ],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Integer() }, { additionalProperties: true }) },
      'schema must not have additionalProperties'
    ],
    [{ name: 'sqlite_orders', schema }, 'has a name that is reserved'],
    [{ name: 'orders', schema, renames: { note: 'quantity', amount: 'size', count: 'quantity', number: 'quantity' } },
      'renames/note is still a field of the schema. renames/amount must be the name of a field of the schema.'],
    [
      { name: 'orders', schema: Type.Object({ id: Type.Integer(), pin: Type.String({ writeOnly: true }) }) },
      'schema/properties/pin must not be writeOnly, because a response is the stored record.'
    ],
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
  const { send } = await serve(t, undefined,
    {
      ...items,
      schema,
      operations: ['list', 'create', 'delete'],
      routes: { delete: { onRequest: forbid }, list: { schema: { summary: 'All of them' } } }
    })
  t.same((await send('POST', '/items', { id: 3, name: 'Lamp', price: 1, colour: 'red' })).body,
    { id: 3, name: 'Lamp', price: 1, colour: 'red' })
  t.equal((await send('GET', '/items/3')).status, 404)
  t.same((await send('DELETE', '/items/3')).body, { detail: 'Only administrators can do this' })
  const { paths } = (await send('GET', '/openapi.json')).body
  t.same(Object.keys(paths['/items/{item_id}']), ['delete'])
  t.equal(paths['/items'].get.summary, 'All of them')
})

test('a collection that can only be read', async t => {
  const { send } = await serve(t, 'memory',
    { ...orders, operations: ['list', 'get'], renames: { amount: 'quantity', number: 'quantity' }, removes: ['old'] })
  t.equal((await send('POST', '/orders', { item_id: 1, quantity: 1 })).status, 404)
  t.same(Object.keys((await send('GET', '/openapi.json')).body.components.schemas).sort(),
    ['ErrorBody', 'InvalidRequest', 'Order', 'Problem'])
  await t.rejects(serve(t, 'memory', orders,
    { ...orders, prefix: '/more', schema: Type.Object({ id: Type.Integer() }), seed: [] } as Definition), {
    code: 'ERR_STARTUP', message: 'The collection orders is registered with two different schemas.'
  })
})

test('a store that returns null, or of each request', async t => {
  const own = memory({ schema: Order, seed: orders.seed ?? [] })
  const store: Store<{
    id: number
    item_id: number
    quantity: number
    note?: string
  }> = { ...own, first: async id => await own.first(id) ?? null }
  const { send } = await serve(t, undefined, { ...orders, store, operations: ['list', 'get', 'create', 'delete'] })
  t.equal((await send('GET', '/orders/1')).status, 200)
  t.equal((await send('GET', '/orders/99')).status, 404)

  const tenants = new Map(['a', 'b'].map(tenant => [tenant, memory({ schema: Order, seed: [] })]))
  const shop = await serve(t, undefined, {
    ...orders,
    async store ({ headers }) {
      return tenants.get(String(headers.tenant)) ??
        Promise.reject(Object.assign(new Error('There is no such tenant'), { statusCode: 404 }))
    }
  })
  t.equal((await shop.send('POST', '/orders', { item_id: 1, quantity: 1 }, { tenant: 'a' })).status, 201)
  t.equal((await shop.send('PATCH', '/orders/1', { quantity: 2 }, { tenant: 'a' })).body.quantity, 2)
  t.equal((await shop.send('GET', '/orders/1', undefined, { tenant: 'b' })).status, 404)
  const unknown = await shop.send('GET', '/orders', undefined, { tenant: 'c' })
  t.same([unknown.status, unknown.body], [404, { detail: 'There is no such tenant' }])
})

test('unique fields and references that cannot work are one message at startup', async t => {
  const Thing = Type.Object({
    id: Type.Integer(),
    limit: Type.Optional(Type.String()),
    place: Type.Object({}),
    other: Type.Optional(Type.Integer())
  })
  const things = { name: 'things', schema: Thing }
  for (const [definition, message] of [
    [{ unique: ['colour'] }, 'Invalid collection things: unique/0 must be a field of the schema, and colour is not.'],
    [
      { unique: ['place'] },
      'unique/0 must be a field that is a string, an integer, a number or a boolean, and place is not.'
    ],
    [{ unique: ['limit'] }, 'Invalid collection things: unique/0 has the parameter limit, which exists already.'],
    [
      { references: { colour: 'things' } },
      'Invalid collection things: references/colour must be a field of the schema, and colour is not.'
    ],
    [
      { references: { limit: 'things' } },
      'Invalid collection things: references/limit has the parameter limit, which exists already.'
    ],
    [
      { references: { other: 'members' } },
      'references/other must be a collection with unique ids, but there is no collection members in the same store.'
    ],
    [
      { references: { other: 'things' }, idSource: 'client' as const },
      'the ids of things may repeat. Add "id" to its unique, or let the server choose its ids.'
    ],
    [
      { unique: ['other'], seed: [{ id: 1, place: {}, other: 5 }, { id: 2, place: {}, other: 5 }] },
      'Invalid records in the option seed:\n  /things/1/other is already used'
    ],
    [{ references: { other: 'things' }, seed: [{ id: 1, place: {}, other: 5 }, { id: 2, place: {}, other: 1 }] },
      'things.other must be the id of a record of things, but 1 value, such as 5, is not. Change these records']
  ] as const) await t.rejects(serve(t, 'memory', { ...things, ...definition } as Definition), { message })
})

test('stores of a host have no constraints', async t => {
  const message = 'Invalid collection loans: unique, references and timestamps do not work with a store of your own.'
  const schema = Type.Object({ id: Type.Integer(), member_id: Type.Integer(), book: Type.Optional(Type.String()) })
  const loans = { name: 'loans', schema, references: { member_id: 'members' } }
  const store = memory({ schema, seed: [] })
  for (const [options, definition] of [
    [{}, { ...loans, store }], [{ store: { loans: store } }, loans],
    [{ store: { loans: store } }, { ...loans, references: {}, unique: ['book'] }]
  ] as const) {
    const app = host(t)
    await app.register(stores, options as object)
    app.register(collection, definition)
    await t.rejects(async () => app.ready(), { message })
  }
})
