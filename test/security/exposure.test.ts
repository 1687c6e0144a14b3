import type { OwnStores } from '../../plugins/host-stores.js'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { type FastifyInstance, type HTTPMethods } from 'fastify'
import { test, type Test } from 'tap'
import { httpServerOptions } from '../../src/http-server.js'
import itemsUsers, { type OwnStore } from '../../src/index.js'
import type { DestinationStream } from 'pino'
import { listen, open, request, sender } from '../support/connection.js'
import { newFolder } from '../support/folder.js'
import { build, collections, host } from '../support/helper.js'
import { start } from '../support/process.js'
import { openSqlite } from '../support/sql.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }
const lamp = '{"id":1,"name":"Lamp","price":42.5}'

test('with AUTH_TOKENS, every operation requires a token, however its path is written', async t => {
  const { app, routes } = buildWithRoutes(t, { AUTH_TOKENS: 'one' })
  const send = await listen(app)
  const guarded = routes.filter(({ url }) => url.startsWith('/api'))
  t.same(guarded.map(({ method, url }) => `${method} ${url}`).sort(), [
    'DELETE /api/users/:id', 'GET /api/items', 'GET /api/items/:item_id', 'GET /api/users', 'GET /api/users/:id', 'HEAD /api/items',
    'HEAD /api/items/:item_id', 'HEAD /api/users', 'HEAD /api/users/:id', 'POST /api/items', 'POST /api/users'
  ])
  for (const { method, url } of guarded) {
    const path = url.replace(/:\w+/, '1')
    for (const written of [path, `${path}?x=1`, `http://x${path}`, path.replace('items', '%69tems').replace('users', '%75sers'), path.replace('/api', '/%61pi')]) {
      for (const token of [[], ['Authorization: Bearer two'], ['Authorization: Basic b25lOm9uZQ=='], ['X-Authorization: Bearer one'], ['Cookie: token=one'], ['X-HTTP-Method-Override: GET']]) {
        const answer = await send(request(method, written, method === 'POST' ? JSON.stringify(item) : '', ...token))
        t.equal(answer.status, 401, `${method} ${written} ${token}`)
        t.notMatch(answer.body, /Lamp|Ada|Kettle/)
      }
    }
  }
  for (const path of ['//api/items', '/api//items', '/docs/../api/items', '/livez/../api/items', '/docs/static/../../api/items', '/API/items', '/api/items/', '/api/items?access_token=one', '/openapi.json/../api/items']) {
    const answer = await send(request('GET', path))
    t.ok([401, 403, 404].includes(answer.status), `${path} ${answer.status}`)
    t.notMatch(answer.body, 'Lamp')
  }
  for (const { path, initial } of collections) {
    t.same((await app.inject({ url: path, headers: { authorization: 'Bearer one' } })).json(), [initial], 'and nothing was done')
  }
})

