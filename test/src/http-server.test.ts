import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import { connections, httpServerOptions } from '../../src/index.js'
import * as connection from '../support/connection.js'
import { build, host, invalidBody } from '../support/helper.js'
import { until } from '../support/until.js'

const item = JSON.stringify({ id: 7, name: 'Zoë 🫖', price: 1.5 })
const post = `POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: ${Buffer.byteLength(item)}\r\n\r\n${Buffer.from(item).toString('latin1')}`
const bye = 'GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'

test('malformed HTTP is answered with 400 in our error format', async t => {
  const send = await listen(t)
  for (const text of [
    'nonsense\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    'GET /api/items\r\n\r\n',
    'GET /api/items\nHost: x\r\n\r\n',
    'GET /api/items HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n',
    'POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{',
    'POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'POST /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n'
  ]) {
    const { status, headers, body } = last(await send(text))
    t.equal(status, 400, text)
    t.match(headers, /content-type: application\/json; charset=utf-8/)
    t.match(headers, /connection: close/i)
    t.same(body, invalidBody('request', ['', 'must be well-formed HTTP']))
  }
  t.equal(last(await send(bye)).status, 200)
})

test('an ambiguous request is rejected, and no part of it is served', async t => {
  const send = await listen(t)
  const hidden = 'DELETE /api/users/1 HTTP/1.1\r\nHost: x\r\n\r\n'
  const head = 'POST /api/items HTTP/1.1\r\nHost: x\r\n'
  const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n`
  for (const text of [
    `${head}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n`,
    `${head.replace('1.1', '1.0')}Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n`,
    `${head}X: y\r\n Content-Length: 5\r\n\r\n`,
    `${head}X: y\rContent-Length: 5\r\n\r\n`,
    `${head}X: y\nContent-Length: 5\r\n\r\n`,
    ...['+5', '-5', '5, 5', '0x5', '5 5', '', '5\r\nContent-Length: 5', '99999999999999999999'].map(length => `${head}Content-Length: ${length}\r\n\r\n`),
    ...['0x0', '+0', '-1', '0 0', '10000000000000000'].map(size => `${chunked}${size}\r\n\r\n`),
    `${chunked}2\n{}\r\n0\r\n\r\n`,
    `${chunked}2\r\n{}0\r\n\r\n`,
    `${chunked}2;x\n{}\r\n0\r\n\r\n`
  ]) {
    const answers = await send(`${text}${hidden}`)
    const isUnknownCoding = /coding: (x|")/.test(text)
    t.same(answers.match(/HTTP\/1.1 \d+/g), [`HTTP/1.1 ${isUnknownCoding ? 501 : 400}`], JSON.stringify(text))
  }
  const { body } = last(await send('GET /api/users HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'))
  t.same(body, [{ id: 1, name: 'Ada' }])
})

test('the rest of an answered request is not treated as another request', async t => {
  const send = await listen(t)
  const socket = connection.open(send.port)
  socket.write('PUT /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n')
  const [answer] = await once(socket, 'data')
  t.equal(last(String(answer)).status, 405)
  socket.write('zz\r\n')
  t.same(await socket.toArray(), [])
})

test('a client that has closed its side of the connection gets its response', async t => {
  const send = await listen(t)
  const socket = connection.open(send.port, { allowHalfOpen: true })
  socket.end(post + post, 'latin1')
  const answers = String(await socket.received)
  t.same(answers.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 201', 'HTTP/1.1 201'])
})

test('no header is dropped, however many there are', async t => {
  const send = await listen(t)
  const many = 'a:\r\n'.repeat(3000)
  const answer = last(await send(post.replace('Host: x', `${many}Host: x\r\nConnection: close\r\nIdempotency-Key: ${'x'.repeat(256)}`)))
  t.equal(answer.status, 400)
  t.match(answer.body, { errors: [{ in: 'headers', path: '/idempotency-key' }] })
})

test('headers that are too large are answered with 431, and chunk extensions with 413', async t => {
  const send = await listen(t)
  const headers = last(await send(`GET /api/items HTTP/1.1\r\nHost: x\r\nBig: ${'x'.repeat(20_000)}\r\n\r\n`))
  t.equal(headers.status, 431)
  t.same(headers.body, { detail: 'The request headers are too large' })
  const extensions = last(await send(
    `POST /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`))
  t.equal(extensions.status, 413)
  t.same(extensions.body, { detail: 'The request body is too large' })
})

test('the connection limits of a host apply', async t => {
  const limited = host(t, { ...httpServerOptions, connectionTimeout: 123_400, keepAliveTimeout: 2345, maxRequestsPerSocket: 1 })
  t.match(limited.server, { timeout: 123_400, keepAliveTimeout: 2345 })
  const send = await listen(t, limited)
  t.match(await send('GET / HTTP/1.1\r\nHost: x\r\n\r\n'), /connection: close/i)
})

test('HTTP/1.0 does not need a Host', async t => {
  const send = await listen(t)
  t.equal(last(await send('GET /api/items HTTP/1.0\r\n\r\n')).status, 200)
  t.match(last(await send('GET /openapi.json HTTP/1.0\r\n\r\n')).body, { servers: [{ url: '.' }] }, 'the server in the document has no host either')
})

test('an Expect other than 100-continue is answered with 417', async t => {
  const send = await listen(t)
  const expecting = (what: string) => bye.replace('Host', `Expect: ${what}\r\nHost`)
  t.equal(last(await send(expecting('100-continue'))).status, 200)
  const { status, body } = last(await send(expecting('magic')))
  t.equal(status, 417)
  t.same(body, { detail: 'The only supported value of Expect is 100-continue' })
})

test('pipelined requests are answered in order', async t => {
  const send = await listen(t)
  const answers = await send(`${post}GET /api/items/1 HTTP/1.1\r\nHost: x\r\n\r\nGET /api/items/8 HTTP/1.1\r\nHost: x\r\n\r\n${bye}`)
  t.same(answers.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 201', 'HTTP/1.1 200', 'HTTP/1.1 404', 'HTTP/1.1 200'])
})

test('complete requests before malformed HTTP are answered first', async t => {
  const send = await listen(t)
  for (const malformed of ['nonsense\r\n\r\n', 'POST /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n']) {
    const answers = await send(`${post}${post}${malformed}`)
    t.same(answers.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 201', 'HTTP/1.1 201', 'HTTP/1.1 400'])
    t.same(last(answers).body, invalidBody('request', ['', 'must be well-formed HTTP']))
  }
})

test('the connection of a malformed request that was pipelined is closed when the client closes it', async t => {
  const app = build(t)
  const send = await listen(t, app)
  const answers = await send(`${bye.replace('Connection: close\r\n', '')}POST /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz`)
  t.same(answers.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 400'])
  await until(async () => await promisify(app.server.getConnections.bind(app.server))() === 0)
})

test('the connection stays open after a body that is not JSON', async t => {
  const send = await listen(t)
  const answers = await send(`POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{${bye}`)
  t.same(answers.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 400', 'HTTP/1.1 200'])
})

test('a transfer coding other than chunked is answered with 501, and nothing is stored', async t => {
  const send = await listen(t)
  for (const coding of ['gzip, chunked', 'deflate,chunked', 'gzip', 'identity']) {
    const { status, body } = last(await send(`POST /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ${coding}\r\n\r\n${item.length.toString(16)}\r\n${item}\r\n0\r\n\r\n`))
    t.ok(status === 501 || (status === 400 && !coding.endsWith('chunked')), `${coding}: ${status}`)
    if (status === 501) t.same(body, { detail: 'The only supported Transfer-Encoding is chunked' })
  }
  t.match(last(await send('GET /api/items HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')).body, [{ id: 1 }])
})

test('methods and versions of other protocols are rejected, and the log has one short line for each', async t => {
  const lines: string[] = []
  const send = await listen(t, build(t, { AUTH_TOKENS: 'one', LOG_LEVEL: 'info' }, { write: line => lines.push(line) }))
  lines.length = 0
  const texts = ['PLAY /api/items RTSP/1.0', 'DESCRIBE /api/items RTSP/1.0', 'PRI * HTTP/2.0', 'GET /api/items HTTP/2.0']
  for (const text of texts) {
    const { status, body } = last(await send(`${text}\r\nHost: x\r\n\r\n`))
    t.equal(status, 400, text)
    t.same(body, invalidBody('request', ['', 'must be well-formed HTTP']))
  }
  t.same(lines.map(line => JSON.parse(line).msg), texts.map(() => 'request rejected'))
  t.ok(lines.every(line => line.length < 1000))
})

test('a request with Upgrade is answered, and the connection is closed, because Node does not parse what follows', async t => {
  const send = await listen(t)
  for (const protocol of ['websocket', 'h2c']) {
    const answers = await send(`GET /api/items HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n${post}${bye}`)
    t.same(answers.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 200'])
    t.match(answers, /^connection: close\r$/im)
  }
})

test('what follows a request with Connection: close is ignored', async t => {
  const send = await listen(t)
  for (const closing of [bye, 'GET /api/items HTTP/1.0\r\n\r\n']) {
    for (const more of [post, 'nonsense\r\n\r\n', bye + bye]) t.same((await send(closing + more)).match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 200'])
  }
  t.match(last(await send(bye.replace('/livez', '/api/items'))).body, [{ id: 1 }])
})

test('CONNECT is answered with 405', async t => {
  const send = await listen(t)
  const { status, headers, body } = last(await send('CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n'))
  t.equal(status, 405)
  t.match(headers, /^allow: $/m)
  t.same(body, { detail: 'Method not allowed' })
})

test('a body can arrive in chunks and byte by byte', async t => {
  const send = await listen(t)
  const chunks = Array.from(Buffer.from(item), byte => `1\r\n${String.fromCharCode(byte)}\r\n`).join('')
  const chunked = `POST /api/items HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`
  t.same(last(await send(Buffer.from(chunked, 'latin1'))).body, JSON.parse(item))
  const slow = Array.from(Buffer.from(post.replace('Host', 'Connection: close\r\nHost'), 'latin1'), byte => Buffer.of(byte))
  t.same(last(await send(...slow)).body, JSON.parse(item))
})

test('a client that sends too much can read its 413, and one that disconnects does no harm', async t => {
  const send = await listen(t)
  const large = Buffer.alloc(5 * 1024 * 1024, 'x')
  for (const framing of [`Content-Length: ${large.length + 7}\r\n\r\n`, `Transfer-Encoding: chunked\r\n\r\n${large.length.toString(16)}\r\n`]) {
    for (const persistence of ['close', 'keep-alive']) {
      const head = `POST /api/items HTTP/1.1\r\nHost: x\r\nConnection: ${persistence}\r\n${framing}`
      const [answer, next] = (await send(head, large, '\r\n0\r\n\r\n', ...persistence === 'close' ? [] : [bye])).split(/(?=HTTP)/)
      t.equal(last(String(answer)).status, 413)
      t.same(last(String(answer)).body, { detail: 'The request body is too large' })
      if (persistence === 'keep-alive') t.equal(last(String(next)).status, 200)
    }
  }
  const early = open()
  early.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n')
  const [answer] = await once(early, 'data')
  t.equal(last(String(answer)).status, 413, 'before the body is sent')
  early.destroy()
  const leaver = open()
  leaver.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{')
  await send(bye) // until that has come
  leaver.resetAndDestroy()
  await send(bye)
  const { body } = last(await send('GET /api/items HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'))
  t.equal((body as unknown[]).length, 1)

  function open () {
    return connection.open(send.port)
  }
})

test('a connection that breaks is not logged as a rejected request', async t => {
  const lines: string[] = []
  const send = await listen(t, build(t, { LOG_LEVEL: 'info' }, { write: line => lines.push(line) }))
  for (const text of ['', 'POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{']) {
    const leaver = connection.open(send.port)
    leaver.write(text)
    await send(bye) // until that has come
    leaver.resetAndDestroy()
    await send(bye)
  }
  t.equal(last(await send(bye.replace('/livez', '/api/items'))).status, 200)
  t.same(lines.map(line => JSON.parse(line).msg).filter(message => message.startsWith('request')), ['request completed'])
})

test('headers, requests and idle connections have timeouts', async t => {
  const { server } = build(t)
  t.match(server, { headersTimeout: 30_000, requestTimeout: 60_000, keepAliveTimeout: 72_000 })
  const quick = host(t, { ...httpServerOptions, requestTimeout: 300, http: { headersTimeout: 200, connectionsCheckingInterval: 50 } })
  quick.post('/', async () => 'late')
  await quick.listen({ port: 0 })
  for (const sent of ['', 'GET / HTTP/1.1\r\n', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{']) {
    const answer = await connection.exchange((quick.server.address() as AddressInfo).port, sent)
    t.match(answer, /^HTTP\/1\.1 408 [^]+{"detail":"The request took too long to arrive"}$/, JSON.stringify(sent))
  }
})

test('a connection without traffic is closed', async t => {
  const app = host(t, httpServerOptions)
  app.register(connections, { stalledAfter: 4000 })
  await app.listen({ port: 0 })
  const { port } = app.server.address() as AddressInfo
  const idle = connection.open(port)
  const busy = connection.open(port)
  while (!idle.destroyed && !busy.destroyed) {
    busy.write('GET /nope HTTP/1.1\r\nHost: x\r\n\r\n')
    await Promise.race([once(busy, 'data'), busy.received])
    await sleep(100)
  }
  t.equal(String(await idle.received), '', 'without a word, which Node would say after half a minute')
  t.equal(busy.destroyed, false)
  busy.destroy()
})

/** Starts the service and gives a function that sends pieces on one connection and reads until its end. */
async function listen (t: Test, app = build(t)) {
  const { port } = await connection.listen(app)
  return Object.assign((...pieces: (string | Buffer)[]) => connection.exchange(port, ...pieces), { port })
}

function last (text: string) {
  const answer = text.slice(text.lastIndexOf('HTTP/1.1 '))
  const [head = '', body = ''] = answer.split('\r\n\r\n')
  return { status: Number(head.split(' ')[1]), headers: head, body: JSON.parse(body) as unknown }
}
