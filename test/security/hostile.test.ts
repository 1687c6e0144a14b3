import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { readFileSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance, HTTPMethods } from 'fastify'
import { test } from 'tap'
import type { OwnStores } from '../../plugins/host-stores.js'
import { httpServerOptions } from '../../src/http-server.js'
import itemsUsers, { api, collection, type OwnStore, stores } from '../../src/index.js'
import { listen, request, sender } from '../support/connection.js'
import { newFolder } from '../support/folder.js'
import { build, host, invalidBody } from '../support/helper.js'
import { start } from '../support/process.js'
import { openSqlite } from '../support/sql.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }
const lamp = '{"id":1,"name":"Lamp","price":42.5}'

test('no response reveals software names or versions', async t => {
  const lines: string[] = []
  const limits = { RATE_LIMIT_MAX: '30', RATE_LIMIT_WINDOW: '3600000', BODY_LIMIT: '1000' }
  const app = build(t, { LOG_LEVEL: 'info', METRICS_PORT: '0', ...limits }, { write: line => lines.push(line) })
  app.addHook('preHandler', async ({ headers }) => { if (headers.fail) throw new Error('Fastify 5.0.0') })
  const send = await listen(app)
  const statuses = new Set<number>()
  for (const text of [
    ...['/api/items', '/api/items/9', '/api/items/x', '/livez', '/', '/docs', '/%zz', `/api/items/${'1'.repeat(4000)}`]
      .map(path => request('GET', path)),
    ...['HEAD', 'OPTIONS', 'PUT', 'PROPFIND'].map(method => request(method, '/api/items')),
    request('POST', '/api/items', JSON.stringify(item)),
    request('POST', '/api/items', JSON.stringify({ ...item, name: 'x'.repeat(2000) })),
    request('GET', '/api/items', '', 'Fail: 1'),
    request('GET', '/api/items', '', `Big: ${'x'.repeat(20_000)}`),
    'nonsense\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', '\x16\x03\x01\x02\x00\r\n\r\n',
    ...Array.from({ length: 30 }, () => request('GET', '/api/items'))
  ]) {
    const { status, raw } = await send(text)
    statuses.add(status)
    tellsNothing(raw, text.slice(0, 60))
  }
  t.same([...statuses].sort(), [200, 201, 204, 400, 404, 405, 413, 414, 429, 431, 500])

  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  const { body } = await send(request('GET', '/openapi.json'))
  t.same(new Set(body.match(/\d+\.\d+\.\d+/g)), new Set(['3.1.0', version]), 'only the version of the API')
  const sendToMetrics = sender(Number(/metrics at \S+:(\d+)/.exec(lines.join())?.[1]))
  for (const text of [request('GET', '/'), 'nonsense\r\n\r\n']) tellsNothing((await sendToMetrics(text)).raw, 'metrics')

  function tellsNothing (raw: string, what: string) {
    t.notMatch(raw, /^(server|x-powered-by|via|x-runtime|x-version)\s*:/im, what)
    t.notMatch(raw, /\bv?\d+\.\d+\.\d+|\b(fastify|node|node\.?js|pino|ajv|llhttp|undici|express)\b/i, what)
  }
})

test('an internal error has a short response without details', async t => {
  const path = `${newFolder(t)}/items.db`
  const server = start(t, { NODE_ENV: 'development', DATABASE_URL: `sqlite:${path}` })
  const send = sender(Number(new URL(await server.url).port))
  const database = openSqlite(path, 5000)
  database.exec('drop table items')
  database.close()
  for (const [method, target] of [['GET', '/api/items'], ['GET', '/api/items/1'], ['POST', '/api/items']] as const) {
    const { status, body } = await send(request(method, target, method === 'POST' ? JSON.stringify(item) : ''))
    t.same([status, body], [500, '{"detail":"Internal server error"}'], `${method} ${target}`)
  }
  await server.says('no such table')

  // A store of a host may throw anything.
  for (const failure of [
    new Error('the secret at /srv/app/store.js:1:1'),
    Object.assign(new TypeError('secret'), { statusCode: 500, code: 'ESECRET', expose: true, detail: 'secret' }),
    Object.assign(new Error('secret'), { statusCode: 200 }),
    'secret',
    { secret: 1, stack: 'at secret', message: 'secret' }
  ]) {
    const fail = () => { throw failure }
    const store: OwnStore<{ id: number }> = {
      append: async () => fail(),
      count: fail,
      first: fail,
      select: fail,
      change: fail
    }
    const app = host(t, httpServerOptions)
    app.register(itemsUsers, { prefix: '/api', store: { items: store, users: store } as OwnStores })
    for (const url of ['/api/items', '/api/items/1', '/api/users?limit=1']) {
      const { statusCode, body } = await app.inject(url)
      t.same([statusCode, body], [500, '{"detail":"Internal server error"}'], `${failure} ${url}`)
    }
  }
})

