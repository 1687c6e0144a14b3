import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import Fastify, { type FastifyInstance, type HTTPMethods, type InjectOptions } from 'fastify'
import Database from 'libsql'
import { test, type Test } from 'tap'
import itemsUsers, { httpServerOptions, type Store } from '../src/index.js'
import { readable, type LogStream } from '../src/logger.js'
import { newFolder } from './folder.js'
import { build, collections, invalidBody } from './helper.js'
import { start } from './process.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }
const lamp = '{"id":1,"name":"Lamp","price":42.5}'

/** What a forger would like to have for a line of its own in the log, or on a terminal. */
const forged = '{"level":30,"method":"DELETE","url":"/api/users/1","status":204,"ms":1,"msg":"request completed"}'
const evil = `x"}\r\n${forged}\n12:00:00 DELETE /api/users/1 204 in 1.0 ms\n\u001b[2J\u001b]0;owned\u0007\u009b31m\u0085\u2028\u202e\u0000`

test('SECURITY.md goes through all ten risks, and every test that it names is there', async t => {
  const sections = readFileSync('SECURITY.md', 'utf8').split(/^##+ /m).slice(1).map(section => ({
    title: section.split('\n', 1)[0] ?? '',
    tests: Array.from(section.matchAll(/^- `(test\/[\w-]+\.test\.ts)`: (.+)$/gm), ([, file = '', name = '']) => ({ file, name })),
    lines: section.match(/^- .+$/gm)?.length ?? 0
  }))
  const risks = [
    'Broken Object Level Authorization', 'Broken Authentication', 'Broken Object Property Level Authorization',
    'Unrestricted Resource Consumption', 'Broken Function Level Authorization', 'Unrestricted Access to Sensitive Business Flows',
    'Server Side Request Forgery', 'Security Misconfiguration', 'Improper Inventory Management', 'Unsafe Consumption of APIs'
  ]
  const titles = sections.map(({ title }) => title)
  t.same(titles.filter(title => title.startsWith('API')), risks.map((risk, n) => `API${n + 1}:2023 ${risk}`))
  for (const { title, tests, lines } of sections.slice(titles.indexOf('API1:2023 Broken Object Level Authorization'))) {
    t.equal(tests.length, lines, `${title}: every line names a test`)
    t.ok(tests.length > 0 || title === 'And besides', `${title}: a test shows it`)
    for (const { file, name } of tests) {
      t.ok(isTestIn(readFileSync(file, 'utf8'), name), `${file} has the test "${name}"`)
    }
  }
  const named = sections.flatMap(({ tests }) => tests.map(({ name }) => name))
  const here = Array.from(readFileSync('test/security.test.ts', 'utf8').matchAll(/^test\('(.+?)', /gm), ([, name = '']) => name)
  t.same(here.slice(1).filter(name => !named.includes(name)), [], 'it names all others of this file')

  /** A test is the first argument of what runs it, on one engine or on several. */
  function isTestIn (code: string, name: string) {
    return ['test', 'onDatabases', 'onPostgres'].some(run => code.includes(`${run}('${name}', `))
  }
})

test('no body, query, path or header changes what every object has', async t => {
  const app = build(t, { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '1000', CORS_ORIGIN: '*' })
  const send = await listen(app)
  const authorization = 'Bearer one'
  const before = Object.getOwnPropertyNames(Object.prototype)
  const keys = ['"__proto__":{"polluted":1}', '"__proto__":"x"', '"\\u005f_proto__":{"polluted":1}', '"constructor":{"prototype":{"polluted":1}}']
  for (const { path, record } of collections) {
    for (const key of keys) {
      for (const nested of [key, `"a":{${key}}`, `"a":[[{"b":{${key}}}]]`, `${'"a":{'.repeat(1000)}${key}${'}'.repeat(1000)}`]) {
        const body = `{${nested},${JSON.stringify(record).slice(1)}`
        const response = await app.inject({ method: 'POST', url: path, body, headers: { authorization } })
        t.equal(response.statusCode, 400, body.slice(0, 80))
        t.same(response.json(), invalidBody('body', ['', 'must not have a key __proto__ or constructor.prototype']))
      }
    }
    const query = '__proto__[polluted]=1&__proto__.polluted=1&__proto__=polluted&constructor[prototype][polluted]=1&constructor=polluted&toString=1&hasOwnProperty=1'
    t.equal((await app.inject({ url: `${path}?${query}`, headers: { authorization } })).statusCode, 200)
    for (const id of ['__proto__', 'constructor', 'toString', '__proto__%2fpolluted']) {
      t.equal((await app.inject({ url: `${path}/${id}`, headers: { authorization } })).statusCode, 400, id)
    }
    t.equal((await app.inject({ url: `/api/__proto__?${query}`, headers: { authorization } })).statusCode, 404)
    for (const key of ['__proto__', 'constructor', 'toString']) {
      const answer = await send(request('POST', `${path}?${query}`, JSON.stringify(record),
        `Authorization: ${authorization}`, `Idempotency-Key: ${key}`, '__proto__: polluted', 'constructor: polluted', 'Cookie: __proto__=polluted'))
      t.equal(answer.status, 201, key)
      t.equal(answer.body, JSON.stringify(record), 'a new record has its own fields and no other')
    }
  }
  t.equal(({} as { polluted?: unknown }).polluted, undefined)
  t.same(Object.getOwnPropertyNames(Object.prototype), before)
  for (const { path, initial, record } of collections) {
    t.same((await app.inject({ url: path, headers: { authorization } })).json(), [initial, record, record, record])
  }
})

