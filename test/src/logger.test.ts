import type { OwnStores } from '../../plugins/host-stores.js'
import { once } from 'node:events'
import { connect } from 'node:net'
import { Readable, Writable } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import { Type } from '@sinclair/typebox'
import { prettyFactory } from 'pino-pretty'
import { test, type Test } from 'tap'
import itemsUsers, { collection, defineCollection, type OwnStore } from '../../src/index.js'
import { prettyOptions } from '../../src/logger.js'
import { checkedFetch as fetch } from '../support/document.js'
import { build } from '../support/helper.js'
import { exchange, listen, request } from '../support/connection.js'
import { start } from '../support/process.js'
import { until } from '../support/until.js'

const generated = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}-\d+$/
const requestId = 'x-request-id'
const Note = Type.Object({
  id: Type.Integer(),
  tags: Type.Record(Type.String(), Type.String()),
  list: Type.Array(Type.Integer()),
  place: Type.Object({ city: Type.String() }, { unevaluatedProperties: false })
}, { $id: 'Note' })

test('a request is one log line with the usual fields of pino and its request id', async t => {
  const { app, lines } = logged(t)
  await app.inject({
    url: '/api/items?x=1',
    remoteAddress: '10.0.0.1',
    headers: { host: 'shop.example', [requestId]: 'abc' }
  })
  t.equal(lines.length, 1)
  t.match(lines[0], {
    level: 30,
    time: Number,
    pid: process.pid,
    hostname: String,
    reqId: 'abc',
    req: { method: 'GET', url: '/api/items?x=1', host: 'shop.example', remoteAddress: '10.0.0.1' },
    res: { statusCode: 200 },
    responseTime: Number,
    msg: 'request completed'
  })
})

test('a well-formed X-Request-Id of the client is used and returned', async t => {
  const { app, lines } = logged(t)
  for (const id of ['a', 'x'.repeat(128), '!"#$%&~', 'b7a2-0001']) {
    for (const url of [
      '/api/items', '/api/items?limit=1', '/api/items/1', '/api/items/9', '/livez', '/readyz', '/nope'
    ]) {
      t.equal((await app.inject({ url, headers: { [requestId]: id } })).headers[requestId], id, url)
    }
  }
  for (const id of ['', ' ', 'a b', 'x'.repeat(129), 'ä', 'a\tb']) {
    const { headers } = await app.inject({ url: '/api/items', headers: { [requestId]: id } })
    t.match(headers[requestId], generated, JSON.stringify(id))
    t.equal(lines.at(-1)?.reqId, headers[requestId])
  }
  t.equal((await app.inject('/api/items')).headers[requestId], undefined)
  t.match(lines.at(-1)?.reqId, generated)
})

test('every error response has the request id that is in the log, which says why a request was rejected', async t => {
  const broken: OwnStore<{ id: number }> = {
    append: () => {
      throw new Error('boom')
    },
    count: () => 0,
    first: () => undefined,
    select: () => ({ records: [] }),
    change: () => undefined
  }
  const { app, lines } = logged(t)
  app.register(itemsUsers, { prefix: '/broken', store: { items: broken, users: broken } as OwnStores })
  const send = await listen(app)
  const body = '{"id":2,"name":"x","price":1}'
  for (const [text, status, reason] of [
    [request('GET', '/api/items/9'), 404, 'Not found'],
    [request('GET', '/api/items/x'), 400, 'Invalid path: item_id must be an integer.'],
    [request('GET', '/nope'), 404, 'Path not found'],
    [request('PUT', '/api/items'), 405, 'Method not allowed'],
    [request('POST', '/api/items', 'x'.repeat(2_000_000)), 413, 'The request body is too large'],
    [request('GET', '/api/items/%zz'), 400, 'Invalid path: it must be a valid URL.'],
    [request('GET', `/api/items/${'x'.repeat(4000)}`), 414, 'The request path is too long'],
    [request('POST', '/broken/items', body), 500, 'Internal server error'],
    ['nonsense\r\n\r\n', 400, /^Parse Error: /]
  ] as const) {
    const answer = await send(text)
    t.equal(answer.status, status)
    t.match(answer.headers[requestId], generated, text.slice(0, 60))
    const own = lines.filter(({ reqId }) => reqId === answer.headers[requestId])
    t.ok(own.length > 0, 'it is in the log')
    t.match(own.find(({ res }) => res?.statusCode === status), { reason }, 'it says why')
  }
  t.match(
    lines.find(({ msg }) => msg === 'boom'),
    { level: 50, reqId: generated, req: { method: 'POST', url: '/broken/items' }, err: { stack: String } }
  )
})