test('every route is in the OpenAPI document or is a documentation page', async t => {
  const routes: { method: HTTPMethods, path: string }[] = []
  // Before anyone can add a route, Fastify tells that there is an app.
  subscribe('fastify.initialization', watch)
  const env = { API_PREFIX: '/api,/api/v1', ID_SOURCE: 'server', RATE_LIMIT_MAX: '1000', METRICS_PORT: '0' }
  const app = build(t, env)
  unsubscribe('fastify.initialization', watch)
  const { paths } = (await app.inject('/openapi.json')).json()
  const others = routes.filter(({ method, path }) => !paths[path]?.[method === 'HEAD' ? 'get' : method.toLowerCase()])
  const isPage = /^\/(docs|redoc|openapi\.json$|favicon\.ico$|$)/
  t.same(others.filter(({ method, path }) => !isPage.test(path) || !['GET', 'HEAD'].includes(method)), [])
  t.same(Object.keys(paths).filter(path => !routes.some(route => route.path === path)), [])

  function watch (message: unknown) {
    const { fastify } = message as { fastify: FastifyInstance }
    fastify.addHook('onRoute', function note ({ method, url }) {
      for (const each of [method].flat()) routes.push({ method: each, path: url.replaceAll(/:(\w+)/g, '{$1}') })
    })
  }
})

test('no body, query, path or header changes Object.prototype', async t => {
  const app = build(t)
  const send = await listen(app)
  const before = Object.getOwnPropertyNames(Object.prototype)
  const unknown = [
    '"__proto__":{"polluted":1}', '"\\u005f_proto__":{"polluted":1}', '"constructor":{"prototype":{"polluted":1}}'
  ]
  for (const key of unknown) {
    for (const nested of [key, `"a":[[{"b":{${key}}}]]`, `${'"a":{'.repeat(80)}${key}${'}'.repeat(80)}`]) {
      const body = `{${nested},${JSON.stringify(item).slice(1)}`
      const response = await app.inject({ method: 'POST', url: '/api/items', body })
      const message = 'must not contain the key __proto__ or constructor.prototype'
      t.same(response.json(), invalidBody('body', ['', message]), nested.slice(0, 80))
    }
  }
  const query = '__proto__[polluted]=1&__proto__=polluted&constructor[prototype][polluted]=1&toString=1'
  t.equal((await app.inject(`/api/items?${query}`)).statusCode, 200)
  for (const id of ['__proto__', 'constructor', 'toString', '__proto__%2fpolluted']) {
    t.equal((await app.inject(`/api/items/${id}`)).statusCode, 400, id)
  }
  for (const key of ['__proto__', 'constructor', 'toString']) {
    const headers = [`Idempotency-Key: ${key}`, '__proto__: polluted', 'Cookie: __proto__=polluted']
    const { status, body } = await send(request('POST', `/api/items?${query}`, JSON.stringify(item), ...headers))
    t.same([status, body], [201, JSON.stringify(item)], 'a new record has its own fields and no other')
  }
  t.same(Object.getOwnPropertyNames(Object.prototype), before)
})

test('clients cannot add response headers', async t => {
  const send = await listen(build(t, { CORS_ORIGIN: 'https://example.com' }))
  const json = JSON.stringify({ ...item, name: 'x\r\nEvil: 1\r\n\r\n<script>' })
  const encoded = '%0d%0aEvil:%201%0d%0a%0d%0a%3Cscript%3E'
  const answer = async (text: string, status: number, expected = {}) => {
    const { headers, ...answer } = await send(text)
    t.equal(answer.status, status, text.slice(0, 200))
    t.match(headers, expected)
    t.notMatch(JSON.stringify(headers), /evil\.example|Evil: 1|<script>/)
    t.notOk('evil' in headers)
  }
  await answer(request('POST', `/api/items?${encoded}`, json), 201, { location: './items/7' })
  await answer(request('POST', `/api/items/${encoded}`, json), 405, { allow: 'GET, HEAD, OPTIONS' })
  await answer(request('GET', `/api/items?limit=1&x=${encoded}&y="><script>`), 200, {
    link: `<?limit=1&x=${encoded}&y=%22%3E%3Cscript%3E&after=MQ>; rel="next"`
  })
  await answer(request('GET', `/api/items?limit=1&after=${encoded}`), 400)
  await answer(request('GET', `/redoc/${encoded}`), 404)

  // Whose service it is, a client does not tell.
  for (const host of ['evil.example', '']) {
    const whose = [
      `X-Forwarded-Host: ${host}`,
      `Forwarded: host=${host}`,
      `X-Original-URL: //${host}`,
      'X-Request-Id: Evil: 1'
    ]
    const text = request('POST', '/api/items', json, ...whose).replace('Host: x', `Host: ${host}`)
    await answer(text, 201, { location: './items/7' })
  }
  await answer(request('GET', 'http://evil.example/api/items?limit=1'), 200, {
    link: '<?limit=1&after=MQ>; rel="next"'
  })

  // A line break as it is ends a header, or is malformed: there is no way to have it in one.
  for (const end of ['\r', '\n', '\r\n ', '\0']) {
    for (const name of ['Idempotency-Key', 'Origin', 'X-Request-Id']) {
      await answer(request('POST', '/api/items', json, `${name}: x${end}Evil: 1`), 400)
    }
  }
  const preflight = ['Origin: https://example.com', 'Access-Control-Request-Method: POST']
  const requested = `Access-Control-Request-Headers: a, ${encoded}`
  const expected = { 'access-control-allow-headers': `a, ${encoded}` }
  await answer(request('OPTIONS', '/api/items', '', ...preflight, requested), 204, expected)
})