test('no response reveals software names or versions', async t => {
  const lines: string[] = []
  const log: DestinationStream = { write: line => lines.push(line) }
  const app = build(t, { LOG_LEVEL: 'info', METRICS_PORT: '0', RATE_LIMIT_MAX: '40', RATE_LIMIT_WINDOW: '3600000', BODY_LIMIT: '1000', MAX_EVENT_LOOP_DELAY: '60000' }, log)
  app.addHook('preHandler', async ({ headers }) => {
    if (headers.fail) throw new Error('Fastify 5.0.0')
  })
  const send = await listen(app)
  const sendToMetrics = sender(Number(/metrics at \S+:(\d+)/.exec(lines.join())?.[1]))
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))

  const statuses = []
  for (const text of [
    ...['/api/items', '/api/items/1', '/api/items/9', '/api/items/x', '/api/users?limit=1', '/livez', '/readyz', '/', '/nope', '/docs', '/redoc', '/%zz', `/api/items/${'1'.repeat(4000)}`].map(path => request('GET', path)),
    ...['HEAD', 'OPTIONS', 'PUT', 'TRACE', 'PROPFIND'].map(method => request(method, '/api/items')),
    request('POST', '/api/items', JSON.stringify(item)),
    request('POST', '/api/items', '{'),
    request('POST', '/api/items', JSON.stringify({ ...item, name: 'x'.repeat(2000) })),
    request('DELETE', '/api/users/1'),
    request('GET', '/api/items', '', 'Fail: 1'),
    request('GET', '/api/items', '', `Big: ${'x'.repeat(20_000)}`),
    request('GET', '/api/items').replace('Host: x\r\n', ''),
    'nonsense\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', '\x16\x03\x01\x02\x00\r\n\r\n',
    ...Array.from({ length: 40 }, () => request('GET', '/api/items'))
  ]) {
    const answer = await send(text)
    statuses.push(answer.status)
    tellsNothing(answer.raw, text.slice(0, 60))
  }
  t.same([...new Set(statuses)].sort(), [200, 201, 204, 400, 404, 405, 413, 414, 429, 431, 500])

  for (const path of ['/openapi.json', '/docs/json', '/docs/yaml', '/docs/static/swagger-initializer.js', '/redoc/init.js']) {
    const { raw, headers, body } = await send(request('GET', path))
    tellsNothing(raw.replace(body, ''), path)
    t.same(new Set(body.match(/\d+\.\d+\.\d+/g)), new Set(body.includes('3.1.0') ? ['3.1.0', version] : []), `${path} has the version of the API alone`)
    t.ok(headers['content-type'])
  }

  // The figures are for whoever runs it: two of them are the versions of Node and of the service, on purpose.
  const figures = await sendToMetrics(request('GET', '/metrics'))
  t.equal(figures.status, 200)
  tellsNothing(figures.raw.replace(/version=0\.0\.4/, '').replaceAll(/^.*(nodejs_version_info|items_users_build_info).*$/gm, '').replaceAll(/\bnodejs_/g, '').replaceAll(/^# HELP .*$/gm, ''), 'figures')
  for (const text of [request('GET', '/'), request('POST', '/nope', '{'), 'nonsense\r\n\r\n']) tellsNothing((await sendToMetrics(text)).raw, 'metrics')

  function tellsNothing (raw: string, what: string) {
    t.notMatch(raw, /^(server|x-powered-by|via|x-runtime|x-version)\s*:/im, what)
    t.notMatch(raw, /\bv?\d+\.\d+\.\d+|\b(fastify|node|node\.?js|pino|ajv|llhttp|undici|express)\b/i, what)
  }
})

test('an internal error has a short response without details, with any NODE_ENV', async t => {
  for (const NODE_ENV of ['development', 'production']) {
    const path = `${newFolder(t)}/items.db`
    const server = start(t, { NODE_ENV, DATABASE_URL: `sqlite:${path}` })
    const send = sender(Number(new URL(await server.url).port))
    t.equal((await send(request('GET', '/api/items'))).body, `[${lamp}]`)
    const database = openSqlite(path, 5000)
    database.exec('drop table items')
    database.close()
    for (const text of [request('GET', '/api/items'), request('GET', '/api/items/1'), request('GET', '/api/items?limit=1'), request('POST', '/api/items', JSON.stringify(item))]) {
      const { status, headers, body } = await send(text)
      t.equal(status, 500, `${NODE_ENV} ${text.split('\r', 1)}`)
      t.equal(headers['content-type'], 'application/json; charset=utf-8')
      t.equal(body, '{"detail":"Internal server error"}')
    }
    await server.says('no such table')
    server.process.kill('SIGTERM')
    await server.exit
  }

  // A store of a host's own, which may throw anything at any time.
  const failures: Record<string, unknown> = {
    error: new Error('the secret at /srv/app/store.js:1:1'),
    typed: Object.assign(new TypeError('secret'), { statusCode: 500, code: 'ESECRET', expose: true, detail: 'select secret' }),
    odd: Object.assign(new Error('secret'), { statusCode: 200 }),
    text: 'secret',
    object: { secret: 1, stack: 'at secret', message: 'secret' }
  }
  for (const [name, failure] of Object.entries(failures)) {
    const thrower = () => { throw failure }
    const store: OwnStore<{ id: number }> = {
      append: async () => thrower(), count: thrower, first: thrower, select: ({ limit }) => limit === undefined ? thrower() : Promise.reject(failure), change: thrower
    }
    const app = host(t, httpServerOptions)
    app.register(itemsUsers, { prefix: '/api', store: { items: store, users: store } as OwnStores })
    for (const options of [{ url: '/api/items' }, { url: '/api/items/1' }, { url: '/api/users?limit=1' }, { method: 'POST', url: '/api/items', payload: item }, { method: 'DELETE', url: '/api/users/1' }] as const) {
      const { statusCode, body } = await app.inject(options)
      t.equal(statusCode, 500, `${name} ${options.url}`)
      t.equal(body, '{"detail":"Internal server error"}')
    }
  }
})