test('the reason in the log contains no values that the client has sent', async t => {
  const { app, lines } = logged(t, { AUTH_TOKENS: 'shop:sesame' })
  app.register(collection, { ...defineCollection({ name: 'notes', schema: Note }), prefix: '/notes' })
  app.get(
    '/own',
    { schema: { querystring: { type: 'object', properties: { n: { enum: ['x'] } } } } },
    async () => 'own'
  )
  const send = await listen(app)
  const token = 'Authorization: Bearer sesame'
  const written = JSON.stringify({ tags: { first: 'secret' }, list: ['secret'], place: { first: 'secret' } })
  for (const [text, reason] of [
    [request('GET', '/api/items', '', 'Authorization: Bearer secret'), 'The bearer token is not valid'],
    [request('GET', '/api/items'), 'A bearer token is required'],
    [
      request('POST', '/api/items', '{"id":"secret","secret":1}', token),
      'Invalid body: name is required, price is required, id must be an integer.'
    ],
    [request('POST', '/notes', written), /^Invalid body: list\/0 must be an integer, place\/city is required/],
    [request('GET', '/own?n=secret'), 'querystring/n must be equal to one of the allowed values'],
    ['GET / HTTP/1.1\r\nAuthorization: Bearer secret\r\nbad header: x\r\n\r\n', /^Parse Error: /]
  ] as const) {
    await send(text)
    t.match({ ...lines.at(-1) }, { reason })
    t.notMatch(JSON.stringify({ ...lines.at(-1), req: undefined }), /secret|sesame|115,101,99/)
  }
})

test('a response that breaks off is logged as an error with its request id', async t => {
  const { app, lines } = logged(t)
  app.get('/breaks', async () => Readable.from(breaking()))
  const send = await listen(app)
  await exchange(send.port, request('GET', '/breaks'))
  await until(() => lines.length > 1)
  t.equal(lines.length, 2)
  t.match(lines[1], {
    level: 50,
    msg: 'request errored',
    reqId: generated,
    req: { url: '/breaks' },
    err: { message: 'boom' }
  })

  async function * breaking () {
    yield 'a part'
    await turn()
    throw new Error('boom')
  }
})

test('a response whose client leaves is logged with its request id', async t => {
  const { app, lines } = logged(t)
  app.get('/endless', async () => Readable.from(endless()))
  const { port } = await listen(app)
  const client = connect(port, '127.0.0.1')
  client.end(request('GET', '/endless'))
  await once(client, 'data')
  client.destroy()
  await until(() => lines.length > 1)
  t.equal(lines.length, 2)
  t.match(lines[1], {
    level: 30,
    msg: 'request aborted',
    reqId: generated,
    req: { url: '/endless' },
    res: { statusCode: 200 }
  })
  t.ok(lines[1]?.responseTime)

  async function * endless () {
    for (;;) {
      yield 'x'.repeat(10_000)
      await turn()
    }
  }
})

test('in a terminal, the log is colored text with one line per request', async t => {
  const server = start(t, { FORCE_COLOR: '1', NO_COLOR: undefined }, { script: 'process.stdout.isTTY = true' })
  await fetch(`${await server.url}/api/items/2`)
  await server.says('404 in')
  const plain = server.output().replaceAll(/\u001b\[\d+m/g, '') // eslint-disable-line no-control-regex
  t.not(plain, server.output())
  t.match(
    plain,
    /^\[\d\d:\d\d:\d\d\] INFO: API at .+\n\[\d\d:\d\d:\d\d\] INFO: GET \/api\/items\/2 404 in \d+\.\d ms: Not found\n$/
  )
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])

  const pretty = prettyFactory({ ...prettyOptions, colorize: false })
  t.match(
    pretty({ time: 0, level: 50, msg: 'oh no', err: { stack: 'Error: oh no\n    at home' } }),
    /ERROR: oh no\n {4}err: Error: oh no\n +at home\n$/
  )
  const line = {
    time: 0,
    level: 30,
    token: 'shop',
    req: { method: 'GET', url: '/api/items' },
    res: { statusCode: 200 },
    responseTime: 1
  }
  t.match(pretty(line), /INFO: shop: GET \/api\/items 200 in 1\.0 ms\n$/)
})

interface Line {
  reqId?: string
  msg?: string
  req?: { url: string }
  res?: { statusCode: number }
  responseTime?: number
  reason?: string
}

/** The service, and the lines of its log. */
function logged (t: Test, env: NodeJS.ProcessEnv = {}) {
  const lines: Line[] = []
  const stream = new Writable({
    decodeStrings: false,
    write (line, _encoding, done) {
      lines.push(JSON.parse(line))
      done()
    }
  })
  return { app: build(t, { LOG_LEVEL: 'info', ...env }, stream), lines }
}
