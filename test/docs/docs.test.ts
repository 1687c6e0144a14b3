import { writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { Validator } from '@seriousme/openapi-schema-validator'
import { test } from 'tap'
import itemsUsers, { docs } from '../../src/index.js'
import { newFolder } from '../support/folder.js'
import { build, everything, followed, host } from '../support/helper.js'

const operations = {
  'GET /livez': ['isLive', '200 400 500 503 default'],
  'GET /readyz': ['isReady', '200 400 500 503 default'],
  'GET /api/items': ['listItems', '200 304 400 500 503 default'],
  'POST /api/items': ['createItem', '201 400 403 409 413 422 500 503 default'],
  'GET /api/items/{item_id}': ['getItem', '200 304 400 404 500 503 default'],
  'GET /api/users': ['listUsers', '200 304 400 500 503 default'],
  'POST /api/users': ['createUser', '201 400 403 409 413 422 500 503 default'],
  'GET /api/users/{id}': ['getUser', '200 304 400 404 500 503 default'],
  'DELETE /api/users/{id}': ['deleteUser', '204 400 403 404 409 412 413 500 503 default']
}

test('openapi.json is the document that the service serves, and valid OpenAPI 3.1', async t => {
  const response = await build(t).inject('/openapi.json')
  t.equal(response.statusCode, 200)
  t.same(response.json(), JSON.parse(await readFile('openapi.json', 'utf8')), 'run npm run openapi')
  t.match(await new Validator().validate(response.json()), { valid: true })
})

test('the document describes every operation in full', async t => {
  const { openapi, info, components, paths } = (await build(t).inject('/openapi.json')).json()
  const { name, description, license, version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.equal(openapi, '3.1.0')
  t.same(info,
    {
      title: 'Items and users',
      description,
      version,
      contact: { name },
      license: { name: license, identifier: license }
    })
  t.same(Object.keys(components.schemas),
    ['ErrorBody', 'Problem', 'InvalidRequest', 'Item', 'ConflictingRequest', 'User'])

  const described: Record<string, string[]> = {}
  for (const [path, methods] of Object.entries<Record<string, any>>(paths)) {
    for (const [method, { operationId, responses, requestBody, ...operation }] of Object.entries(methods)) {
      described[`${method.toUpperCase()} ${path}`] = [operationId, Object.keys(responses).sort().join(' ')]
      t.type(operation.summary, 'string')
      t.equal(operation.tags.length, 1)
      const bodies = Object.entries<any>({ ...responses, ...requestBody && { body: requestBody } })
      for (const [status, body] of bodies.filter(([status]) => status !== '204' && status !== '304')) {
        t.ok(exampleIn(body.content['application/json'], components.schemas), `${operationId} ${status} has an example`)
      }
    }
  }
  t.same(described, operations)
  t.same(paths['/api/items'].post.requestBody.content['application/json'].schema, { $ref: '#/components/schemas/Item' })
  t.ok(paths['/api/items'].post.responses[201].headers.Location)
})

test('the pages have a content security policy and only relative links', async t => {
  const app = build(t)
  t.equal((await app.inject('/docs/json')).json().servers[0].url, '..')
  for (const url of ['/docs', '/docs/', '/redoc', '/redoc/']) {
    const response = await app.inject(url)
    t.equal(response.statusCode, 200)
    t.equal(response.headers['content-type'], 'text/html; charset=utf-8')
    t.match(response.headers['content-security-policy'], /^default-src 'none'; script-src 'self'; /)
    t.notMatch(response.headers['content-security-policy'], /https?:|upgrade-insecure-requests/)
    const links = Array.from(response.body.matchAll(/(?:src|href|data-document)="([^"]+)"/g),
      ([, link]) => String(link))
    t.ok(links.length > 2)
    for (const link of links.filter(link => !link.startsWith('data:'))) {
      const { pathname } = new URL(link, `http://localhost${url}`)
      t.match(link, /^\./)
      t.equal((await app.inject(pathname)).statusCode, 200, pathname)
    }
  }
})

test('two API versions are separate groups', async t => {
  const { tags, paths } = (await build(t, { API_PREFIX: '/api,/api/v1' }).inject('/openapi.json')).json()
  t.same(tags.map(({ name }: { name: string }) => name),
    ['items', 'users', 'items (/api/v1)', 'users (/api/v1)', 'health'])
  t.same(paths['/api/items'].get.tags, ['items'])
  t.same(paths['/api/v1/items'].get.tags, ['items (/api/v1)'])
})

test('the tags are in the order of the collections, and health is the last one', async t => {
  const COLLECTIONS_FILE = `${newFolder(t)}/collections.json`
  const schema = { type: 'object', required: ['id'], properties: { id: { type: 'integer' } } }
  writeFileSync(COLLECTIONS_FILE,
    JSON.stringify({ items: null, users: null, b: { schema }, a: { schema }, c: { schema } }))
  const { tags } = (await build(t, { COLLECTIONS_FILE }).inject('/openapi.json')).json()
  t.same(tags, [{ name: 'b' }, { name: 'a' }, { name: 'c' }, { name: 'health' }])
})

test('API_TITLE, API_VERSION and API_DESCRIPTION describe the API', async t => {
  const { info } = (await build(t, { API_TITLE: 'Shop', API_VERSION: '2.1', API_DESCRIPTION: 'All *orders*' })
    .inject('/openapi.json')).json()
  t.same(info, { title: 'Shop', version: '2.1', description: 'All *orders*' })
  const { info: { title, version } } = (await build(t, { API_VERSION: '2.1' }).inject('/openapi.json')).json()
  t.same([title, version], ['Items and users', '2.1'])
})

test('GET / redirects browsers to the documentation, and answers other clients with links', async t => {
  const browser = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' }
  const app = build(t, { API_PREFIX: '/api,/api/v1' })
  const redirect = await app.inject({ url: '/', headers: browser })
  t.same([redirect.statusCode, redirect.headers.location, redirect.headers.vary], [302, './docs', 'accept'])
  for (const headers of [{}, { accept: '*/*' }, { accept: 'application/json, text/plain, */*' }]) {
    const response = await app.inject({ url: '/', headers })
    t.match(response.headers,
      { 'content-type': 'application/json; charset=utf-8', vary: 'accept', 'cache-control': 'no-cache' })
    t.same(response.json(), {
      docs: ['./docs', './redoc', './openapi.json'],
      health: ['./livez', './readyz'],
      items: ['./api/items', './api/v1/items'],
      users: ['./api/users', './api/v1/users']
    })
    for (const link of Object.values<string>(response.json()).flat()) {
      t.equal((await app.inject(followed(link, '/'))).statusCode, 200, link)
    }
  }
  const bare = await build(t, { DOCS: 'false' }).inject({ url: '/', headers: browser })
  t.same(bare.json(), { health: ['./livez', './readyz'], items: ['./api/items'], users: ['./api/users'] })
})

test('a browser that requests an icon gets 204, and nothing is logged', async t => {
  const lines: string[] = []
  const response = await build(t, { LOG_LEVEL: 'info' }, { write: line => lines.push(line) }).inject('/favicon.ico')
  t.same([response.statusCode, response.body, response.headers['cache-control']], [204, '', 'public, max-age=86400'])
  t.same(lines, [])
})

test('the license of Redoc is included', async t => {
  const app = build(t)
  t.match((await app.inject('/redoc/LICENSE')).body, /MIT License/)
  t.equal((await app.inject('/redoc/redoc.standalone.js.LICENSE.txt')).statusCode, 200)
})

test('an unknown file of a documentation page is answered with 404', async t => {
  const app = build(t)
  for (const url of ['/redoc/nothing', '/docs/static/nothing']) {
    const response = await app.inject(url)
    t.equal(response.statusCode, 404)
    t.same(response.json(), { detail: 'Path not found' })
  }
})

test('the document contains the responses of the features that are enabled, and is valid', async t => {
  const plain = (await build(t).inject('/openapi.json')).json()
  t.equal(plain.components.securitySchemes, undefined)
  const document = (await build(t, everything).inject('/openapi.json')).json()
  t.same(document.components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } })
  const ids: string[] = []
  for (const [path, methods] of Object.entries<Record<string, any>>(document.paths)) {
    for (const [method, { operationId, security, responses }] of Object.entries(methods)) {
      ids.push(operationId)
      if (!path.startsWith('/api')) continue
      t.same(security,
        [{ bearer: [`${path.includes('items') ? 'items' : 'users'}:${method === 'get' ? 'read' : 'write'}`] }])
      t.ok(responses[403].headers['WWW-Authenticate'])
      t.ok(responses[401].headers['WWW-Authenticate'])
      t.ok(responses[429].headers['Retry-After'])
      for (const status of Object.keys(responses).filter(status => status.startsWith('2'))) {
        t.ok(responses[status].headers['X-RateLimit-Limit'])
      }
      for (const [status, { content }] of Object.entries<any>(responses)) {
        if (status !== '204' && status !== '304') {
          t.ok(exampleIn(content['application/json'], document.components.schemas),
            `${operationId} ${status} has an example`)
        }
      }
    }
  }
  t.equal(new Set(ids).size, ids.length)
  t.same(document.paths['/api/items'].post.requestBody.content['application/json'],
    { schema: { $ref: '#/components/schemas/NewItem' } })
  t.same(document.components.schemas.NewItem.examples, [{ name: 'Teapot', price: 24.5 }])
  t.match(await new Validator().validate(document), { valid: true })
})