/** What a forger would like to have for a line of its own in the log, or on a terminal. */
const forged = '{"level":30,"method":"DELETE","url":"/api/users/1","status":204,"msg":"request completed"}'
const evil = `x"}\r\n${forged}\n12:00:00 DELETE /\n\u001b[2J\u001b]0;owned\u0007\u009b31m\u0085\u2028\u202e\u0000`

test('line breaks in names, URLs and headers cannot forge log lines', async t => {
  const server = start(t, { TRUST_PROXY: '127.0.0.1' })
  const send = sender(Number(new URL(await server.url).port))
  const inHeader = Buffer.from(evil.replaceAll(/[\r\n\0]/g, ' '))
    .toString('latin1')
    .replaceAll(/[^\t -~\x80-\xff]/g, '')
  const escaped = encodeURIComponent(evil)
  const expected: object[] = []
  const logs = async (method: string, url: string, statusCode: number, body = '', ...headers: string[]) => {
    expected.push({ req: { method, url }, res: { statusCode } })
    t.equal((await send(request(method, url, body, ...headers))).status, statusCode, url)
  }
  await logs('POST', '/api/items', 201, JSON.stringify({ ...item, name: evil }))
  await logs('POST', '/api/items', 400, `{"${evil}`)
  for (const [url, status] of [
    ['/api/items/x"}%0d%0a{"level":60}%1b[2J%c2%9b31m', 400], ['/api/users/1?"}{"level":60,"msg":"x"}', 200],
    [`/api/items?after=${escaped}`, 400], [`/api/items/%zz${escaped}`, 400], [`/${escaped}`, 404]
  ] as const) await logs('GET', url, status)
  for (const name of ['User-Agent', 'X-Request-Id', 'Idempotency-Key', 'X-Forwarded-For', 'Authorization', 'Cookie']) {
    await logs('DELETE', '/api/users/9', 404, '', `${name}: ${inHeader}`)
  }
  for (const target of [`/${Buffer.from(evil).toString('latin1')}`, '/\x9b31m', `/${inHeader}`, '/\x1b[2J']) {
    expected.push({ res: { statusCode: 400 }, reason: /^Parse Error: [ -~]+$/, msg: 'request rejected' })
    t.equal((await send(request('GET', target))).status, 400)
  }
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
  t.equal(server.errors(), '')
  const lines: object[] = server.output().trim().split('\n').map(line => JSON.parse(line))
  t.equal(lines.length, expected.length + 2, 'a line for each request, one for the start and one for the end')
  for (const [n, line] of expected.entries()) t.match(lines[n + 1], line)
  const fields = new Set(lines.flatMap(line => Object.keys(line)))
  const known = ['hostname', 'level', 'msg', 'pid', 'reason', 'req', 'reqId', 'res', 'responseTime', 'time']
  t.same([...fields].sort(), known)
})

