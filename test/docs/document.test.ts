import { readFile } from 'node:fs/promises'
import { test } from 'tap'
import itemsUsers, { docs } from '../../src/index.js'
import { build, host } from '../support/helper.js'

test('the server is relative to the document, whatever a client or proxy says', async t => {
  const app = build(t, { TRUST_PROXY: '127.0.0.1' })
  for (const headers of [{}, { host: 'evil.example' }, { 'x-forwarded-host': 'evil.example', 'x-forwarded-prefix': '/shop' }]) {
    t.same((await app.inject({ url: '/openapi.json', headers })).json().servers, [{ url: '.', description: 'This service' }])
    t.same((await app.inject({ url: '/docs/json', headers })).json().servers, [{ url: '..', description: 'This service' }])
  }
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
  for (const { method, path, operation: { parameters = [], requestBody } } of operationsOf(document)) {
    const sent = parameters.filter(({ example }: any) => example !== undefined)
    const examplesIn = (place: string) => {
      return Object.fromEntries(sent.filter((parameter: any) => parameter.in === place).map(({ name, example }: any) => [name, example]))
    }
    const inPath = examplesIn('path')
    const component = requestBody?.content['application/json'].schema.$ref.split('/').at(-1)
    const response = await app.inject({
      method,
      url: path.replace(/{(\w+)}/g, (_, name) => inPath[name]),
      query: examplesIn('query'),
      headers: examplesIn('header'),
      payload: document.components.schemas[component]?.examples[0]
    })
    t.ok(response.statusCode < 300, `${method} ${path}: ${response.statusCode}`)
  }
})

test('Swagger UI fills in the id of a path and the limit of a list, and no other parameter', async t => {
  const { paths } = (await build(t).inject('/openapi.json')).json()
  const filled = operationsOf({ paths }).flatMap(({ operation: { parameters = [] } }) => parameters)
    .flatMap(({ name, example }: any) => example === undefined ? [] : [`${name} ${example}`])
  t.same(new Set(filled), new Set(['limit 100', 'item_id 1', 'id 1']))
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
