import { Type, type TObject } from '@sinclair/typebox'
import { test } from 'tap'
import { defineCollection, type Definition } from '../../src/index.js'
import { invalidBody } from '../support/helper.js'
import { serve } from '../support/serve.js'

/** A collection with these fields beside the id. */
function withFields (name: string, properties: object, more: object = {}) {
  const schema = { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, ...properties }, ...more }
  return { name, schema } as object as Definition<TObject>
}

test('a condition and the names of properties have one problem for each place', async t => {
  const Part = Type.Object({
    id: Type.Integer(),
    weight: Type.Number(),
    labels: Type.Object({}, { propertyNames: { maxLength: 3 } })
  }, {
    if: { properties: { weight: { minimum: 100 } } }, then: { properties: { id: { maximum: 9 } } }
  })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part, idSource: 'client' }))
  t.same((await send('POST', '/parts', { id: 10, weight: 100, labels: { long: 1 } })).body,
    invalidBody('body', ['/id', 'must be at most 9'],
      ['/labels/long', 'is a name that must not have more than 3 characters']))
  t.equal((await send('POST', '/parts', { id: 10, weight: 99, labels: {} })).status, 201)
})

test('a union in a union has a problem', async t => {
  const Part = Type.Object({
    id: Type.Integer(),
    size: Type.Unsafe({
      oneOf: [
        { oneOf: [{ type: 'string' }, { type: 'integer' }] },
        { type: 'object', properties: { a: { type: 'string', maxLength: 3 } } }
      ]
    })
  })
  const { send } = await serve(t, undefined, defineCollection({ name: 'parts', schema: Part }))
  for (const size of [{ a: 'long' }, null]) {
    t.same((await send('POST', '/parts', { size })).body,
      invalidBody('body', ['/size', 'must match one of the allowed schemas']))
    t.same((await send('POST', '/parts/batch', [{ size: 1 }, { size }])).body,
      invalidBody('body', ['/1/size', 'must match one of the allowed schemas']))
  }
})

test('an object can have many fields, and its id need not be the first one', async t => {
  const many = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`f${n}`, Type.Optional(Type.Integer())]))
  const Part = Type.Object({
    sizes: Type.Array(Type.Unsafe({ type: 'object', allOf: [Type.Object(many)], unevaluatedProperties: false })),
    ...many,
    id: Type.Integer()
  })
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

test('an array has many problems, and only the first one if it is large', async t => {
  const schema = Type.Object({
    id: Type.Integer(),
    tags: Type.Array(Type.Union([Type.String(), Type.Object({ a: Type.Literal(1) })]))
  })
  const { send } = await serve(t, 'memory', { name: 'notes', schema })
  const { status, body } = await send('POST', '/notes', { tags: Array.from({ length: 1000 }, () => ({})) })
  t.equal(status, 400)
  t.equal(body.errors.length, 50)
  t.same((await send('POST', '/notes', { tags: Array.from({ length: 100_000 }, () => ({})) })).body,
    invalidBody('body', ['/tags/0', 'must match one of the allowed schemas']))
})

test('a field that needs another field', async t => {
  const schema = {
    type: 'object',
    required: ['id'],
    properties: { id: { type: 'integer' }, card: { type: 'string' }, expires: { type: 'string', format: 'date' } },
    dependentRequired: { card: ['expires'] }
  }
  const { send } = await serve(t, 'memory', { name: 'payments', schema: schema as never })
  t.same((await send('POST', '/payments', { card: '1' })).body, invalidBody('body', ['', 'needs expires']))
  t.equal((await send('POST', '/payments', { card: '1', expires: '2026-11-17' })).status, 201)
})

test('unknown fields of nested objects are removed if the schema forbids them', async t => {
  const strict = { additionalProperties: false }
  const Point = Type.Object({ x: Type.Integer() }, strict)
  const schema = Type.Object({
    id: Type.Integer(),
    tree: Type.Unsafe<object>({ $ref: '#/$defs/Tree' }),
    pair: Type.Optional(Type.Tuple([Point, Type.Object({})])),
    named: Type.Optional(Type.Unsafe<object>({
      type: 'object',
      patternProperties: { '^p': Point },
      additionalProperties: false
    })),
    others: Type.Optional(Type.Record(Type.String({ pattern: '.' }), Point)),
    either: Type.Optional(Type.Union([Point, Type.Object({ y: Type.Integer() }, strict)]))
  }, {
    $defs: {
      Tree: {
        type: 'object',
        required: ['n'],
        properties: { n: { type: 'integer' }, children: { type: 'array', items: { $ref: '#/$defs/Tree' } } },
        ...strict
      }
    }
  })
  const { send } = await serve(t, undefined, { name: 'trees', schema })
  const x = { x: 1, z: 2 }
  const sent = {
    tree: { n: 1, m: 2, children: [{ n: 3, children: [], valueOf: 1 }] },
    pair: [x, x],
    named: { p: x, r: x },
    others: { a: x }
  }
  const stored = {
    tree: { n: 1, children: [{ n: 3, children: [] }] },
    pair: [{ x: 1 }, x],
    named: { p: { x: 1 } },
    others: { a: { x: 1 } }
  }
  t.same((await send('POST', '/trees', sent)).body, { id: 1, ...stored })
  t.same((await send('PUT', '/trees/1', { tree: { n: 5, m: 6 }, either: { y: 1 } })).body,
    { id: 1, tree: { n: 5 }, either: { y: 1 } })
  t.same((await send('PATCH', '/trees/1', { ...sent, either: null })).body, { id: 1, ...stored })
  for (const method of ['POST', 'PUT', 'PATCH'] as const) {
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: { n: '1', m: 2 } })).body,
      invalidBody('body', ['/tree/n', 'must be an integer']))
    t.same((await send(method, method === 'POST' ? '/trees' : '/trees/1', { tree: 5 })).body,
      invalidBody('body', ['/tree', 'must be an object']))
  }
  const all = await serve(t, undefined,
    { name: 'points', schema: Type.Object({ id: Type.Integer(), x: Type.Integer() }, strict) })
  t.same((await all.send('POST', '/points', { x: 1, y: 2 })).body, { id: 1, x: 1 })
})