test('nothing that a client sends adds a header to an answer', async t => {
  const app = build(t, { CORS_ORIGIN: 'https://example.com' })
  const send = await listen(app)
  const json = JSON.stringify({ ...item, name: 'x\r\nEvil: 1\r\n\r\n<script>' })
  const encoded = '%0d%0aEvil:%201%0d%0a%0d%0a%3Cscript%3E'
  const known = ['access-control-allow-headers', 'access-control-allow-methods', 'access-control-allow-origin', 'access-control-expose-headers',
    'access-control-max-age', 'allow', 'connection', 'content-length', 'content-security-policy', 'content-type', 'date', 'link', 'location', 'vary']
  const answer = async (text: string | Buffer, status: number, expected = {}) => {
    const { headers, ...answer } = await send(text)
    t.equal(answer.status, status, String(text).slice(0, 200))
    t.same(Object.keys(headers).filter(name => !known.includes(name)), [])
    t.match(headers, expected)
    t.notMatch(JSON.stringify(headers), /Evil: 1|evil\.example|<script>/)
    if (status !== 204) t.ok(JSON.parse(answer.body))
  }

  await answer(request('POST', '/api/items', json), 201, { location: '/api/items/7' })
  await answer(request('POST', `/api/items?${encoded}`, json), 201, { location: '/api/items/7' })
  await answer(request('POST', `/api/items/${encoded}`, json), 405, { allow: 'GET, HEAD' })
  await answer(request('PUT', `/api/users/${encoded}`, json), 405, { allow: 'GET, HEAD, DELETE' })
  await answer(request('GET', `/api/items?limit=1&x=${encoded}&${encoded}=1&y="><script>`), 200, {
    link: '</api/items?limit=1&x=%0D%0AEvil%3A+1%0D%0A%0D%0A%3Cscript%3E&%0D%0AEvil%3A+1%0D%0A%0D%0A%3Cscript%3E=1&y=%22%3E%3Cscript%3E&after=NDA5Ng>; rel="next"'
  })
  await answer(request('GET', `/api/items?limit=1&after=${encoded}`), 400)
  await answer(request('GET', `/api/items?limit=${encoded}`), 400)
  await answer(request('GET', `/api/${encoded}`), 404)
  await answer(request('GET', `/redoc/${encoded}`), 404)

  // Whose service it is, a client does not tell.
  for (const host of ['evil.example', 'evil.example\x9b/<script>', '']) {
    const whose = [`X-Forwarded-Host: ${host}`, 'X-Forwarded-Proto: javascript', `Forwarded: host=${host}`, `X-Original-URL: //${host}`, 'X-Request-Id: Evil: 1']
    await answer(request('POST', '/api/items', json, ...whose).replace('Host: x', `Host: ${host}`), 201, { location: '/api/items/7' })
    await answer(request('GET', '/api/items?limit=1', '', ...whose).replace('Host: x', `Host: ${host}`), 200, { link: '</api/items?limit=1&after=NDA5Ng>; rel="next"' })
  }
  for (const target of ['http://evil.example/api/items', 'http://u:p@evil.example:80/api/items']) {
    await answer(request('POST', target, json), 201, { location: '/api/items/7' })
    await answer(request('GET', `${target}?limit=1`), 200, { link: '</api/items?limit=1&after=NDA5Ng>; rel="next"' })
  }

  // A line break as it is ends a header, or is malformed: there is no way to have it in one.
  for (const end of ['\r', '\n', '\r\n ', '\0']) {
    for (const name of ['Idempotency-Key', 'Host', 'Origin', 'Access-Control-Request-Headers', 'X-Request-Id']) {
      await answer(request('POST', '/api/items', json, `${name}: x${end}Evil: 1`), 400)
    }
    await answer(request('GET', `/api/items?limit=1&x=${end}Evil: 1`), 400)
  }
  await answer(request('POST', '/api/items', json, 'Idempotency-Key: x\x9by'), 400)
  const preflight = ['Origin: https://example.com', 'Access-Control-Request-Method: POST', `Access-Control-Request-Headers: a, ${encoded}`]
  await answer(request('OPTIONS', '/api/items', '', ...preflight), 204, { 'access-control-allow-headers': `a, ${encoded}` })
})

