import type { InjectOptions } from 'fastify'
import { test } from 'tap'
import { prettyFactory } from 'pino-pretty'
import { prettyOptions } from '../../src/logger.js'
import { listen, request, sender } from '../support/connection.js'
import { build, collections, invalidBody } from '../support/helper.js'
import { start } from '../support/process.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }
const lamp = '{"id":1,"name":"Lamp","price":42.5}'

/** What a forger would like to have for a line of its own in the log, or on a terminal. */
const forged = '{"level":30,"method":"DELETE","url":"/api/users/1","status":204,"ms":1,"msg":"request completed"}'
const evil = `x"}\r\n${forged}\n12:00:00 DELETE /api/users/1 204 in 1.0 ms\n\u001b[2J\u001b]0;owned\u0007\u009b31m\u0085\u2028\u202e\u0000`

test('no body, query, path or header changes Object.prototype', async t => {
  const app = build(t, { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '1000', CORS_ORIGIN: '*' })
  const send = await listen(app)
  const authorization = 'Bearer one'
  const before = Object.getOwnPropertyNames(Object.prototype)
  const keys = ['"__proto__":{"polluted":1}', '"__proto__":"x"', '"\\u005f_proto__":{"polluted":1}', '"constructor":{"prototype":{"polluted":1}}']
  for (const { path, record } of collections) {
    for (const key of keys) {
      for (const nested of [key, `"a":{${key}}`, `"a":[[{"b":{${key}}}]]`, `${'"a":{'.repeat(80)}${key}${'}'.repeat(80)}`]) {
        const body = `{${nested},${JSON.stringify(record).slice(1)}`
        const response = await app.inject({ method: 'POST', url: path, body, headers: { authorization } })
        t.equal(response.statusCode, 400, body.slice(0, 80))
        t.same(response.json(), invalidBody('body', ['', 'must not contain the key __proto__ or constructor.prototype']))
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

test('clients cannot add response headers', async t => {
  const app = build(t, { CORS_ORIGIN: 'https://example.com' })
  const send = await listen(app)
  const json = JSON.stringify({ ...item, name: 'x\r\nEvil: 1\r\n\r\n<script>' })
  const encoded = '%0d%0aEvil:%201%0d%0a%0d%0a%3Cscript%3E'
  const known = ['access-control-allow-headers', 'access-control-allow-methods', 'access-control-allow-origin', 'access-control-expose-headers',
    'access-control-max-age', 'allow', 'cache-control', 'connection', 'content-length', 'content-security-policy', 'content-type', 'date', 'etag', 'link', 'location', 'vary', 'x-request-id']
  const answer = async (text: string | Buffer, status: number, expected = {}) => {
    const { headers, ...answer } = await send(text)
    t.equal(answer.status, status, String(text).slice(0, 200))
    t.same(Object.keys(headers).filter(name => !known.includes(name)), [])
    t.match(headers, expected)
    t.notMatch(JSON.stringify(headers), /Evil: 1|evil\.example|<script>/)
    if (status !== 204) t.ok(JSON.parse(answer.body))
  }

  await answer(request('POST', '/api/items', json), 201, { location: './items/7' })
  await answer(request('POST', `/api/items?${encoded}`, json), 201, { location: './items/7' })
  await answer(request('POST', `/api/items/${encoded}`, json), 405, { allow: 'GET, HEAD, OPTIONS' })
  await answer(request('PUT', `/api/users/${encoded}`, json), 405, { allow: 'GET, HEAD, DELETE, OPTIONS' })
  await answer(request('GET', `/api/items?limit=1&x=${encoded}&${encoded}=1&y="><script>`), 200, {
    link: `<?limit=1&x=${encoded}&${encoded}=1&y=%22%3E%3Cscript%3E&after=MQ>; rel="next"`
  })
  await answer(request('GET', `/api/items?limit=1&after=${encoded}`), 400)
  await answer(request('GET', `/api/items?limit=${encoded}`), 400)
  await answer(request('GET', `/api/${encoded}`), 404)
  await answer(request('GET', `/redoc/${encoded}`), 404)

  // Whose service it is, a client does not tell.
  for (const host of ['evil.example', '']) {
    const whose = [`X-Forwarded-Host: ${host}`, 'X-Forwarded-Proto: javascript', `Forwarded: host=${host}`, `X-Original-URL: //${host}`, 'X-Request-Id: Evil: 1']
    await answer(request('POST', '/api/items', json, ...whose).replace('Host: x', `Host: ${host}`), 201, { location: './items/7' })
    await answer(request('GET', '/api/items?limit=1', '', ...whose).replace('Host: x', `Host: ${host}`), 200, { link: '<?limit=1&after=MQ>; rel="next"' })
  }
  for (const target of ['http://evil.example/api/items', 'http://u:p@evil.example:80/api/items']) {
    await answer(request('POST', target, json), 201, { location: './items/7' })
    await answer(request('GET', `${target}?limit=1`), 200, { link: '<?limit=1&after=MQ>; rel="next"' })
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

test('line breaks in names, URLs and headers cannot forge log lines', async t => {
  const server = start(t, { TRUST_PROXY: '127.0.0.1', AUTH_TOKENS: 'one', DOCS: 'true' })
  const send = sender(Number(new URL(await server.url).port))
  const told = Buffer.from(evil.replaceAll(/[\r\n\0]/g, ' ')).toString('latin1').replaceAll(/[^\t -~\x80-\xff]/g, '')
  const escaped = encodeURIComponent(evil)
  const token = 'Authorization: Bearer one'
  const expected: object[] = []
  const logs = async (method: string, url: string, body: string, headers: string[], line: object) => {
    expected.push(line)
    const { status } = await send(request(method, url, body, ...headers))
    t.match(line, { res: { statusCode: status } })
  }

  await logs('POST', '/api/items', JSON.stringify({ ...item, name: evil }), [token], lineOf('POST', '/api/items', 201))
  await logs('POST', '/api/items', `{"${evil}`, [token], lineOf('POST', '/api/items', 400))
  for (const [path, status] of [
    ['/api/items/x"}%0d%0a{"level":60}%1b[2J%c2%9b31m', 400], ['/api/users/1?"}{"level":60,"msg":"x"}', 200],
    [`/api/items?after=${escaped}`, 400], [`/api/items/%zz${escaped}`, 400], [`/api/items/${escaped}`, 400], [`/${escaped}`, 404]
  ] as const) await logs('GET', path, '', [token], lineOf('GET', path, status))
  for (const header of ['User-Agent', 'Referer', 'X-Request-Id', 'Request-Id', 'Idempotency-Key', 'X-Forwarded-Host', 'Content-Type', 'Cookie']) {
    const text = request('DELETE', '/api/users/9', '', token, `${header}: ${told}`)
    expected.push(lineOf('DELETE', '/api/users/9', 404))
    t.equal((await send(text)).status, 404, header)
  }
  await logs('GET', '/api/items', '', [`Authorization: Bearer ${told}`], lineOf('GET', '/api/items', 401))

  // What a trusted proxy says, it says as it is.
  const address = told.split(',').at(-1)?.trim()
  await logs('GET', '/openapi.json', '', [`X-Forwarded-For: ${told}`], lineOf('GET', '/openapi.json', 200, address))

  // What is no HTTP, or not in a URL, is refused with a word of Node's own.
  for (const target of [`/${Buffer.from(evil).toString('latin1')}`, '/\x9b31m', '/\xff', `/${told}`, '/\x1b[2J']) {
    expected.push({ res: { statusCode: 400 }, reason: /^Parse Error: [ -~]+$/, msg: 'request rejected' })
    t.equal((await send(request('GET', target))).status, 400)
  }
  expected.push({ res: { statusCode: 400 }, reason: /^Parse Error: [ -~]+$/, msg: 'request rejected' })
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
  t.same([...fields].sort(), ['hostname', 'level', 'msg', 'pid', 'reason', 'req', 'reqId', 'res', 'responseTime', 'time'])
  t.notOk(JSON.stringify(parsed).includes('"statusCode":204'))

  function lineOf (method: string, url: string, statusCode: number, remoteAddress = '127.0.0.1') {
    return { req: { method, url, remoteAddress }, res: { statusCode } }
  }
})

test('in a terminal, clients cannot forge log lines or send control characters', async t => {
  let shown = ''
  const readable = prettyFactory({ ...prettyOptions, colorize: false })
  const app = build(t, { LOG_LEVEL: 'info' }, { write: line => { shown += readable(line) } })
  // A message may repeat what was sent: one of a trigger in the database, or of a hook around the routes.
  app.addHook('preHandler', async ({ body }) => {
    if (body) throw new Error((body as typeof item).name)
  })
  const shows = async (options: InjectOptions, ...lines: RegExp[]) => {
    shown = ''
    await app.inject(options)
    t.same(controlsIn(shown), [])
    const own = shown.split('\n').filter(line => /^\[\d\d:\d\d:\d\d\] /.test(line))
    t.equal(own.length, lines.length, JSON.stringify(own))
    for (const [n, line] of lines.entries()) t.ok(line.test(own[n] ?? ''), JSON.stringify(own[n]))
  }
  const where = / POST \/api\/items 500 in \d+\.\d ms: Internal server error$/
  await shows({ method: 'POST', url: '/api/items', payload: item }, / ERROR: Kettle$/, where)
  await shows({ method: 'POST', url: '/api/items', payload: { ...item, name: evil } }, / ERROR: x"}\\u000d\\u000a{.+\\u001b\[2J.+\\u009b31m/, where)
  await shows({ url: `/api/items?after=${encodeURIComponent(evil)}` }, / GET \/api\/items\?after=x%22%7D%0D%0A.+ 400 in /)

  const line = { time: 0, level: 30, res: { statusCode: 200 }, responseTime: 1, req: { method: 'GET', url: `/${evil}` } }
  const text = readable(JSON.stringify(line))
  t.same(controlsIn(text), [])
  t.equal(text.split('\n').length, 2, 'also where a URL would come with them')
  t.match(readable(JSON.stringify({ ...line, req: { method: 'GET', url: '/Zoë 🫖 👩‍👩‍👧' } })), / GET \/Zoë 🫖 👩‍👩‍👧 200 in 1\.0 ms\n$/, 'and letters stay letters')

  /** What a terminal would act on, or a reader of lines take for the end of one, but the plain line break; by its code. */
  function controlsIn (text: string) {
    return Array.from(text.matchAll(/[^\P{Cc}\n]|[\p{Zl}\p{Zp}\p{Bidi_Control}]/gu), ([character]) => character.charCodeAt(0).toString(16))
  }
})

test('no path leads to other files of the machine, however it is written', async t => {
  const send = await listen(build(t))
  const invalidUrl = invalidBody('path', ['', 'must be a valid URL'])
  const notHttp = invalidBody('request', ['', 'must be well-formed HTTP'])
  const notFound = { detail: 'Path not found' }
  const forbidden = { detail: 'Forbidden' }
  const badRequest = { detail: 'Bad Request', errors: [{ in: 'request', path: '', message: 'Bad Request' }] }
  const noInteger = invalidBody('path', ['/item_id', 'must be an integer'])
  const up = '../'.repeat(12)
  for (const [status, body, targets] of [
    [404, notFound, [
      '/api/../secrets', '/api/items/../../etc/passwd', '//api/items', '/api//items', '///', '/.', '/..', '/%2e%2e', '/.env', '/.git/config',
      '/package.json', '/etc/passwd', '/api/items/1/2', '/api/items\\1', '/API/items', '/api/items;x=1', '/docs/../../package.json',
      '/docs/static/..%2f..%2fpackage.json', '/docs/static/%2e%2e%2f%2e%2e%2fpackage.json', '/docs/static/%252e%252e%252fpackage.json',
      '/redoc/..%2f..%2fpackage.json', '/redoc/%2fetc%2fpasswd', '/redoc/redoc.standalone.js/x', '/redoc/.git/config',
      '/redoc/../package.json', '/redoc/../../package.json', `/redoc/${up}etc/passwd`, '/redoc/%2e%2e/%2e%2e/package.json', '/redoc/..\\..\\package.json',
      '/redoc//etc/passwd', '/redoc/....//....//package.json', '/redoc/redoc.standalone.js%00', '/redoc/.', `/redoc/${'x'.repeat(300)}`,
      'http://x/../etc/passwd', 'file:///etc/passwd', 'https://x/docs/static/..%2f..%2fpackage.json'
    ]],
    [403, forbidden, [
      '/docs/static/../package.json', `/docs/static/${up}etc/passwd`, '/docs/static/%2e%2e/package.json', '/docs/static/%2e%2e/%2e%2e/%2e%2e/package.json',
      '/docs/static/..\\..\\package.json', '/docs/static/..%5c..%5cpackage.json'
    ]],
    [400, badRequest, ['/docs/static/index.html%00.png', '/docs/static/%00']],
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
  for (const [method, status] of [['GET', 200], ['OPTIONS', 204], ['POST', 405], ['DELETE', 405]] as const) {
    t.same((await send(request(method, '*'))).status, status, `${method} *`)
  }
  for (const target of ['http://x/api/items/1', 'http://evil.example/api/items/1', '/api/items/%31', '/api/%69tems/1', '/api/items/1?/../../x', '/api/items/1#/..']) {
    t.equal((await send(request('GET', target))).body, lamp, `${target} is what it says`)
  }
  t.match((await send(request('GET', '/redoc/LICENSE', '', 'Range: bytes=99999999-'))).body, '{"detail":"Range Not Satisfiable"}')
  t.match((await send(request('GET', '/redoc/LICENSE', '', 'If-Match: "x"'))).body, '{"detail":"Precondition Failed"}')
})
