import { writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { test } from 'tap'
import itemsUsers, { docs } from '../../src/index.js'
import { newFolder } from '../support/folder.js'
import { build, host } from '../support/helper.js'

test('the document has a server with an absolute URL, which generators need', async t => {
  const app = build(t, { TRUST_PROXY: '127.0.0.1' })
  const serverFor = async (headers: Record<string, string>, remoteAddress = '127.0.0.1') =>
    (await app.inject({ url: '/openapi.json', headers: { host: 'localhost:3000', ...headers }, remoteAddress })).json().servers[0].url
  t.equal(await serverFor({}), 'http://localhost:3000')
  t.equal(await serverFor({ 'x-forwarded-host': 'example.com', 'x-forwarded-proto': 'https' }), 'https://example.com')
  const prefixed = (prefix: string) => ({ 'x-forwarded-for': '10.0.0.9', 'x-forwarded-prefix': prefix })
  for (const prefix of ['/shop', '/shop/']) t.equal(await serverFor(prefixed(prefix)), 'http://localhost:3000/shop', prefix)
  t.equal(await serverFor(prefixed('/shop'), '10.0.0.9'), 'http://localhost:3000', 'a proxy that is not trusted')
  for (const prefix of ['shop', '//evil.example', '/a b', '/a?b', '']) t.equal(await serverFor(prefixed(prefix)), 'http://localhost:3000', prefix)
  for (const headers of [
    { 'x-forwarded-proto': 'javascript' }, { 'x-forwarded-proto': 'https://evil.example/?' },
    ...['a b', 'a/b', 'user@evil.example', 'x"><script>', ':80', `${'['.repeat(15_000)}`].map(host => ({ 'x-forwarded-host': host }))
  ]) t.equal(await serverFor(headers), '.', JSON.stringify(headers).slice(0, 100))
  t.equal(await serverFor({ 'x-forwarded-host': '[2001:db8::1]:8443', 'x-forwarded-proto': 'https' }), 'https://[2001:db8::1]:8443')
  t.equal((await app.inject('/openapi.json?relative')).json().servers[0].url, '.', 'for our pages')
})

test('programs in other languages can read all patterns and formats of the document', async t => {
  const { components: { schemas: { Item } }, ...document } = JSON.parse(await readFile('openapi.json', 'utf8'))
  const patterns = JSON.stringify(document).matchAll(/"pattern":("[^"]+")/g)
  t.same(new Set(Array.from(patterns, ([, pattern]) => JSON.parse(String(pattern)))), new Set(['^[!-~]{1,255}$']))
  const { id, name, price } = Item.properties
  t.same([id.format, name.pattern, price.format], ['int64', undefined, 'double'])
})

test('the examples of every operation work when they are sent', async t => {
  const app = build(t)
  const document = (await app.inject('/openapi.json')).json()
  for (const { method, path, operation } of operationsOf(document)) {
    const { parameters = [], requestBody, responses } = operation
    const sent = parameters.map((parameter: any) => ({ ...parameter, example: parameter.example ?? parameter.schema.examples[0] }))
    const examplesIn = (place: string) => Object.fromEntries(sent.filter((parameter: any) => parameter.in === place).map(({ name, example }: any) => [name, example]))
    const inPath = examplesIn('path')
    const response = await app.inject({
      method,
      url: path.replace(/{(\w+)}/g, (_, name) => inPath[name]),
      query: examplesIn('query'),
      headers: examplesIn('header'),
      payload: requestBody?.content['application/json'].example
    })
    const example = responses[response.statusCode]?.content?.['application/json'].example
    t.ok(response.statusCode < 300, `${method} ${path}: ${response.statusCode}`)
    if (example?.id) t.equal(response.json().id, example.id, `the response of ${method} ${path} has the id of its example`)
  }
})

test('the examples of a schema without examples look like data, and work when they are sent', async t => {
  const COLLECTIONS_FILE = `${newFolder(t)}/collections.json`
  const properties = {
    id: { type: 'integer' },
    text: { type: 'string' },
    at: { type: 'string', format: 'date-time' },
    email: { type: 'string', format: 'email' },
    status: { enum: ['open', 'paid'] },
    kind: { const: 'x' },
    done: { type: ['boolean', 'null'] },
    code: { type: 'string', pattern: '^[A-Z]+$', minLength: 3 },
    short: { type: 'string', maxLength: 2 },
    size: { type: 'number', exclusiveMinimum: 4, multipleOf: 2 },
    share: { type: 'number', minimum: 0, maximum: 0.5 },
    lines: { type: 'array', minItems: 1, items: { $ref: '#/$defs/line' } },
    either: { oneOf: [{ type: 'integer' }, { type: 'string' }] },
    both: { type: 'object', allOf: [{ type: 'object', properties: { a: { type: 'integer' } } }, { type: 'object', properties: { b: { default: 2 } } }] },
    any: {},
    other: { type: 'object' },
    odd: { type: 'string', pattern: '^odd$' }
  }
  const $defs = { line: { type: 'object', required: ['quantity'], properties: { quantity: { type: 'integer', minimum: 5 }, parts: { type: 'array', items: { $ref: '#/$defs/line' } } } } }
  writeFileSync(COLLECTIONS_FILE, JSON.stringify({ orders: { schema: { type: 'object', required: ['id', 'at'], properties, $defs } } }))
  const app = build(t, { COLLECTIONS_FILE })
  const document = (await app.inject('/openapi.json')).json()
  const { post, get } = document.paths['/api/orders']
  const { id, lines, ...order } = post.responses[201].content['application/json'].example
  t.equal(id, 1)
  t.same(order, { text: 'text', at: '2026-01-31T12:00:00Z', email: 'ada@example.com', status: 'open', kind: 'x', done: true, code: 'TEXT', short: 'te', size: 6, share: 0.5, either: 1, both: { a: 1, b: 2 }, other: {} })
  t.equal(lines[0].quantity, 5)
  t.equal(lines[0].parts[0].quantity, 5)
  t.same(get.responses[200].content['application/json'].example, [{ id, lines, ...order }])
  const { example } = post.requestBody.content['application/json']
  t.same(example, { lines, ...order })
  t.same((await app.inject({ method: 'POST', url: '/api/orders', payload: example })).json(), { id: 1, ...example })
  const patch = document.paths['/api/orders/{id}'].patch.requestBody.content['application/merge-patch+json'].example
  t.equal((await app.inject({ method: 'PATCH', url: '/api/orders/1', payload: patch, headers: { 'content-type': 'application/merge-patch+json' } })).statusCode, 200)
  t.same(patch.text, 'text')
})

test('the 400 example of every operation is the response to such a request', async t => {
  const app = build(t)
  const document = (await app.inject('/openapi.json')).json()
  for (const { method, path, operation: { requestBody, responses } } of operationsOf(document)) {
    if (!path.startsWith('/api')) continue // only malformed HTTP is invalid there
    const { schema, example } = requestBody?.content['application/json'] ?? {}
    const required = document.components.schemas[schema?.$ref.split('/').at(-1)]?.required.at(-1)
    const response = await app.inject({
      method,
      url: path.replace(/{\w+}/, 'x'),
      query: { limit: '0' },
      payload: example && { ...example, [required]: undefined }
    })
    t.same(response.json(), responses[400].content['application/json'].example, `${method} ${path}`)
  }
})

test('every path of a host declares the parameters of its prefix', async t => {
  const app = host(t)
  await app.register(docs)
  app.register(itemsUsers, { prefix: '/:tenant/:region(^eu|us$)/api' })
  const document = (await app.inject('/openapi.json')).json()
  for (const { path, operation } of operationsOf(document)) {
    const declared = operation.parameters.filter((parameter: any) => parameter.in === 'path').map(({ name }: any) => name)
    t.same(declared, Array.from(path.matchAll(/{(\w+)}/g), ([, name]) => name), path)
  }
  t.equal((await app.inject('/red/eu/api/items/1')).statusCode, 200)
  t.same((await app.inject('/red/eu/api/items/x')).json().errors, [{ in: 'path', path: '/item_id', message: 'must be an integer' }])
})

function operationsOf ({ paths }: { paths: Record<string, Record<string, any>> }) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase() as 'GET', operation })))
}
