import { readFileSync, writeFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import { test, type Test } from 'tap'
import { readCommandLine } from '../../src/command-line.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build, invalidBody } from '../support/helper.js'
import { start } from '../support/process.js'

const orders = {
  schema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    $id: 'https://example.com/order.json',
    title: 'An order',
    type: 'object',
    required: ['id', 'quantity', 'email'],
    properties: {
      id: { type: 'integer' },
      quantity: { type: 'integer', minimum: 1 },
      email: { type: 'string', format: 'email' },
      status: { $ref: '#/$defs/status' },
      address: { $ref: '#/definitions/address' }
    },
    $defs: { status: { type: 'string', enum: ['open', 'paid'] } },
    definitions: {
      address: {
        type: 'object',
        required: ['city'],
        properties: { city: { type: 'string' }, within: { $ref: '#/definitions/address' } }
      }
    }
  },
  seed: [{ id: 1, quantity: 2, email: 'ada@example.com', status: 'open' }]
}
const [ada] = orders.seed

/** Writes a file with these collections. */
function fileOf (t: Test, content: unknown) {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
  return file
}

/** A definition with these fields beside the id. */
function withFields (properties: object, more: object = {}) {
  return {
    schema: {
      type: 'object',
      required: ['id'],
      properties: { id: { type: 'integer' }, ...properties },
      ...more
    }
  }
}

onEveryEngine((t, address) => {
  t.test('COLLECTIONS_FILE serves its collections beside items and users', async t => {
    const app = build(t, { DATABASE_URL: address(), COLLECTIONS_FILE: fileOf(t, { orders }), API_PREFIX: '/api,/v2' })
    const create = (payload: object, key = 'k') =>
      app.inject({ method: 'POST', url: '/api/orders', payload, headers: { 'idempotency-key': key } })
    t.same((await app.inject('/api/orders')).json(), [ada])
    const order = { quantity: 3, email: 'grace@example.com', address: { city: 'Rome', within: { city: 'Italy' } } }
    const created = await create(order)
    t.same([created.statusCode, created.json(), created.headers.location], [201, { id: 2, ...order }, './orders/2'])
    t.equal((await create(order)).json().id, 2, 'the key')
    t.same((await create({ quantity: 0, email: 'x', status: 'lost', address: { city: 'Rome', within: {} } },
      'l')).json(), invalidBody('body',
      ['/quantity', 'must be at least 1'], ['/email', 'must match the format email'],
      ['/status', 'must be one of open, paid'], ['/address/within/city', 'is required']))
    const page = await app.inject('/v2/orders?limit=1')
    t.same([page.json(), page.headers.link], [[ada], '<?limit=1&after=MQ>; rel="next"'])
    const one = await app.inject('/api/orders/1')
    t.equal((await app.inject({
      url: '/api/orders/1',
      headers: { 'if-none-match': String(one.headers.etag) }
    })).statusCode,
    304)
    t.same((await app.inject({ method: 'PATCH', url: '/api/orders/1', payload: { status: 'paid' } })).json(),
      { ...ada, status: 'paid' })
    t.same((await app.inject({
      method: 'PUT',
      url: '/api/orders/1',
      payload: { quantity: 1, email: 'ada@example.com' }
    })).json(),
    { id: 1, quantity: 1, email: 'ada@example.com' })
    t.equal((await app.inject({ method: 'DELETE', url: '/api/orders/1' })).statusCode, 204)
    for (let n = 0; n < 30; n++) await create(order, `n${n}`)
    const compressed = await app.inject({ url: '/api/orders', headers: { 'accept-encoding': 'gzip' } })
    t.equal(compressed.headers['content-encoding'], 'gzip')
    t.equal(JSON.parse(String(gunzipSync(compressed.rawPayload))).length, 31)
    t.equal((await app.inject('/api/items/1')).statusCode, 200)
    t.equal((await app.inject('/api/users/1')).statusCode, 200)
    t.equal((await app.inject('/api/nothing')).statusCode, 404)
  })

  t.test('SEED=false starts empty, and SEED_FILE has the records of new collections', async t => {
    const COLLECTIONS_FILE = fileOf(t, { orders })
    t.equal((await build(t, { DATABASE_URL: address(), COLLECTIONS_FILE, SEED: 'false' }).inject('/api/orders')).body,
      '[]')
    const records = [{ id: 5, quantity: 1, email: 'grace@example.com' }]
    const app = build(t, { DATABASE_URL: address(), COLLECTIONS_FILE, SEED_FILE: fileOf(t, { orders: records }) })
    t.same((await app.inject('/api/orders')).json(), records)
    t.equal((await app.inject('/api/items')).body, '[]')
    await t.rejects(async () =>
      build(t, { DATABASE_URL: address(), COLLECTIONS_FILE, SEED_FILE: fileOf(t, { orders: [{ id: 5 }] }) }).ready(),
    { message: /^Invalid records in the option seed:\n {2}\/orders\/0\/quantity is required\n/ })
  })
})