test('a name, a URL or a header with line breaks does not forge a line of the log', async t => {
  const server = start(t, { TRUST_PROXY: '127.0.0.1', AUTH_TOKENS: 'one' })
  const send = sender(Number(new URL(await server.url).port))
  const told = Buffer.from(evil.replaceAll(/[\r\n\0]/g, ' ')).toString('latin1').replaceAll(/[^\t -~\x80-\xff]/g, '')
  const escaped = encodeURIComponent(evil)
  const token = 'Authorization: Bearer one'
  const expected: object[] = []
  const logs = async (method: string, url: string, body: string, headers: string[], line: object) => {
    expected.push(line)
    const { status } = await send(request(method, url, body, ...headers))
    t.match(line, { status })
  }

  await logs('POST', '/api/items', JSON.stringify({ ...item, name: evil }), [token], { method: 'POST', url: '/api/items', status: 201, ip: '127.0.0.1' })
  await logs('POST', '/api/items', `{"${evil}`, [token], { method: 'POST', url: '/api/items', status: 400, ip: '127.0.0.1' })
  for (const [path, status] of [
    ['/api/items/x"}%0d%0a{"level":60}%1b[2J%c2%9b31m', 400], ['/api/users/1?"}{"level":60,"msg":"x"}', 200],
    [`/api/items?after=${escaped}`, 400], [`/api/items/%zz${escaped}`, 400], [`/api/items/${escaped}`, 414], [`/${escaped}`, 404]
  ] as const) await logs('GET', path, '', [token], { method: 'GET', url: path, status, ip: '127.0.0.1' })
  for (const header of ['User-Agent', 'Referer', 'X-Request-Id', 'Request-Id', 'Idempotency-Key', 'Host', 'X-Forwarded-Host', 'Content-Type', 'Cookie']) {
    const text = request('DELETE', '/api/users/9', '', token, header === 'Host' ? '' : `${header}: ${told}`).replace('\r\n\r\n\r\n', '\r\n\r\n')
    expected.push({ method: 'DELETE', url: '/api/users/9', status: 404, ip: '127.0.0.1' })
    t.equal((await send(header === 'Host' ? text.replace('Host: x', `Host: ${told}`) : text)).status, 404, header)
  }
  await logs('GET', '/api/items', '', [`Authorization: Bearer ${told}`], { method: 'GET', url: '/api/items', status: 401, ip: '127.0.0.1' })

  // What a trusted proxy says, it says as it is.
  const address = told.split(',').at(-1)?.trim()
  await logs('GET', '/openapi.json', '', [`X-Forwarded-For: ${told}`], { method: 'GET', url: '/openapi.json', status: 200, ip: address })

  // What is no HTTP, or not in a URL, is refused with a word of Node's own.
  for (const target of [`/${Buffer.from(evil).toString('latin1')}`, '/\x9b31m', '/\xff', `/${told}`, '/\x1b[2J']) {
    expected.push({ status: 400, reason: /^Parse Error: [ -~]+$/, msg: 'request refused' })
    t.equal((await send(request('GET', target))).status, 400)
  }
  expected.push({ status: 400, reason: /^Parse Error: [ -~]+$/, msg: 'request refused' })
  t.equal((await send(`${told}\r\n\r\n`)).status, 400)

  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])
  t.equal(server.errors(), '')
  const lines = server.output().split('\n')
  t.equal(lines.pop(), '')
  const parsed: Record<string, unknown>[] = lines.map(line => JSON.parse(line))
  t.match(parsed[0]?.msg, /^API at /)
  t.match(parsed.at(-1), { msg: 'closing on SIGTERM' })
  t.equal(parsed.length, expected.length + 2, 'a line a request, and none besides')
  for (const [n, line] of expected.entries()) t.match(parsed[n + 1], line)
  const fields = new Set(parsed.flatMap(line => Object.keys(line)))
  t.same([...fields].sort(), ['ip', 'level', 'method', 'ms', 'msg', 'reason', 'status', 'time', 'url'])
  t.notOk(parsed.some(line => line.method === 'DELETE' && line.status === 204))
})