test('no path leads to other files of the machine, however it is written', async t => {
  const send = await listen(build(t))
  const up = '../'.repeat(12)
  const invalidUrl = invalidBody('path', ['', 'must be a valid URL'])
  const notHttp = invalidBody('request', ['', 'must be well-formed HTTP'])
  for (const [status, body, targets] of [
    [404, { detail: 'Path not found' }, [
      '/api/../secrets', '/api/items/../../etc/passwd', '//api/items', '/..', '/%2e%2e', '/.env', '/.git/config',
      '/package.json', '/etc/passwd', '/api/items\\1', '/api/items;x=1', '/docs/../../package.json',
      '/docs/static/..%2f..%2fpackage.json', '/docs/static/%2e%2e%2f%2e%2e%2fpackage.json',
      '/docs/static/%252e%252e%252fpackage.json', '/redoc/..%2f..%2fpackage.json', '/redoc/%2fetc%2fpasswd',
      '/redoc/../package.json', `/redoc/${up}etc/passwd`, '/redoc/%2e%2e/%2e%2e/package.json',
      '/redoc/..\\..\\package.json', '/redoc//etc/passwd', '/redoc/....//....//package.json',
      '/redoc/redoc.standalone.js%00', 'http://x/../etc/passwd', 'file:///etc/passwd'
    ]],
    [403, { detail: 'Forbidden' }, [
      '/docs/static/../package.json', `/docs/static/${up}etc/passwd`, '/docs/static/%2e%2e/%2e%2e/package.json',
      '/docs/static/..\\..\\package.json', '/docs/static/..%5c..%5cpackage.json'
    ]],
    [400, { detail: 'Bad Request' }, ['/docs/static/index.html%00.png', '/docs/static/%00']],
    [400, invalidUrl, ['/api/items/%c0%ae%c0%ae', '/redoc/%c0%ae%c0%ae%c0%afpackage.json', '/redoc/%ff', '/%']],
    [400, notHttp, ['\\api\\items', 'api/items', '../package.json', '?', '/redoc/\xff', '/api/items /1']]
  ] as const) {
    for (const target of targets) {
      const answer = await send(request('GET', target))
      t.equal(answer.status, status, target)
      t.match(JSON.parse(answer.body), body, target)
    }
  }
  for (const target of [
    'http://evil.example/api/items/1', '/api/items/%31', '/api/%69tems/1', '/api/items/1?/../../x'
  ]) {
    t.equal((await send(request('GET', target))).body, lamp, `${target} is what it says`)
  }
})

test('a body with many wrong values gets at most 50 problems, however deep they are', async t => {
  const app = host(t)
  const schema = Type.Object({ id: Type.Integer(), any: Type.Any() })
  app.register(collection, { prefix: '/things', name: 'things', schema })
  const headers = { 'content-type': 'application/json' }
  const send = (any: string) => app.inject({ method: 'POST', url: '/things', headers, body: `{"any":${any}}` })
  const halves = await send(JSON.stringify(Array(1000).fill('\ud800')))
  t.equal(halves.statusCode, 400)
  t.equal(halves.json().errors.length, 50)

  // The time of the longer one would be four times as long if each level were walked again.
  const seconds = async (depth: number) => {
    const start = process.cpuUsage().user
    const numbers = JSON.stringify(Array(20_000).fill(1))
    const response = await send(`${'['.repeat(depth)}"\\ud800",${numbers}${']'.repeat(depth)}`)
    t.match(response.json(), { detail: /must be well-formed Unicode text/ })
    return process.cpuUsage().user - start
  }
  await seconds(10)
  t.ok(await seconds(1000) < 20 * await seconds(10) + 1e6)
})

test('items ignore expand, like every parameter that they do not know', async t => {
  const app = build(t, { DOCS: 'false' })
  const { headers: { etag } } = await app.inject('/api/items/1')
  for (const query of ['expand=x', 'expand=a&expand=b']) {
    const response = await app.inject(`/api/items/1?${query}`)
    t.equal(response.body, '{"id":1,"name":"Lamp","price":42.5}')
    t.equal(response.headers.etag, etag)
  }
})

test('records that a hook of their own protects are not shown in others', async t => {
  const app = host(t)
  await app.register(stores)
  const Note = Type.Object({ id: Type.Integer() })
  const Comment = Type.Object({ id: Type.Integer(), note_id: Type.Integer() })
  const deny = async () => { throw Object.assign(new Error('No'), { statusCode: 403 }) }
  app.register(collection, {
    prefix: '/notes', name: 'notes', schema: Note, seed: [{ id: 1 }], routes: { get: { preHandler: deny } }
  })
  app.register(collection, {
    prefix: '/comments',
    name: 'comments',
    schema: Comment,
    seed: [{ id: 1, note_id: 1 }],
    references: { note_id: 'notes' }
  })
  t.equal((await app.inject('/comments/1')).statusCode, 200)
  const response = await app.inject('/comments/1?expand=note_id')
  t.equal(response.statusCode, 403)
  t.equal(response.json().detail, 'The records of notes cannot be read with expand')
})

test('headers of own routes are validated like everything else', async t => {
  const app = host(t)
  await app.register(api)
  const headers = Type.Object({ 'X-Tenant': Type.Integer() })
  app.get('/own', { schema: { headers } }, async request => ({ tenant: request.headers['x-tenant'] }))
  t.equal((await app.inject('/own')).json().detail, 'Invalid headers: x-tenant is required.')
  t.equal((await app.inject({ url: '/own', headers: { 'x-tenant': 'abc' } })).statusCode, 400)
  t.same((await app.inject({ url: '/own', headers: { 'x-tenant': '7' } })).json(), { tenant: 7 })
})
