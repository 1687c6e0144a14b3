import { once } from 'node:events'
import { connect, type ClientHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import Fastify, { type FastifyInstance } from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { auth, docs, errors, collection, items, type DocsOptions } from '../../src/index.js'
import { host } from '../support/helper.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

test('a host scope with the same prefix can have its own not-found handler', async t => {
  for (const first of ['host', 'plugin']) {
    for (const notFound of [true, false]) {
      const app = host(t)
      if (first === 'plugin') app.register(itemsUsers, { prefix: '/api', notFound })
      app.register(async function own (scope) {
        scope.setNotFoundHandler(async () => 'of the host')
        scope.get('/own', async () => 'own')
      }, { prefix: '/api' })
      if (first === 'host') app.register(itemsUsers, { prefix: '/api', notFound })
      const ours = '{"detail":"Path not found"}'
      for (const url of ['/api/nope', '/api/nope/again?x=1', '/api/', `/api/${'x'.repeat(200)}`]) {
        t.equal((await app.inject(url)).body, notFound ? ours : 'of the host', url)
      }
      t.equal((await app.inject('/api')).body, 'of the host')
      t.equal((await app.inject('/api/own')).body, 'own')
      t.equal((await app.inject({ method: 'PUT', url: '/api/items' })).statusCode, notFound ? 405 : 200)
      t.equal((await app.inject('/api/items')).statusCode, 200)
    }
  }
})

test('a host can have its own decorators with the names of ours', async t => {
  const app = host(t)
  for (const name of ['metrics', 'rateLimiter', 'stores']) app.decorate(name, { ofHost: true })
  await app.register(async function inner (scope) {
    await scope.register(auth, { tokens: ['one'] })
    scope.register(collection, { ...items, prefix: '/items' })
  })
  t.equal((await app.inject('/items')).statusCode, 401)
  t.equal((await app.inject({ url: '/items', headers: { authorization: 'Bearer one' } })).statusCode, 200)
  for (const name of ['metrics', 'rateLimiter', 'stores']) t.same(app.getDecorator(name), { ofHost: true })
})

test('the plugin can be registered twice under one prefix with constraints', async t => {
  const app = host(t)
  for (const name of ['red.example', 'blue.example']) {
    app.register(async function constrained (scope) {
      scope.addHook('onRoute', route => { route.constraints = { host: name } })
      scope.register(itemsUsers, { prefix: '/api' })
    })
  }
  const red = { host: 'red.example' }
  t.equal((await app.inject({ method: 'POST', url: '/api/items', payload: item, headers: red })).statusCode, 201)
  t.equal((await app.inject({ url: '/api/items/7', headers: red })).statusCode, 200)
  t.equal((await app.inject({ url: '/api/items/7', headers: { host: 'blue.example' } })).statusCode, 404)
  t.equal((await app.inject({ url: '/api/nope', headers: red })).body, '{"detail":"Path not found"}')
  t.equal((await app.inject({ method: 'PUT', url: '/api/items', headers: red })).headers.allow, 'GET, HEAD, POST, OPTIONS')
  t.equal((await app.inject({ url: '/api/items', headers: { host: 'green.example' } })).statusCode, 404)

  const versions = host(t)
  versions.addHook('onRoute', route => { route.constraints = { version: '2.0.0' } })
  versions.register(itemsUsers, { prefix: '/api' })
  t.equal((await versions.inject({ method: 'PUT', url: '/api/items', headers: { 'accept-version': '2.x' } })).statusCode, 405)
  t.equal((await versions.inject({ method: 'PUT', url: '/api/items' })).statusCode, 404)
})

test('with caseSensitive: false and ignoreTrailingSlash, all paths work, and the links of Redoc lead to its files', async t => {
  const app = host(t, { routerOptions: { caseSensitive: false, ignoreTrailingSlash: true } })
  app.register(async function shop (scope) {
    await scope.register(docs)
    scope.register(itemsUsers, { prefix: '/api' })
  }, { prefix: '/shops/:shop' })
  const created = await app.inject({ method: 'POST', url: '/Shops/1/API/Items', payload: item })
  t.equal(created.headers.location, './Items/7')
  t.same((await app.inject('/SHOPS/1/API/ITEMS/7')).json(), item)
  for (const url of ['/shops/1/redoc', '/shops/1/redoc/', '/SHOPS/1/REDOC/?x=/', '/shops/1/docs', '/shops/1/docs/']) {
    const { body } = await app.inject(url)
    const links = Array.from(body.matchAll(/(?:src|href|data-document)="(\.[^"]+)"/g), ([, link = '']) => new URL(link, `http://x${url}`).pathname)
    t.ok(links.length > 1, url)
    for (const link of links) t.equal((await app.inject(link)).statusCode, 200, `${url}: ${link}`)
  }
})

test('an HTTP/2 client can send a body without a content type and a length', async t => {
  const app = Fastify({ http2: true })
  t.teardown(() => app.close())
  app.register(itemsUsers, { prefix: '/api' })
  await app.listen({ port: 0 })
  const session = connect(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}`)
  t.teardown(() => session.close())
  const created = session.request({ ':method': 'POST', ':path': '/api/items' })
  t.same(await answer(created.end(JSON.stringify(item))), [201, JSON.stringify(item)])
  const deleted = session.request({ ':method': 'DELETE', ':path': '/api/users/1' })
  t.same(await answer(deleted.end()), [204, ''])

  async function answer (stream: ClientHttp2Stream) {
    const [headers] = await once(stream, 'response')
    return [headers[':status'], await text(stream)]
  }
})

test('auth inside another auth scope requires a token that both accept', async t => {
  const app = host(t)
  app.register(async function outer (scope) {
    await scope.register(auth, { tokens: ['reader', 'admin'] })
    scope.get('/read', async () => 'read')
    scope.register(async function inner (scope) {
      await scope.register(auth, { tokens: ['admin'] })
      scope.register(itemsUsers, { prefix: '/api' })
    })
  })
  const statusOf = async (url: string, token: string) => (await app.inject({ url, headers: { authorization: `Bearer ${token}` } })).statusCode
  t.same(await Promise.all([statusOf('/read', 'reader'), statusOf('/read', 'admin'), statusOf('/read', 'other')]), [200, 200, 401])
  t.same(await Promise.all([statusOf('/api/items', 'reader'), statusOf('/api/items', 'admin'), statusOf('/api/nope', 'reader')]), [401, 200, 401])
})

test('routes of a host keep their security next to ours in the document of docs', async t => {
  const app = host(t)
  await app.register(docs, { securitySchemes: { key: { type: 'apiKey', in: 'header', name: 'x-key' } } })
  app.get('/own', { schema: { security: [{ key: [] }] } }, async () => 'own')
  protect(app)
  const document = (await app.inject('/openapi.json')).json()
  t.same(document.paths['/own'].get.security, [{ key: [] }])
  t.same(document.paths['/api/items'].get.security, [{ bearer: ['items:read'] }])
  t.same(document.components.securitySchemes, {
    bearer: { type: 'http', scheme: 'bearer' },
    key: { type: 'apiKey', in: 'header', name: 'x-key' }
  })
  t.match(await new Validator().validate(document), { valid: true })
})

test('secured routes have the security scheme that a host chooses, in its own document too', async t => {
  const securitySchemes = { token: { type: 'http', scheme: 'bearer' } } as const
  for (const own of [true, false]) {
    const app = host(t)
    if (own) await app.register(swagger, { openapi: { info: { title: 'Host', version: '1.0.0' }, components: { securitySchemes } } })
    else await app.register(docs, { securitySchemes })
    protect(app, 'token')
    app.get('/open', async () => 'open')
    await app.ready()
    const { paths, components } = JSON.parse(JSON.stringify(app.swagger()))
    t.same(paths['/api/items'].get.security, [{ token: own ? [] : ['items:read'] }], 'only OpenAPI 3.1 allows scopes here')
    t.equal(paths['/open'].get.security, undefined)
    t.same(components.securitySchemes, securitySchemes)
  }
})

function protect (app: FastifyInstance, securityScheme?: string) {
  app.register(async function protectedApi (scope) {
    await scope.register(auth, { tokens: ['one'], ...securityScheme && { securityScheme } })
    scope.register(itemsUsers, { prefix: '/api' })
  })
}

test('errors at the root keeps the errors of a host readable, with their headers and codes', async t => {
  const querystring = {
    type: 'object',
    properties: { n: { type: 'integer' }, name: { type: 'string', minLength: 3, pattern: '^[a-z]+$' } },
    required: ['n']
  }
  const app = host(t)
  app.register(errors)
  app.get('/own', { schema: { querystring } }, async () => 'own')
  app.get('/formatted', { schema: { querystring }, schemaErrorFormatter: () => new Error('n, please') }, async () => 'own')
  app.get('/rejected', async () => {
    throw Object.assign(new Error('Sold out'), { statusCode: 409, code: 'SOLD_OUT', headers: { 'x-stock': '0' } })
  })
  app.get('/empty', async () => { throw Object.assign(new Error(''), { statusCode: 400 }) })
  app.post('/body', async () => 'own')

  t.same((await app.inject('/own')).json(), {
    detail: "querystring must have required property 'n'",
    errors: [{ in: 'query', path: '/n', message: 'is required' }],
    code: 'FST_ERR_VALIDATION'
  })
  t.equal((await app.inject('/own?n=x')).json().detail, 'querystring/n must be integer')
  t.equal((await app.inject('/own?n=1&name=a')).json().detail, 'querystring/name must NOT have fewer than 3 characters')
  t.equal((await app.inject('/own?n=1&name=ABC')).json().detail, 'querystring/name must match pattern "^[a-z]+$"')
  t.match((await app.inject('/formatted')).json(), { detail: 'n, please', errors: [{ in: 'query', path: '/n', message: 'is required' }] })
  const rejected = await app.inject('/rejected')
  t.same(rejected.json(), { detail: 'Sold out', code: 'SOLD_OUT' })
  t.equal(rejected.headers['x-stock'], '0')
  t.equal((await app.inject('/empty')).json().detail, 'Bad Request')
  const malformed = await app.inject({ method: 'POST', url: '/body', headers: { 'content-type': 'application/json' }, body: '{' })
  t.match(malformed.json().detail, /^Body is not valid JSON/)
})

async function documented (t: Test, options: DocsOptions, prefix = '') {
  const app = host(t)
  await app.register(async function scope (scope) {
    await scope.register(docs, options)
    scope.register(itemsUsers, { prefix: '/api' })
  }, { prefix })
  return app
}

test('a host chooses the title, description, version and servers of the document', async t => {
  const servers = [{ url: 'https://example.com/shop', description: 'Production' }, { url: '/here' }]
  const app = await documented(t, { title: 'Shop & <Co>', description: 'Sells', version: '2.3.4', servers })
  const document = (await app.inject('/openapi.json')).json()
  t.same(document.info, { title: 'Shop & <Co>', description: 'Sells', version: '2.3.4' })
  t.same(document.servers, servers)
  t.same((await app.inject('/docs/json')).json().servers, servers)
  for (const page of ['/docs', '/redoc']) t.match((await app.inject(page)).body, '<title>Shop &amp; &lt;Co></title>')
  const { info } = (await (await documented(t, { description: 'Ours' })).inject('/openapi.json')).json()
  t.match(info, { title: 'Items and users', description: 'Ours', license: { name: 'MIT' } })
})

test('a host chooses the paths of the document and of the pages', async t => {
  const app = await documented(t, { document: '/specs/v1/openapi.json', swaggerUi: '/pages/swagger', redoc: '/reference' }, '/shop')
  const { servers } = (await app.inject('/shop/specs/v1/openapi.json')).json()
  t.equal(new URL(servers[0].url, 'http://x/shop/specs/v1/openapi.json').pathname, '/')
  const copy = (await app.inject('/shop/pages/swagger/json')).json()
  t.equal(new URL(copy.servers[0].url, 'http://x/shop/pages/swagger/json').pathname, '/')
  for (const url of ['/shop/pages/swagger', '/shop/pages/swagger/', '/shop/reference', '/shop/reference/']) {
    const { body } = await app.inject(url)
    const links = Array.from(body.matchAll(/(?:src|href|data-document)="(\.[^"]+)"/g), ([, link = '']) => new URL(link, `http://x${url}`).pathname)
    t.ok(links.length > 1, url)
    for (const link of links) t.equal((await app.inject(link)).statusCode, 200, `${url}: ${link}`)
  }
  for (const url of ['/shop/openapi.json', '/shop/docs', '/shop/redoc']) t.equal((await app.inject(url)).statusCode, 404, url)
})

test('Swagger UI and Redoc can be disabled separately', async t => {
  for (const [options, expected] of [[{ swaggerUi: false }, [404, 200, 200]], [{ redoc: false }, [200, 404, 200]]] as const) {
    const app = await documented(t, options)
    const statuses = await Promise.all(['/docs', '/redoc', '/openapi.json'].map(async url => (await app.inject(url)).statusCode))
    t.same(statuses, expected)
  }
})