test('recursive schemas with one reference per alternative are valid', async t => {
  const tree = {
    type: 'object',
    properties: {
      left: { $ref: '#/$defs/tree' },
      right: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'null' }] },
      rest: { type: 'array', items: { $ref: '#/$defs/tree' } }
    }
  }
  const { send } = await serve(t, 'memory',
    withFields('trees', { tree: { $ref: '#/$defs/tree' } }, { $defs: { tree } }))
  let payload: object = {}
  for (let n = 0; n < 90; n++) payload = { left: payload, right: n % 2 ? null : {}, rest: [{}] }
  t.same((await send('POST', '/trees', { tree: payload })).body, { id: 1, tree: payload })
  t.same((await send('POST', '/trees', { tree: { left: { right: 1 } } })).body,
    invalidBody('body', ['/tree/left/right', 'must match one of the allowed schemas']))
})

test('uniqueItems compares values, whatever the order of their keys', async t => {
  const { send } = await serve(t, 'memory',
    withFields('lists', { set: { type: 'array', uniqueItems: true }, bag: { type: 'array', uniqueItems: false } }))
  const create = (body: object) => send('POST', '/lists', body)
  t.equal((await create({
    set: [
      1, '1', [1], [[1]], [['1']], [], [[]], [1, 2], [[1, 2]], ['[1'], { a: 1 }, { a: '1' }, { a: [1] }, null, [null]
    ],
    bag: [1, 1]
  })).status,
  201)
  for (const set of [
    [1, 1.0], ['x', 'x'], [[[[]]], 1, [[[]]]], [[[1, [2]]], [[1, [2]]]], [[{ a: 1, b: 2 }], [{ b: 2, a: 1 }]]
  ]) {
    t.same((await create({ set })).body, invalidBody('body', ['/set', 'must not have duplicate items']))
  }
})

test('multipleOf takes decimals as they are written', async t => {
  const { send } = await serve(t, 'memory',
    withFields('prices',
      {
        price: { type: 'number', multipleOf: 0.01 },
        box: { type: 'integer', multipleOf: 10 },
        half: { type: 'number', multipleOf: 2.5 }
      }))
  const create = (body: object) => send('POST', '/prices', body)
  for (const price of [19.99, -0.07, 0, 1.1, 4.35, 123456789.01, 99999999999.99]) {
    t.same((await create({ price, box: 20 })).body.price, price)
  }
  for (const price of [0.005, 19.999, -0.071, 123456789.011, 9007199254740.123]) {
    t.same((await create({ price })).body, invalidBody('body', ['/price', 'must be a multiple of 0.01']))
  }
  for (const half of [7.5, -2.5, 1e20]) t.same((await create({ half })).body.half, half)
  for (const half of [7, 1125899906842624.25]) {
    t.same((await create({ half })).body, invalidBody('body', ['/half', 'must be a multiple of 2.5']))
  }
  t.equal((await create({ box: 1e15 })).body.box, 1e15)
  for (const box of [25, 7e15 + 3, 9007199254740001]) {
    t.same((await create({ box })).body, invalidBody('body', ['/box', 'must be a multiple of 10']))
  }
})

test('the message about a pattern is what the schema expects, or the pattern, and not its description', async t => {
  const sku = { type: 'string', pattern: '^[A-Z]+$', description: 'Stock keeping unit' }
  const { send } = await serve(t, 'memory', withFields('parts', { sku, code: { ...sku, expected: 'capital letters' } }))
  t.same((await send('POST', '/parts', { sku: 'a', code: 'b' })).body,
    invalidBody('body', ['/sku', 'must match pattern "^[A-Z]+$"'], ['/code', 'must be capital letters']))
})
