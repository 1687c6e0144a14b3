import { once } from 'node:events'
import type { Socket } from 'node:net'
import { test, type Test } from 'tap'
import { disableKeepAlive } from '../../src/http-server/connections.js'
import { answersIn, listen, open, written } from '../support/connection.js'
import { build } from '../support/helper.js'

const size = 5 * 1024 * 1024
const large = Buffer.alloc(size, ' ')
const token = { authorization: 'Bearer one' }

const refusals: { what: string, status: number, method: string, target: string, headers?: Record<string, string> }[] = [
  { what: '400 for its path', status: 400, method: 'POST', target: '/%zz' },
  { what: '400 for its Host', status: 400, method: 'POST', target: '/api/items', headers: { host: 'not a host' } },
  { what: '401', status: 401, method: 'POST', target: '/api/items' },
  { what: '404', status: 404, method: 'POST', target: '/nowhere' },
  { what: '405', status: 405, method: 'PUT', target: '/livez' },
  { what: '413', status: 413, method: 'POST', target: '/api/items', headers: token },
  { what: '417', status: 417, method: 'POST', target: '/api/items', headers: { expect: 'the-impossible' } }
]

for (const { what, status, method, target, headers } of refusals) {
  test(`a client can send its whole body and then read its ${what}, although the connection is closed afterwards`, async t => {
    const { port, drain } = await serve(t)
    await send({ connection: 'close', ...headers })
    drain()
    await send({ ...headers })

    async function send (headers: Record<string, string>) {
      const client = open(port)
      t.equal(await sendAll(client, written(method, target, large, headers)), undefined, 'the connection is open')
      t.match(answersIn(await client.received), [{ status, headers: { connection: 'close' } }])
    }
  })
}

test('during SHUTDOWN_DELAY, a client that got 100 Continue can send a body that is too large and then read its 413', async t => {
  const { port, drain } = await serve(t)
  drain()
  const client = open(port)
  client.write(written('POST', '/api/items', undefined, { ...token, expect: '100-continue', 'transfer-encoding': 'chunked' }))
  await once(client, 'data')
  t.equal(await sendAll(client, Buffer.from(`${size.toString(16)}\r\n${large}\r\n0\r\n\r\n`)), undefined, 'the connection is open')
  t.match(answersIn(await client.received), [{ status: 100 }, { status: 413, headers: { connection: 'close' } }])
})

for (const [status, headers] of [[400, { host: 'not a host' }], [413, token]] as const) {
  test(`a client that waits for 100 Continue gets its ${status} without sending the body`, async t => {
    const { port, drain } = await serve(t)
    drain()
    const client = open(port)
    client.write(written('POST', '/api/items', undefined, { ...headers, expect: '100-continue', 'content-length': String(size) }))
    t.match(answersIn(await client.received), [{ status, headers: { connection: 'close' } }])
  })
}

async function serve (t: Test) {
  const app = build(t, { AUTH_TOKENS: 'one' })
  const { port } = await listen(app)
  return { port, drain: () => disableKeepAlive(app.server) }
}

/** Sends everything before it reads anything, as simple clients and some proxies do, and gives the error if that fails. */
function sendAll (client: Socket, bytes: Buffer) {
  client.pause()
  return new Promise<Error | undefined>(resolve => client.write(bytes, error => resolve(error ?? undefined))).finally(() => client.resume())
}
