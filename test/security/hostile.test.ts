import { test } from 'tap'
import { connection, listen, open, written } from '../support/connection.js'
import { cpuTime } from '../support/cpu-time.js'
import { build, everything, invalidBody } from '../support/helper.js'

/** The headers that the service and its plugins read. */
const headers = [
  'accept', 'accept-encoding', 'accept-version', 'access-control-request-headers', 'access-control-request-method', 'authorization', 'connection',
  'content-type', 'expect', 'host', 'idempotency-key', 'if-match', 'if-modified-since', 'if-none-match', 'if-range', 'if-unmodified-since', 'origin',
  'range', 'sec-fetch-site', 'transfer-encoding', 'upgrade', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-prefix',
  'x-forwarded-proto', 'x-request-id'
]
const pieces = [' ', '\t', ',', ';', '"', 'W/', '*,', ';q=', '=', ':', '/', '\\', '%', '[', '1', '.', '", "', ' ;', ',W/"', '(', '@']

/** A value of this size fits into the headers of a request. */
const size = 15_000

/** A list, a record, the document, a file and a creation. */
const requests = [['GET', '/api/items'], ['GET', '/api/items/1'], ['GET', '/openapi.json'], ['GET', '/docs/static/index.css'], ['POST', '/api/items']] as const

test('15 kB of any character in any header cost about as much time as 15 kB of letters', async t => {
  const url = await build(t, { ...everything, API_PREFIX: '/api', RATE_LIMIT_MAX: '1000000', TRUST_PROXY: '127.0.0.1' }).listen({ port: 0, host: '127.0.0.1' })
  const valueOf = (piece: string) => piece.repeat(Math.ceil(size / piece.length)).slice(0, size)
  const letters = Math.min(await cost('accept', valueOf('x')), await cost('accept', valueOf('x')), await cost('if-match', valueOf('x')))
  for (const header of headers) {
    for (const piece of pieces) {
      let ratio = Infinity
      for (let tries = 0; tries < 10 && ratio > 8; tries++) {
        // Between letters, because spaces at the ends are not part of a header. Each value is new, so that it is in no cache.
        ratio = Math.min(ratio, await cost(header, `gzip${valueOf(piece).slice(8)}${'x'.repeat(1 + tries)}`) / letters)
      }
      if (ratio > 8) t.fail(`${header} with ${JSON.stringify(piece)} costs ${ratio.toFixed(0)} times as much as letters`)
    }
    t.pass(header)
  }

  /** The CPU time of this process for all requests with a header, in milliseconds. */
  async function cost (header: string, value: string) {
    let used = 0
    for (const [method, path] of requests) {
      const { socket, send } = connection(url)
      const text = written(method, path, method === 'POST' ? '{}' : undefined, { authorization: 'Bearer one', [header]: value })
      const took = cpuTime()
      await send(text)
      used += took()
      socket.destroy()
    }
    return used
  }
})

test('a body whose length is not its Content-Length is answered with 400, and one that ends too early closes the connection', async t => {
  const app = build(t)
  const payload = JSON.stringify({ id: 7, name: 'Kettle', price: 19.99 })
  for (const length of [1, payload.length - 1, payload.length + 1, 1e6, 'x', -1]) {
    const response = await app.inject({ method: 'POST', url: '/api/items', payload, headers: { 'content-length': String(length) } })
    t.same([response.statusCode, response.json()], [400, invalidBody('headers', ['/content-length', 'must be the length of the body'])], String(length))
  }
  t.equal((await app.inject('/api/items')).json().length, 1, 'nothing is stored')
  t.equal((await app.inject({ method: 'POST', url: '/api/items', payload, headers: { 'content-length': String(payload.length) } })).statusCode, 201)
  const { port } = await listen(app)
  const client = open(port)
  client.end(`POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Length: ${payload.length + 1}\r\n\r\n${payload}`)
  t.match(String(await client.received), /^(HTTP\/1\.1 400 |$)/)
  t.equal((await app.inject('/api/items')).json().length, 2)
})
