import { test } from 'tap'
import { connection, written } from '../support/connection.js'
import { build, everything } from '../support/helper.js'

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

  /** The CPU time of this process for all requests with a header, in microseconds. */
  async function cost (header: string, value: string) {
    let used = 0
    for (const [method, path] of requests) {
      const { socket, send } = connection(url)
      const text = written(method, path, method === 'POST' ? '{}' : undefined, { authorization: 'Bearer one', [header]: value })
      const before = process.cpuUsage()
      await send(text)
      const { user, system } = process.cpuUsage(before)
      used += user + system
      socket.destroy()
    }
    return used
  }
})