test('the service accepts the examples of a file in --help and docs/configuration.md', async t => {
  for (const text of [String(readCommandLine(['--help']).text), readFileSync('docs/configuration.md', 'utf8')]) {
    const examples = Array.from(text.matchAll(/with your own\s+collections, such as `?(\{[^`|]+?\})(`|\n +[A-Z_]+ )/g),
      ([, example]) => example)
    t.not(examples.length, 0)
    for (const example of examples) {
      t.equal((await build(t, { COLLECTIONS_FILE: fileOf(t, example) }).inject('/api/orders')).body, '[]')
    }
  }
})

test('the document, GET / and the metrics have the collections of the file', async t => {
  const users = { ...withFields({ email: { type: 'string' } }), operations: ['list', 'create'] }
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { users, items: null, order_lines: orders }) })
  t.same((await app.inject('/')).json().order_lines, ['./api/order_lines'])
  t.equal((await app.inject('/api/items')).statusCode, 404)
  t.equal((await app.inject('/api/users/1')).statusCode, 404)
  t.same((await app.inject({ method: 'POST', url: '/api/users', payload: { email: 'x', name: 'Ada' } })).json(),
    { id: 1, email: 'x' })
  const { info, paths, components } = (await app.inject('/openapi.json')).json()
  t.equal(info.title, 'Users and order lines')
  t.same(Object.keys(paths).filter(path => path.startsWith('/api')),
    ['/api/users', '/api/order_lines', '/api/order_lines/{id}', '/api/order_lines/batch'])
  t.same(Object.keys(paths['/api/order_lines/{id}']), ['get', 'put', 'patch', 'delete'])
  t.equal(paths['/api/order_lines'].get.summary, 'List all order lines')
  t.equal(paths['/api/order_lines/{id}'].get.operationId, 'getOrderLine')
  t.same(components.schemas.OrderLine.examples, orders.seed)
  t.equal(components.schemas.OrderLine.properties.status.$ref, '#/components/schemas/OrderLine-status')
  t.same(Object.keys(components.schemas.OrderLinePatch.properties.address), ['anyOf'])
  for (const page of ['/docs', '/redoc']) t.match((await app.inject(page)).body, 'Users and order lines')
})

test('a collection can have the name of the probes', async t => {
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { health: withFields({}, { description: 'A heartbeat' }) }) })
  const { tags } = (await app.inject('/openapi.json')).json()
  t.match(tags, [{ name: 'items' }, { name: 'users' }])
  t.equal(tags.length, 3)
})

test('ID_SOURCE is for items and users only', async t => {
  const notes = { ...withFields({}), idSource: 'client' }
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes }), ID_SOURCE: 'server' })
  t.same((await app.inject({ method: 'POST', url: '/api/notes', payload: { id: 9 } })).json(), { id: 9 })
  t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: { id: 9, name: 'x' } })).json().id, 2)
})

test('an invalid file is one message with all problems', async t => {
  const { schema } = orders
  const types = 'must be one of array, boolean, integer, null, number, object, string'
  for (const [content, ...problems] of [
    [
      { Orders: { schema }, pg_orders: { schema }, open: { schema }, constructor: { schema }, __proto__: null },
      '/Orders must have a name of at most 48 lower case letters, digits and _ that starts with a letter',
      ...['pg_orders', 'open', 'constructor'].map(name => `/${name} has a name that is reserved`)
    ],
    [
      { a: {}, b: 5, c: null, d: { schema: 5 } }, '/a/schema is required', '/b must be an object',
      '/c must be an object', '/d/schema must be an object or true or false'
    ],
    [{ a: { schema, stor: 1, operations: ['get', 'get', 'steal'], idSource: 'x', seed: [5], idParameter: '-' } },
      '/a/stor is not a known field',
      '/a/operations/2 must be one of list, get, create, createMany, replace, update, delete, summary',
      '/a/operations must not have duplicate items',
      '/a/idSource must be one of client, server', '/a/idParameter must be letters and _',
      '/a/seed/0 must be an object'],
    [{ a: withFields({ b: { type: 'integer', minimum: '1' }, c: { pattern: '(' }, d: { items: [{}] } }) },
      '/a/schema/properties/b/minimum must be a number', '/a/schema/properties/c/pattern must match the format regex',
      '/a/schema/properties/d/items must be an object or true or false'],
    [{
      a: withFields({ b: { type: 'strng' }, type: { type: ['string', 'x'] }, c: { type: [] } }),
      d: { ...withFields({ type: { type: 5 } }), type: [] }
    },
      `/a/schema/properties/b/type ${types}`, `/a/schema/properties/type/type ${types}`,
      `/a/schema/properties/type/type/1 ${types}`,
      `/a/schema/properties/c/type ${types}`, '/a/schema/properties/c/type must not have fewer than 1 items',
      '/d/type is not a known field', `/d/schema/properties/type/type ${types}`],
    [{
      a: withFields({
        b: { maximumm: 1, format: 'phone' },
        'c/~d': { $ref: '#/$defs/none' },
        e: { $ref: '#' },
        f: { $dynamicRef: '#x', $id: 'x' },
        g: { constructor: 1 },
        h: { items: { nullable: true } }
      },
      { $schema: 'http://json-schema.org/draft-07/schema#' })
    },
    '/a/schema/properties/b/maximumm is not a supported keyword',
    '/a/schema/properties/b/format is not a supported format',
    '/a/schema/properties/c~1~0d/$ref must be #/$defs/ and the name of a schema there',
    '/a/schema/properties/e/$ref must be #/$defs/ and the name of a schema there',
    '/a/schema/properties/f/$dynamicRef is not a supported keyword',
    '/a/schema/properties/f/$id is not a supported keyword',
    '/a/schema/properties/g/constructor is not a supported keyword',
    '/a/schema/properties/h/items/nullable is not a supported keyword',
    '/a/schema/$schema must be https://json-schema.org/draft/2020-12/schema'],
    [{
      a: withFields({ b: { if: {} } }),
      c: { schema: { type: 'object', properties: { id: { type: 'string' } } } },
      d: withFields({}, { additionalProperties: true }),
      e: { schema: { type: 'object', required: ['id'] } },
      f: withFields({ g: { items: { properties: { pin: { writeOnly: true } } } } })
    },
    '/a/schema is not valid: strict mode: "if" without "then" and "else" is ignored',
    '/c/schema must have a required id that is an integer or a string',
    '/d/schema must not have additionalProperties, because a record has only the fields in properties',
    '/e/schema must be a TypeBox object, or a JSON Schema with type "object" and properties',
    '/f/schema/properties/g/items/properties/pin must not be writeOnly, because a response is the stored record'],
    [{ a: { schema, seed: [{ id: 1, quantity: 0, email: 'a@b.c' }, ada] } }, '/a/seed/0/quantity must be at least 1'],
    [{
      order: { schema },
      orders: { schema },
      new_order: withFields({}),
      problems: withFields({}),
      x: withFields({}, { title: 'User' })
    },
    '/orders has records with the name Order, like order. Set another title in the schema',
    '/new_order has records with the name NewOrder, like orders. Set another title in the schema',
    '/problems has records with the name Problem, like an error. Set another title in the schema',
    '/x has records with the name User, like users. Set another title in the schema']
  ] as [object, string, ...string[]][]) {
    await t.rejects(async () => build(t, { COLLECTIONS_FILE: fileOf(t, content) }).ready(), {
      code: 'ERR_STARTUP',
      message: ['Invalid collections (COLLECTIONS_FILE):', ...problems.map(problem => `  ${problem}`)].join('\n')
    }, problems[0])
  }
  for (const content of ['[]', 'null', '{']) {
    await t.rejects(async () => build(t, { COLLECTIONS_FILE: fileOf(t, content) }).ready(),
      {
        code: 'ERR_STARTUP',
        message: /^(Cannot read COLLECTIONS_FILE: |COLLECTIONS_FILE must contain a JSON object such as \{"orders": )/
      })
  }
})

test('--collections names the file, and a bad file ends the process with one message', async t => {
  const server = start(t, {}, { args: ['--collections', fileOf(t, { orders })] })
  t.same(await (await fetch(`${await server.url}/api/orders`)).json(), [ada])
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])

  const bad = start(t, { COLLECTIONS_FILE: fileOf(t, { orders: { schema: orders.schema, sed: [] } }) })
  t.same(await bad.exit, [1, null])
  t.equal(bad.errors(), 'Invalid collections (COLLECTIONS_FILE):\n  /orders/sed is not a known field\n')
  t.equal(bad.output(), '')
})
