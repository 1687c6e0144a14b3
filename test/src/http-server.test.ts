import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { test, type Test } from 'tap'
import checkRequest, { httpServerOptions } from '../../src/http-server.js'
import { answersIn, exchange, listen as listenOn, open, request, written } from '../support/connection.js'
import { build, host, invalidBody } from '../support/helper.js'

const item = JSON.stringify({ id: 7, name: 'Zoë 🫖', price: 1.5 })
const body = Buffer.from(item).toString('latin1')
const bye = 'GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
const chunkedHead = 'POST /api/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'
const malformed = invalidBody('request', ['', 'must be well-formed HTTP'])

test('malformed HTTP is answered with 400 in our error format', async t => {
  const send = await listen(t)
  for (const text of [
    'nonsense\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', 'GET /api/items HTTP/2.0\r\nHost: x\r\n\r\n',
    'GET /api/items\nHost: x\r\n\r\n', 'GET /api/items HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n',
    'POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{',
    'POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
  ]) {
    const answer = last(await send(text))
    t.equal(answer.status, 400, text)
    t.match(answer.headers, /content-type: application\/json; charset=utf-8/)
    t.match(answer.headers, /connection: close/i)
    t.same(answer.body, malformed)
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
    `${head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    `${head.replace('/api/items', '/%zz')}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n`,
    `${head}Transfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n`,
    `${head}X: y\r\n Content-Length: 5\r\n\r\n`,
    `${head}X: y\rContent-Length: 5\r\n\r\n`,
    `${head}X: y\nContent-Length: 5\r\n\r\n`,
    ...['+5', '-5', '5, 5', '0x5', '5 5', '', '5\r\nContent-Length: 5', '99999999999999999999'].map(
      length => `${head}Content-Length: ${length}\r\n\r\n`
    ),
    ...['0x0', '+0', '-1', '0 0', '10000000000000000'].map(size => `${chunked}${size}\r\n\r\n`),
    `${chunked}2\n{}\r\n0\r\n\r\n`,
    `${chunked}2\r\n{}0\r\n\r\n`,
    `${chunked}2;x\n{}\r\n0\r\n\r\n`
  ]) {
    t.same((await send(text + hidden)).match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 400'], JSON.stringify(text))
  }
  t.same(last(await send(request('GET', '/api/users'))).body, [{ id: 1, name: 'Ada' }])
})

test('a request in HTTP/1.1 without Host is answered with 400, and HTTP/1.0 does not need one', async t => {
  const send = await listen(t)
  const refused = last(await send('GET /api/items HTTP/1.1\r\nConnection: close\r\n\r\n'))
  t.same([refused.status, refused.body], [400, invalidBody('headers', ['/host', 'is required'])])
  t.equal(last(await send('GET /api/items HTTP/1.0\r\n\r\n')).status, 200)
})

test('headers that are too large are answered with 431, and chunk extensions with 413', async t => {
  const send = await listen(t)
  const headers = last(await send(`GET /api/items HTTP/1.1\r\nHost: x\r\nBig: ${'x'.repeat(20_000)}\r\n\r\n`))
  t.same([headers.status, headers.body], [431, { detail: 'The request headers are too large' }])
  const extensions = last(
    await send(
      `${chunkedHead}2;${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`
    )
  )
  t.same([extensions.status, extensions.body], [413, { detail: 'The request body is too large' }])
})

test('a rejected request has one short line in the log', async t => {
  const lines: string[] = []
  const send = await listen(t, build(t, { AUTH_TOKENS: 'one', LOG_LEVEL: 'info' }, { write: line => lines.push(line) }))
  lines.length = 0
  const texts = ['PRI * HTTP/2.0', 'GET /api/items HTTP/9.9', 'nonsense']
  for (const text of texts) t.equal(last(await send(`${text}\r\nHost: x\r\n\r\n`)).status, 400, text)
  t.same(lines.map(line => JSON.parse(line).msg), texts.map(() => 'request rejected'))
  t.ok(lines.every(line => line.length < 1000))
})

test('a client that sends too much can read its 413 and go on, and one that disconnects does no harm', async t => {
  const send = await listen(t)
  const large = Buffer.alloc(5 * 1024 * 1024, 'x')
  for (const framing of [
    `Content-Length: ${large.length + 7}\r\n\r\n`,
    `Transfer-Encoding: chunked\r\n\r\n${large.length.toString(16)}\r\n`
  ]) {
    const head = `POST /api/items HTTP/1.1\r\nHost: x\r\n${framing}`
    const [answer, next] = (await send(head, large, '\r\n0\r\n\r\n', bye)).split(/(?=HTTP)/)
    t.equal(last(String(answer)).status, 413)
    t.same(last(String(answer)).body, { detail: 'The request body is too large' })
    t.equal(last(String(next)).status, 200)
  }
  const leaver = open(send.port)
  leaver.write('POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{')
  await send(bye) // until that has come
  leaver.resetAndDestroy()
  await send(bye)
  t.match(last(await send(request('GET', '/api/items'))).body, [{ id: 1 }])
})

test('a client that waits for 100 Continue gets it, and then the response', async t => {
  const { port } = await listenOn(build(t, { AUTH_TOKENS: 'one' }))
  const expectant = (...headers: string[]) =>
    ['POST /api/items HTTP/1.1', 'Host: x', 'Expect: 100-continue', ...headers, '', ''].join('\r\n')
  const client = open(port)
  client.write(expectant('Authorization: Bearer one', `Content-Length: ${body.length}`, 'Connection: close'))
  const [first] = await once(client, 'data')
  t.equal(String(first), 'HTTP/1.1 100 Continue\r\n\r\n')
  client.end(body, 'latin1')
  t.match(answersIn(await client.received), [{ status: 100 }, { status: 201 }])
})

test('headers, requests and idle connections have timeouts', async t => {
  const { server } = build(t)
  t.match(server, { headersTimeout: 30_000, requestTimeout: 60_000, keepAliveTimeout: 72_000, timeout: 180_000 })
  const http = { headersTimeout: 200, connectionsCheckingInterval: 50 }
  const quick = host(t, { ...httpServerOptions, requestTimeout: 300, http })
  quick.post('/', async () => 'late')
  await quick.listen({ port: 0 })
  const headers = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n'
  for (const sent of ['', 'GET / HTTP/1.1\r\n', `${headers}{`]) {
    const answer = await exchange((quick.server.address() as AddressInfo).port, sent)
    t.match(answer, /^HTTP\/1\.1 408 [^]+{"detail":"The request took too long to arrive"}$/, JSON.stringify(sent))
  }
})

test('when the app closes, idle connections are closed, and requests in progress are answered', async t => {
  const app = host(t, httpServerOptions)
  app.register(checkRequest)
  let finish = () => {}
  app.get('/slow', async () => {
    await new Promise<void>(resolve => { finish = resolve })
    return 'answered'
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const idle = open(port)
  const busy = open(port)
  busy.write(written('GET', '/slow'))
  await once(app.server, 'request')
  const closed = app.close()
  t.equal(String(await idle.received), '')
  finish()
  t.match(String(await busy.received), /answered$/)
  await closed
})

/** Starts the service and gives a function that sends pieces on one connection and reads until its end. */
async function listen (t: Test, app = build(t)) {
  const { port } = await listenOn(app)
  return Object.assign((...pieces: (string | Buffer)[]) => exchange(port, ...pieces), { port })
}

function last (text: string) {
  const answer = text.slice(text.lastIndexOf('HTTP/1.1 '))
  const [headers = '', body = ''] = answer.split('\r\n\r\n')
  return { status: Number(headers.split(' ')[1]), headers, body: JSON.parse(body) as unknown }
}