test('operation ids are unique with several prefixes', async t => {
  const app = host(t)
  await app.register(docs)
  for (const prefix of ['/api', '/api/v1', '/api-v1', '/:shop']) app.register(itemsUsers, { prefix })
  const { paths } = (await app.inject('/openapi.json')).json()
  const ids = Object.values<any>(paths).flatMap(methods =>
    Object.values<any>(methods).map(({ operationId }) => operationId))
  t.equal(ids.length, 28)
  t.equal(new Set(ids).size, 28)
})

test('the server is relative to the document, whatever a client or proxy says', async t => {
  const app = build(t, { TRUST_PROXY: '127.0.0.1' })
  for (const headers of [
    {}, { host: 'evil.example' }, { 'x-forwarded-host': 'evil.example', 'x-forwarded-prefix': '/shop' }
  ]) {
    t.same((await app.inject({ url: '/openapi.json', headers })).json().servers,
      [{ url: '.', description: 'This service' }])
    t.same((await app.inject({ url: '/docs/json', headers })).json().servers,
      [{ url: '..', description: 'This service' }])
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
      return Object.fromEntries(sent.filter((parameter: any) => parameter.in === place)
        .map(({ name, example }: any) => [name, example]))
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
    const declared = operation.parameters.filter((parameter: any) => parameter.in === 'path')
      .map(({ name }: any) => name)
    t.same(declared, Array.from(path.matchAll(/{(\w+)}/g), ([, name]) => name), path)
  }
  t.equal((await app.inject('/red/eu/api/items/1')).statusCode, 200)
  t.same((await app.inject('/red/eu/api/items/x')).json().errors,
    [{ in: 'path', path: '/item_id', message: 'must be an integer' }])
})

/** The example of a body: its own, or that of the schema of its record. */
function exampleIn ({ example, schema }: any, schemas: Record<string, any>) {
  return example ?? schemas[(schema.items ?? schema).$ref.split('/').at(-1)].examples?.[0]
}

function operationsOf ({ paths }: { paths: Record<string, Record<string, any>> }) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase() as 'GET', operation })))
}