test('at a terminal, what a client sends neither forges a line nor speaks to the terminal', async t => {
  let shown = ''
  const app = build(t, { LOG_LEVEL: 'info' }, { write: line => { shown += readable(line) } })
  // A message may repeat what was sent: one of a trigger in the database, or of a hook around the routes.
  app.addHook('preHandler', async ({ body }) => {
    if (body) throw new Error((body as typeof item).name)
  })
  const shows = async (options: InjectOptions, ...lines: RegExp[]) => {
    shown = ''
    await app.inject(options)
    t.same(controlsIn(shown), [])
    const own = shown.split('\n').filter(line => /^\d\d:\d\d:\d\d /.test(line))
    t.equal(own.length, lines.length, JSON.stringify(own))
    for (const [n, line] of lines.entries()) t.ok(line.test(own[n] ?? ''), JSON.stringify(own[n]))
  }
  const where = / POST \/api\/items 500 in \d+\.\d ms$/
  await shows({ method: 'POST', url: '/api/items', payload: item }, / ERROR Kettle$/, where)
  await shows({ method: 'POST', url: '/api/items', payload: { ...item, name: evil } }, / ERROR x"}\\u000d\\u000a{.+\\u001b\[2J.+\\u009b31m/, where)
  await shows({ url: `/api/items?after=${encodeURIComponent(evil)}` }, / GET \/api\/items\?after=x%22%7D%0D%0A.+ 400 in /)

  const line = { time: 0, level: 30, status: 200, ms: 1, method: 'GET', url: `/${evil}` }
  const text = readable(JSON.stringify(line))
  t.same(controlsIn(text), [])
  t.equal(text.split('\n').length, 2, 'also where a URL would come with them')
  t.match(readable(JSON.stringify({ ...line, url: '/Zoë 🫖 👩‍👩‍👧' })), / GET \/Zoë 🫖 👩‍👩‍👧 200 in 1\.0 ms\n$/, 'and letters stay letters')

  /** What a terminal would act on, or a reader of lines take for the end of one, but the plain line break; by its code. */
  function controlsIn (text: string) {
    return Array.from(text.matchAll(/[^\P{Cc}\n]|[\p{Zl}\p{Zp}\p{Bidi_Control}]/gu), ([character]) => character.charCodeAt(0).toString(16))
  }
})

test('no path, however it is written, leads to a file of the machine', async t => {
  const send = await listen(build(t))
  const invalidUrl = invalidBody('path', ['', 'must be a valid URL'])
  const notHttp = invalidBody('request', ['', 'must be well-formed HTTP'])
  const notFound = { detail: 'Path not found' }
  const forbidden = { detail: 'Forbidden' }
  const noInteger = invalidBody('path', ['/item_id', 'must be an integer'])
  const up = '../'.repeat(12)
  for (const [status, body, targets] of [
    [404, notFound, [
      '/api/../secrets', '/api/items/../../etc/passwd', '//api/items', '/api//items', '///', '/.', '/..', '/%2e%2e', '/.env', '/.git/config',
      '/package.json', '/etc/passwd', '/api/items/1/', '/api/items\\1', '/API/items', '/api/items;x=1', '/docs/../../package.json',
      '/docs/static/..%2f..%2fpackage.json', '/docs/static/%2e%2e%2f%2e%2e%2fpackage.json', '/docs/static/%252e%252e%252fpackage.json',
      '/redoc/..%2f..%2fpackage.json', '/redoc/%2fetc%2fpasswd', '/redoc/redoc.standalone.js/x', '/redoc/.git/config',
      'http://x/../etc/passwd', 'file:///etc/passwd', 'https://x/docs/static/..%2f..%2fpackage.json', '*'
    ]],
    [403, forbidden, [
      '/docs/static/../package.json', `/docs/static/${up}etc/passwd`, '/docs/static/%2e%2e/package.json', '/docs/static/%2e%2e/%2e%2e/%2e%2e/package.json',
      '/docs/static/..\\..\\package.json', '/docs/static/..%5c..%5cpackage.json', '/docs/static/index.html%00.png', '/docs/static/%00',
      '/redoc/../package.json', '/redoc/../../package.json', `/redoc/${up}etc/passwd`, '/redoc/%2e%2e/%2e%2e/package.json', '/redoc/..\\..\\package.json',
      '/redoc//etc/passwd', '/redoc/....//....//package.json', '/redoc/redoc.standalone.js%00', '/redoc/.', `/redoc/${'x'.repeat(300)}`
    ]],
    [400, noInteger, ['/api/items/%2e%2e%2f', '/api/items/..%2f..', '/api/items/1%00', '/api/items/%00', '/api/items/1;x=1', '/api/items/..']],
    [400, invalidUrl, ['/api/items/%c0%ae%c0%ae', '/redoc/%c0%ae%c0%ae%c0%afpackage.json', '/docs/static/%c0%ae%c0%ae/package.json', '/redoc/%e0%80%ae', '/redoc/%ff', '/%']],
    [400, notHttp, ['\\api\\items', 'api/items', '../package.json', '?', '/redoc/\xff', '/redoc/\xc0\xae\xc0\xae/package.json', '/api/items /1']]
  ] as const) {
    for (const target of targets) {
      const answer = await send(request('GET', target))
      t.equal(answer.status, status, target)
      t.equal(answer.headers['content-type'], 'application/json; charset=utf-8')
      t.same(JSON.parse(answer.body), body, target)
    }
  }
  for (const method of ['OPTIONS', 'POST', 'DELETE']) t.same(JSON.parse((await send(request(method, '*'))).body), notFound)
  for (const target of ['http://x/api/items/1', 'http://evil.example/api/items/1', '/api/items/%31', '/api/%69tems/1', '/api/items/1?/../../x', '/api/items/1#/..']) {
    t.equal((await send(request('GET', target))).body, lamp, `${target} is what it says`)
  }
  t.equal((await send(request('GET', '/redoc/LICENSE', '', 'Range: bytes=99999999-'))).body, '{"detail":"Range Not Satisfiable"}')
  t.equal((await send(request('GET', '/redoc/LICENSE', '', 'If-Match: "x"'))).body, '{"detail":"Precondition Failed"}')
})

test('with tokens, every operation asks for one, however its path is written', async t => {
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

test('a wrong token takes as long to refuse, however much of it is right', async t => {
  // A guess is compared with a thousand tokens of 8 kB, so that a difference is large enough to be seen. Where the guess
  // is right but for its end, `===` takes 2.4 times as long as where nothing of it is, and a loop 190 times; where its
  // length is right, to compare in constant time only there takes 1.5 to 38 times as long. As it is, the factor is 1.02.
  const size = 8000
  const beginning = 'x'.repeat(size - 4)
  const file = `${newFolder(t)}/tokens`
  writeFileSync(file, Array.from({ length: 1000 }, (_, n) => beginning + String(n).padStart(4, '0')).join('\n'))
  const app = build(t, { AUTH_TOKENS_FILE: file, DOCS: 'false' })
  await app.listen({ port: 0 })
  const connection = connect((app.server.address() as AddressInfo).port, '127.0.0.1').setNoDelay()
  t.teardown(() => connection.destroy())
  const guesses = {
    'nothing is right': 'y'.repeat(size),
    'half is right': 'x'.repeat(size / 2).padEnd(size, 'y'),
    'all but the end is right': `${beginning}zzzz`,
    'it is too short': beginning,
    'it is too long': `${beginning}0000z`
  }
  t.equal(await statusOf(`${beginning}0999`), 200)
  let ratio = Infinity
  // A difference that is there is there every time; one that others make who are busy on the machine is not.
  for (let tries = 0; tries < 5 && ratio > 1.3; tries++) {
    const least = await measure(30)
    ratio = Math.max(...least.values()) / Math.min(...least.values())
  }
  t.ok(ratio < 1.3, `${ratio.toFixed(2)} times as long`)

  /** The least that each guess took, in milliseconds, in rounds of all of them. */
  async function measure (rounds: number) {
    const least = new Map<string, number>()
    const order = Object.entries(guesses)
    for (let round = 0; round < rounds; round++) {
      order.push(...order.splice(0, 1)) // so that none is always the first
      for (const [what, token] of order) {
        const began = performance.now()
        if (await statusOf(token) !== 401) t.fail(what)
        least.set(what, Math.min(least.get(what) ?? Infinity, performance.now() - began))
      }
    }
    return least
  }

  async function statusOf (token: string) {
    connection.write(`HEAD /api/items HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`)
    const [answer] = await once(connection, 'data')
    return Number(String(answer).split(' ', 2)[1])
  }
})

test('no answer tells what the service is made of', async t => {
  const lines: string[] = []
  const log: LogStream = { write: line => lines.push(line) }
  const app = build(t, { LOG_LEVEL: 'info', METRICS_PORT: '0', RATE_LIMIT_MAX: '40', BODY_LIMIT: '1000', MAX_EVENT_LOOP_DELAY: '60000' }, log)
  app.addHook('preHandler', async ({ headers }) => {
    if (headers.fail) throw new Error('Fastify 5.0.0')
  })
  const send = await listen(app)
  const sendToMetrics = sender(Number(/metrics at \S+:(\d+)/.exec(lines.join())?.[1]))
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))

  const statuses = []
  for (const text of [
    ...['/api/items', '/api/items/1', '/api/items/9', '/api/items/x', '/api/users?limit=1', '/livez', '/readyz', '/', '/nope', '/docs', '/redoc', '/%zz', `/api/items/${'1'.repeat(200)}`].map(path => request('GET', path)),
    ...['HEAD', 'OPTIONS', 'PUT', 'TRACE', 'PROPFIND'].map(method => request(method, '/api/items')),
    request('POST', '/api/items', JSON.stringify(item)),
    request('POST', '/api/items', '{'),
    request('POST', '/api/items', JSON.stringify({ ...item, name: 'x'.repeat(2000) })),
    request('DELETE', '/api/users/1'),
    request('GET', '/api/items', '', 'Fail: 1'),
    request('GET', '/api/items', '', `Big: ${'x'.repeat(20_000)}`),
    request('GET', '/api/items', '', 'Expect: magic'),
    request('GET', '/api/items').replace('Host: x\r\n', ''),
    'CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n', 'nonsense\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', '\x16\x03\x01\x02\x00\r\n\r\n',
    ...Array.from({ length: 40 }, () => request('GET', '/api/items'))
  ]) {
    const answer = await send(text)
    statuses.push(answer.status)
    tellsNothing(answer.raw, text.slice(0, 60))
  }
  t.same([...new Set(statuses)].sort(), [200, 201, 204, 400, 404, 405, 413, 414, 417, 429, 431, 500])

  for (const path of ['/openapi.json', '/docs/json', '/docs/yaml', '/docs/static/swagger-initializer.js', '/redoc/init.js']) {
    const { raw, headers, body } = await send(request('GET', path))
    tellsNothing(raw.replace(body, ''), path)
    t.same(new Set(body.match(/\d+\.\d+\.\d+/g)), new Set(body.includes('3.1.0') ? ['3.1.0', version] : []), `${path} has the version of the API alone`)
    t.ok(headers['content-type'])
  }

  // The figures are for whoever runs it: one of them is the version of Node, on purpose.
  const figures = await sendToMetrics(request('GET', '/metrics'))
  t.equal(figures.status, 200)
  tellsNothing(figures.raw.replace(/version=0\.0\.4/, '').replaceAll(/^.*nodejs_version_info.*$/gm, '').replaceAll(/\bnodejs_/g, '').replaceAll(/^# HELP .*$/gm, ''), 'figures')
  for (const text of [request('GET', '/'), request('POST', '/nope', '{'), 'nonsense\r\n\r\n']) tellsNothing((await sendToMetrics(text)).raw, 'metrics')

  function tellsNothing (raw: string, what: string) {
    t.notMatch(raw, /^(server|x-powered-by|via|x-runtime|x-version)\s*:/im, what)
    t.notMatch(raw, /\bv?\d+\.\d+\.\d+|\b(fastify|node|node\.?js|pino|ajv|llhttp|undici|express)\b/i, what)
  }
})

test('a failure of the inside is one short answer, in development as in production', async t => {
  const inside = /\bat |\/|\\n|Error:|node:|\.[jt]s|select|no such table|SQL|secret/i
  for (const NODE_ENV of ['development', 'production']) {
    const path = `${newFolder(t)}/items.db`
    const server = start(t, { NODE_ENV, DATABASE_URL: `sqlite:${path}` }, { built: true })
    const send = sender(Number(new URL(await server.url).port))
    t.equal((await send(request('GET', '/api/items'))).body, `[${lamp}]`)
    const database = new Database(path, { timeout: 5000 })
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
    const store: Store<{ id: number }> = {
      append: async () => thrower(), first: thrower, page: async () => thrower(), removeFirst: thrower, size: () => 0, list: thrower
    }
    const app = Fastify(httpServerOptions)
    t.teardown(() => app.close())
    app.register(itemsUsers, { prefix: '/api', store: { items: store, users: store } })
    for (const options of [{ url: '/api/items' }, { url: '/api/items/1' }, { url: '/api/users?limit=1' }, { method: 'POST', url: '/api/items', payload: item }, { method: 'DELETE', url: '/api/users/1' }] as const) {
      const { statusCode, body } = await app.inject(options)
      t.equal(statusCode, 500, `${name} ${options.url}`)
      t.equal(body, '{"detail":"Internal server error"}')
    }
  }

  // One that fails in the middle of a list has answered already: the list ends where it is.
  const broken: Store<{ id: number }> = {
    append: () => '', first: () => '', page: () => ({ list: '[]' }), removeFirst: () => false, size: () => 0, list: () => Readable.from(failing(), { objectMode: false })
  }
  const app = Fastify(httpServerOptions)
  t.teardown(() => app.close())
  app.register(itemsUsers, { prefix: '/api', store: { items: broken, users: broken } })
  const { status, body } = await (await listen(app))(request('GET', '/api/items'))
  t.equal(status, 200)
  t.match(body, lamp)
  t.notMatch(body, inside)

  async function * failing () {
    yield `[${lamp}`
    throw new Error('the secret at /srv/app/store.js:1:1')
  }
})

test('a column that somebody adds to a table is in no answer', async t => {
  const path = `${newFolder(t)}/items.db`
  const url = `sqlite:${path}`
  await build(t, { DATABASE_URL: url }).ready()
  const database = new Database(path, { timeout: 5000 })
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

test('the worst body of a megabyte takes no long time, and one that is packed is not unpacked', async t => {
  const app = build(t)
  await app.ready()
  const deep = 500_000
  const many = 80_000
  const bodies: Record<string, [string | Buffer, number]> = {
    deep: ['['.repeat(deep) + ']'.repeat(deep), 400],
    'deep, with a forbidden key at the bottom': [`${'{"x":'.repeat(deep / 4)}{"__proto__":1}${'}'.repeat(deep / 4)}`, 400],
    'of many fields': [`{${Array.from({ length: many }, (_, n) => `"k${n}":0`)},${JSON.stringify(item).slice(1)}`, 201],
    'of one field many times': [`{${'"name":"x",'.repeat(many)}${JSON.stringify(item).slice(1)}`, 201],
    'of a long number': [`{"id":${'9'.repeat(1_000_000)},"name":"x","price":1}`, 400],
    'of white space': [' '.repeat(1_000_000), 400]
  }
  for (const [name, [body, status]] of Object.entries(bodies)) {
    const began = performance.now()
    t.equal((await app.inject({ method: 'POST', url: '/api/items', body })).statusCode, status, name)
    t.ok(performance.now() - began < 3000, `${name}: no long time`) // a fifth of a second, where nobody else is busy
  }
  const bomb = gzipSync(Buffer.alloc(100 * 1024 * 1024, ' '))
  for (const encoding of ['gzip', 'deflate', 'br', 'zstd']) {
    const response = await app.inject({ method: 'POST', url: '/api/items', body: bomb, headers: { 'content-encoding': encoding, 'content-type': 'application/json' } })
    t.same(response.json(), invalidBody('body', ['', 'must be UTF-8']))
  }
})

test('it connects to nothing that a client names', async t => {
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
  t.equal((await send(`CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)).status, 405)
  t.equal(connections, 0)
  await once(connect((other.address() as AddressInfo).port, '127.0.0.1'), 'close')
  t.equal(connections, 1, 'and it would have been seen')
})

test('every route is in the document, or is a page of it', async t => {
  for (const env of [{}, { API_PREFIX: '/api,/api/v1', ID_SOURCE: 'server', AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '1000', CORS_ORIGIN: '*', SECURITY_HEADERS: 'true', METRICS_PORT: '0', MAX_EVENT_LOOP_DELAY: '10000' }]) {
    const { app, routes } = buildWithRoutes(t, env)
    const { paths } = (await app.inject('/openapi.json')).json()
    const described = Object.entries<object>(paths).flatMap(([path, methods]) => Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`))
    const served = routes.map(({ method, url }) => ({ method, url: url.replaceAll(/:(\w+)/g, '{$1}') }))
    const undescribed = served.filter(({ method, url }) => !described.includes(`${method === 'HEAD' ? 'GET' : method} ${url}`))
    t.same(undescribed.filter(({ url }) => !/^\/(docs|redoc|openapi\.json$)/.test(url)).map(({ method, url }) => `${method} ${url}`),
      'CORS_ORIGIN' in env ? ['OPTIONS *'] : [], 'but the preflights of browsers')
    t.same(undescribed.filter(({ method, url }) => url !== '*' && method !== 'GET' && method !== 'HEAD'), [], 'a page can only be read')
    t.same(described.filter(name => !served.some(({ method, url }) => name === `${method} ${url}`)), [], 'and what is described is there')
  }
})

test('the lockfile pins every package, and none of production is deprecated or runs a script when it is installed', async t => {
  interface Locked {
    version?: string
    integrity?: string
    resolved?: string
    dev?: boolean
    deprecated?: string
    hasInstallScript?: boolean
    [dependencies: string]: unknown
  }
  const lock: { lockfileVersion: number, packages: Record<string, Locked> } = JSON.parse(readFileSync('package-lock.json', 'utf8'))
  const manifest = JSON.parse(readFileSync('package.json', 'utf8'))
  const { '': root, ...packages } = lock.packages
  t.equal(lock.lockfileVersion, 3)
  for (const part of ['name', 'version', 'dependencies', 'optionalDependencies', 'devDependencies', 'engines', 'bin']) {
    t.same(root?.[part], manifest[part], `${part} are in step with package.json`)
  }
  const names = (test: (locked: Locked) => unknown) => Object.entries(packages).filter(([, locked]) => test(locked)).map(([name]) => name)
  t.same(names(({ integrity }) => !/^sha512-[\w+/]{86}==$/.test(String(integrity))), [], 'each has its hash')
  t.same(names(({ resolved }) => resolved !== undefined), [], 'none names a host')

  // The optional ones are for production too.
  const production = names(({ dev }) => !dev)
  t.ok(production.length > 50)
  for (const dependency of Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })) t.ok(production.includes(`node_modules/${dependency}`), dependency)
  t.same(names(({ dev, deprecated }) => !dev && deprecated !== undefined), [])
  t.same(names(({ dev, hasInstallScript }) => !dev && hasInstallScript), [])
  for (const name of production) {
    const installed = read(`${name}/package.json`)
    if (!installed) continue // for another machine
    const { version, scripts = {} } = JSON.parse(installed)
    t.equal(version, packages[name]?.version, name)
    t.same(['preinstall', 'install', 'postinstall'].filter(script => script in scripts), [], name)
    t.notOk(read(`${name}/binding.gyp`), `${name} is not compiled when it is installed`)
  }

  function read (file: string) {
    try {
      return readFileSync(file, 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
  }
})

/** A request as it goes over the wire, byte for byte. */
function request (method: string, target: string, body = '', ...headers: string[]) {
  const head = [`${method} ${target} HTTP/1.1`, 'Host: x', 'Connection: close', ...headers, ...body ? [`Content-Length: ${Buffer.byteLength(body)}`] : []]
  // Each character is to be a byte, and those of the body are as many as UTF-8 makes of them.
  return `${head.join('\r\n')}\r\n\r\n${Buffer.from(body).toString('latin1')}`
}

/** Has an app listen, and gives what sends bytes to it and reads the answer. */
async function listen (app: FastifyInstance) {
  await app.listen({ port: 0, host: '127.0.0.1' })
  return sender((app.server.address() as AddressInfo).port)
}

function sender (port: number) {
  return async function send (text: string | Buffer) {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    const received: Buffer[] = []
    socket.on('data', chunk => received.push(chunk))
    socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text)
    await once(socket, 'close')
    const raw = Buffer.concat(received).toString()
    const [head = '', ...rest] = raw.split('\r\n\r\n')
    const [first = '', ...lines] = head.split('\r\n')
    const headers = Object.fromEntries(lines.map(line => {
      const [name = '', ...value] = line.split(': ')
      return [name.toLowerCase(), value.join(': ')]
    }))
    return { raw, status: Number(first.split(' ')[1]), headers, body: rest.join('\r\n\r\n') }
  }
}

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