test('a column that is added to a table does not appear in responses', async t => {
  const path = `${newFolder(t)}/items.db`
  const url = `sqlite:${path}`
  const first = build(t, { DATABASE_URL: url })
  await first.ready()
  await first.close()
  const database = openSqlite(path, 5000)
  for (const table of ['items', 'users']) database.exec(`alter table ${table} add column password text default 'sesame'`)
  database.close()
  const app = build(t, { DATABASE_URL: url })
  for (const { path, initial, record } of collections) {
    const payload = { ...record, password: 'open', position: 0, isAdmin: true }
    t.same((await app.inject({ method: 'POST', url: path, payload })).json(), record)
    t.same((await app.inject(`${path}/7`)).json(), record)
    t.same((await app.inject(path)).json(), [initial, record])
    t.same((await app.inject(`${path}?limit=10&fields=password&select=*`)).json(), [initial, record])
  }
})

test('the service does not connect to hosts that a client names', async t => {
  let connections = 0
  const other = createServer(socket => {
    connections++
    socket.destroy()
  }).listen(0, '127.0.0.1')
  t.teardown(() => other.close())
  await once(other, 'listening')
  const host = `127.0.0.1:${(other.address() as AddressInfo).port}`
  const url = `http://${host}/`
  const send = await listen(build(t, { TRUST_PROXY: '127.0.0.1', CORS_ORIGIN: '*' }))
  const headers = ['Origin', 'Referer', 'Forwarded', 'X-Forwarded-For', 'X-Forwarded-Host', 'X-Original-URL', 'X-Rewrite-URL', 'Callback-URL', 'Link', 'Destination', 'Profile']
    .map(name => `${name}: ${url}`)
  const body = JSON.stringify({ ...item, name: url, url, $ref: url, $schema: url, webhook: url, image: `<img src="${url}">` })
  const encoded = encodeURIComponent(url)
  t.equal((await send(request('POST', '/api/items', body, ...headers))).status, 201)
  t.equal((await send(request('GET', `/api/items?url=${encoded}&callback=${encoded}`, '', ...headers))).status, 200)
  t.equal((await send(request('GET', `/docs?url=${encoded}&configUrl=${encoded}`, '', ...headers))).status, 200)
  t.equal((await send(request('GET', `/redoc?url=${encoded}`, '', ...headers))).status, 200)
  t.equal((await send(request('GET', `${url}api/items`))).status, 200)
  t.equal((await send(request('GET', '/api/items').replace('Host: x', `Host: ${host}`))).status, 200)
  t.equal(connections, 0)
  await open((other.address() as AddressInfo).port).received
  t.equal(connections, 1, 'and it would have been seen')
})

test('every route is in the OpenAPI document or is a documentation page', async t => {
  for (const env of [{}, { API_PREFIX: '/api,/api/v1', ID_SOURCE: 'server', AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '1000', CORS_ORIGIN: '*', SECURITY_HEADERS: 'true', METRICS_PORT: '0', MAX_EVENT_LOOP_DELAY: '10000' }]) {
    const { app, routes } = buildWithRoutes(t, env)
    const { paths } = (await app.inject('/openapi.json')).json()
    const described = Object.entries<object>(paths).flatMap(([path, methods]) => Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`))
    const served = routes.map(({ method, url }) => ({ method, url: url.replaceAll(/:(\w+)/g, '{$1}') }))
    const undescribed = served.filter(({ method, url }) => !described.includes(`${method === 'HEAD' ? 'GET' : method} ${url}`))
    t.same(undescribed.filter(({ url }) => !/^\/(docs|redoc|openapi\.json$|favicon\.ico$|$)/.test(url)).map(({ method, url }) => `${method} ${url}`),
      'CORS_ORIGIN' in env ? ['OPTIONS *'] : [], 'but the preflights of browsers')
    t.same(undescribed.filter(({ method, url }) => url !== '*' && method !== 'GET' && method !== 'HEAD'), [], 'a page can only be read')
    t.same(described.filter(name => !served.some(({ method, url }) => name === `${method} ${url}`)), [], 'and what is described is there')
  }
})

/** The whole service, and every route that it has when it is ready, one method at a time. */
function buildWithRoutes (t: Test, env: NodeJS.ProcessEnv) {
  const routes: { method: HTTPMethods, url: string }[] = []
  // Before anyone can add a route, Fastify tells that there is an app.
  subscribe('fastify.initialization', watch)
  const app = build(t, env)
  unsubscribe('fastify.initialization', watch)
  return { app, routes }

  function watch (message: unknown) {
    const { fastify } = message as { fastify: FastifyInstance }
    fastify.addHook('onRoute', function note ({ method, url }) {
      for (const each of [method].flat()) routes.push({ method: each, url })
    })
  }
}
