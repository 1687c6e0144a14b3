import { AsyncLocalStorage } from 'node:async_hooks'
import { execFile } from 'node:child_process'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import dns from 'node:dns'
import { once } from 'node:events'
import https from 'node:https'
import { connect, type AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { PassThrough } from 'node:stream'
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import Fastify, { type FastifyInstance } from 'fastify'
import { test, type Test } from 'tap'
import { disableKeepAlive } from '../../src/http-server/connections.js'
import itemsUsers, { connections, httpServerOptions } from '../../src/index.js'
import { cert, key } from '../support/certificate.js'
import { connection, exchange, listen, open, request, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
import { build, host, invalidBody } from '../support/helper.js'
import { takenPort } from '../support/process.js'

const item = JSON.stringify({ id: 7, name: 'Kettle', price: 1.5 })

onEveryEngine((t, address) => {
  t.test('every request has the async context that was set around its request event', async t => {
    const app = build(t, { DATABASE_URL: address() })
    const contexts = new AsyncLocalStorage<string>()
    // as an APM does
    const emit: (event: string, ...args: unknown[]) => boolean = app.server.emit.bind(app.server)
    Object.assign(app.server, {
      emit (event: string, ...args: [{ url: string }]) {
        return event === 'request' ? contexts.run(args[0].url, emit, event, ...args) : emit(event, ...args)
      }
    })
    t.same(await wrongContexts(app, contexts), [])
  })

  t.test('every request has the async context that a diagnostics channel set for it', async t => {
    const app = build(t, { DATABASE_URL: address() })
    const contexts = new AsyncLocalStorage<string>()
    const enter = (message: unknown) => contexts.enterWith((message as { request: { url: string } }).request.url)
    subscribe('http.server.request.start', enter)
    t.teardown(() => unsubscribe('http.server.request.start', enter))
    t.same(await wrongContexts(app, contexts), [])
  })

  t.test('a GET that is pipelined after a POST sees the new record, and after a DELETE does not see it', async t => {
    const { port } = await listen(build(t, { DATABASE_URL: address() }))
    const user = JSON.stringify({ id: 7, name: 'Alan' })
    const { send, socket } = connection(`http://127.0.0.1:${port}`)
    for (let n = 0; n < 20; n++) {
      const requests = [written('POST', '/api/users', user), written('GET', '/api/users/7'), written('DELETE', '/api/users/7'), written('GET', '/api/users/7')]
      const answers = await Promise.all(requests.map(text => send(text)))
      t.same(answers.map(({ status }) => status), [201, 200, 204, 404])
    }
    socket.destroy()
  })
})

/** The contexts that hooks and handlers of concurrent requests have seen and that were not their own. */
async function wrongContexts (app: FastifyInstance, contexts: AsyncLocalStorage<string>) {
  const wrong: string[] = []
  let seen = 0
  const look = async ({ url }: { url: string }) => {
    seen++
    if (contexts.getStore() !== url) wrong.push(`${contexts.getStore()} at ${url}`)
  }
  app.addHook('onRequest', look)
  app.addHook('preHandler', look)
  app.addHook('onSend', look)
  app.addHook('onResponse', look)
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  for (const concurrency of [1, 5, 100]) {
    const clients = Array.from({ length: concurrency }, () => connection(url))
    for (let n = 0; n < 8; n++) {
      await Promise.all(clients.map(({ send }, client) => {
        const path = `/api/items?client=${concurrency}.${client}.${n}`
        return send(client % 2 ? written('POST', path, item) : written('GET', `${path}&limit=3`))
      }))
    }
    for (const { socket } of clients) socket.destroy()
  }
  await app.close()
  return seen === 8 * 106 * 4 ? wrong : [`${seen} looks`]
}

test('a request that throws does not affect the other requests of its batch', async t => {
  const script = `
    import { connect } from 'node:net'
    import Fastify from 'fastify'
    import { httpServerOptions } from '${pathToFileURL(resolve('src/http-server/server.ts'))}'
    let thrown = 0
    process.on('uncaughtException', () => { thrown++ })
    const app = Fastify({ ...httpServerOptions, rewriteUrl ({ url }) { if (url === '/throws') throw new Error('boom'); return url } })
    app.get('/', async () => 'served')
    const url = new URL(await app.listen({ port: 0 }))
    const get = path => new Promise(resolve => {
      let text = ''
      const socket = connect(url.port, url.hostname)
      socket.end('GET ' + path + ' HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')
      socket.on('data', chunk => { text += chunk })
      socket.on('close', () => resolve(text))
    })
    const throwing = Array.from({ length: 20 }, () => get('/throws'))
    const answers = await Promise.all(Array.from({ length: 20 }, () => get('/')))
    console.log(answers.filter(text => text.endsWith('served')).length, thrown)
    process.exit()`
  const { stdout } = await promisify(execFile)(process.execPath, [...process.execArgv, '--input-type=module', '--eval', script])
  t.equal(stdout, '20 20\n')
})

test('only few pipelined requests of a client that does not read are handled', async t => {
  const app = build(t)
  let handled = 0
  app.addHook('onRequest', async () => { handled++ })
  const { port } = await listen(app)
  const sockets: { bytesRead: number }[] = []
  app.server.on('connection', socket => sockets.push(socket))
  const large = JSON.stringify({ id: 7, name: 'x'.repeat(1_000_000), price: 1 })
  await exchange(port, request('POST', '/api/items', large))
  handled = 0

  const client = connect(port, '127.0.0.1').pause()
  const get = written('GET', '/api/items/7')
  const count = 1500
  client.write(Buffer.concat(Array.from({ length: count }, () => get)))
  client.write(Buffer.alloc(20_000_000, get))
  let before
  do {
    before = handled
    for (let n = 0; n < 50; n++) await turn()
    await exchange(port, request('GET', '/livez')) // others are served meanwhile
    handled--
  } while (handled !== before)
  t.ok(handled < 40, `${handled} of ${count} were handled, as many as the kernel keeps for the client`)
  t.ok(Number(sockets.at(1)?.bytesRead) < 1_000_000, 'and no more of them were read')
  client.destroy()
})

test('other connections get their turn between pipelined requests', async t => {
  const app = build(t)
  const handled = { pipelined: 0, before: 0 }
  app.addHook('onRequest', async ({ url }) => {
    if (url === '/livez') handled.before = handled.pipelined
    else handled.pipelined++
  })
  const { port } = await listen(app)
  const client = open(port)
  client.write(Buffer.concat([...Array.from({ length: 1500 }, () => written('GET', '/api/items/1')), Buffer.from(request('GET', '/api/items'))]))
  while (handled.pipelined === 0) await turn()
  const first = handled.pipelined
  await exchange(port, request('GET', '/livez'))
  t.ok(handled.before - first < 100, `${handled.before - first} of 1500 requests were handled first`)
  t.equal(String(await client.received).match(/HTTP\/1.1 200/g)?.length, 1501)
})

test('pipelined requests are all answered when the client reads', async t => {
  const { port } = await listen(build(t))
  const gets = Array.from({ length: 2000 }, (_, n) => written('GET', `/api/items?x=${n}`))
  const client = open(port)
  client.write(Buffer.concat([...gets, Buffer.from(request('GET', '/api/items/9'))]))
  const text = String(await client.received)
  t.equal(text.match(/HTTP\/1.1 200/g)?.length, 2000)
  t.equal(text.match(/HTTP\/1.1 404/g)?.length, 1)
})

test('requests after a rejected one are not handled, also while an earlier one is in progress', async t => {
  const app = host(t, httpServerOptions)
  const handled: string[] = []
  let finish = () => {}
  app.get('/slow', async () => {
    handled.push('slow')
    await new Promise<void>(resolve => { finish = resolve })
    return 'slow'
  })
  app.get('/next', async () => { handled.push('next') })
  await app.listen({ port: 0, host: '127.0.0.1' })
  for (const refused of ['GET /next HTTP/1.1\r\nHost: a b\r\n\r\n', 'GET /next HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n\r\n']) {
    handled.length = 0
    const client = open((app.server.address() as AddressInfo).port)
    client.write(Buffer.concat([written('GET', '/slow'), Buffer.from(refused), written('GET', '/next'), written('GET', '/next')]))
    while (handled.length === 0) await turn()
    finish()
    t.match(String(await client.received).match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 200', /400|417/])
    t.same(handled, ['slow'])
  }
})

test('every response has a Connection and a Date header', async t => {
  for (const draining of [false, true]) {
    const app = build(t, { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '100', CORS_ORIGIN: 'https://example.com' })
    const { port } = await listen(app)
    if (draining) disableKeepAlive(app.server)
    const auth = { authorization: 'Bearer one' }
    for (const [status, text, closes] of [
      [200, written('GET', '/api/items', undefined, auth)],
      [200, written('HEAD', '/api/items', undefined, auth)],
      [201, written('POST', '/api/items', item, auth)],
      [204, written('DELETE', '/api/users/1', undefined, auth)],
      [204, written('OPTIONS', '/api/items', undefined, { origin: 'https://example.com', 'access-control-request-method': 'POST' })],
      [400, written('POST', '/api/items', '{', auth)],
      [400, written('POST', '/api/items', '{}', auth)],
      [400, written('GET', '/%zz')],
      [400, Buffer.from('nonsense\r\n\r\n'), true],
      [400, Buffer.from('GET / HTTP/1.1\r\n\r\n'), true],
      [401, written('GET', '/api/items')],
      [404, written('GET', '/api/items/9', undefined, auth)],
      [404, written('GET', '/nope')],
      [405, written('PUT', '/api/items', '{}', auth)],
      [413, written('POST', '/api/items', 'x'.repeat(2_000_000), auth)],
      [414, written('GET', `/api/items/${'9'.repeat(200)}`, undefined, auth)],
      [417, written('GET', '/api/items', undefined, { expect: 'magic' }), true],
      [200, written('GET', '/docs')],
      [200, written('GET', '/livez')]
    ] as [number, Buffer, boolean?][]) {
      const { send, socket } = connection(`http://127.0.0.1:${port}`)
      const answer = await send(text, text.toString('latin1', 0, 4) === 'HEAD')
      t.equal(answer.status, status, text.toString('latin1', 0, 60))
      t.equal(answer.headers.connection, draining || closes ? 'close' : 'keep-alive')
      t.ok(Date.parse(String(answer.headers.date)))
      if (draining || closes) await once(socket, 'close')
      else t.equal((await send(written('GET', '/livez'))).status, 200)
      socket.destroy()
    }
  }
})

test('an HTTP/1.0 keep-alive client is told on errors too that the connection stays open', async t => {
  const { port } = await listen(build(t))
  const { send, socket } = connection(`http://127.0.0.1:${port}`)
  for (const [path, status] of [['/api/items/9', 404], ['/api/items/x', 400], ['/nope', 404], ['/api/items/1', 200]] as const) {
    const answer = await send(`GET ${path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n`)
    t.equal(answer.status, status)
    t.equal(answer.headers.connection, 'keep-alive')
  }
  socket.destroy()
})

test('a missing, duplicate or invalid Host is answered with 400', async t => {
  const { port } = await listen(build(t))
  const get = async (...hosts: string[]) => {
    const text = await exchange(port, `GET /api/items HTTP/1.1\r\n${hosts.map(host => `Host: ${host}\r\n`).join('')}Connection: close\r\n\r\n`)
    return { status: Number(text.slice(9, 12)), body: JSON.parse(text.slice(text.indexOf('\r\n\r\n'))) }
  }
  for (const host of ['x', 'shop.example:8080', '127.0.0.1', '[::1]:3000', '', 'x:', 'a_b', 'xn--bcher-kva.example']) t.equal((await get(host)).status, 200, host)
  for (const host of ['a b', 'x/y', 'x:y', 'user@x', 'x?y', '[::1', 'x"', 'x\x80', 'http://x']) {
    t.same(await get(host), { status: 400, body: invalidBody('headers', ['/host', 'must be a host name and an optional port']) }, host)
  }
  t.same((await get('a', 'b')).body, invalidBody('headers', ['/host', 'must be sent only once']))
  t.same((await get('a', 'a')).body, invalidBody('headers', ['/host', 'must be sent only once']))
  t.same((await get()).body, invalidBody('headers', ['/host', 'is required']))
})

test('a request that is rejected because of its headers gets no 100 Continue, and its connection is closed', async t => {
  const { port } = await listen(build(t, { AUTH_TOKENS: 'one' }))
  const expectant = (path: string, ...headers: string[]) => exchange(port, `POST ${path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n${headers.join('\r\n')}\r\n\r\n`)
  for (const [status, text] of [
    [401, await expectant('/api/items', 'Content-Length: 10')],
    [413, await expectant('/api/items', 'Content-Length: 2000000', 'Authorization: Bearer one')],
    [404, await expectant('/nope', 'Content-Length: 10')]
  ] as const) {
    t.match(text, new RegExp(`^HTTP/1.1 ${status} `))
    t.match(text, /\r\nconnection: close\r\n/i)
    t.notMatch(text, '100 Continue')
  }
})

test('a valid request gets 100 Continue once, when its body is read', async t => {
  const { port } = await listen(build(t))
  for (const [headers, after] of [['', /keep-alive/], ['Connection: close\r\n', /close/]] as const) {
    const client = open(port)
    client.write(`POST /api/items HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: ${item.length}\r\n${headers}\r\n`)
    const [first] = await once(client, 'data')
    t.equal(String(first), 'HTTP/1.1 100 Continue\r\n\r\n')
    client.write(item)
    const [second] = await once(client, 'data')
    t.match(String(second), /^HTTP\/1.1 201 /)
    t.match(/connection: (.+)\r/i.exec(String(second))?.[1], after)
    client.destroy()
  }
})

test('a connection that is no longer writable is closed when its request is rejected', async t => {
  const app = host(t, httpServerOptions)
  const socket = new PassThrough().end()
  httpServerOptions.clientErrorHandler.call(app, Object.assign(new Error('malformed'), { code: 'HPE_INVALID' }) as never, socket as never)
  t.ok(socket.destroyed)
})

test('httpServerOptions work with https, and fail with a clear error with http2', async t => {
  const app = Fastify({ ...httpServerOptions, https: { key, cert } })
  t.teardown(() => app.close())
  app.register(connections, { stalledAfter: 60_000 })
  app.register(itemsUsers, { prefix: '/api' })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  t.match(url, /^https:/)
  const agent = new https.Agent({ ca: cert, keepAlive: true })
  for (let n = 0; n < 3; n++) {
    const [response] = await once(https.get(`${url}/api/items`, { agent }), 'response')
    t.equal(response.statusCode, 200)
    t.equal(String(Buffer.concat(await response.toArray())), '[{"id":1,"name":"Lamp","price":42.5}]')
  }
  agent.destroy()
  for (const options of [{ http2: true }, { http2: true, https: { key, cert } }] as object[]) {
    t.throws(() => Fastify({ ...httpServerOptions, ...options }), { message: /^httpServerOptions cannot serve HTTP\/2\./ })
  }
})

test('localhost listens on all its addresses', async t => {
  giveLocalhostTwoAddresses(t)
  const app = host(t, httpServerOptions)
  app.get('/', async () => 'served')
  const { port } = new URL(await app.listen({ port: 0, host: 'localhost' }))
  for (const address of ['127.0.0.1', '127.0.0.2']) t.equal(await (await fetch(`http://${address}:${port}/`)).text(), 'served')
  await app.close()
  for (const address of ['127.0.0.1', '127.0.0.2']) await t.rejects(fetch(`http://${address}:${port}/`))
  const one = host(t, httpServerOptions)
  await one.listen({ port: 0, host: '127.0.0.1' })
  await t.rejects(fetch(`http://127.0.0.2:${(one.server.address() as AddressInfo).port}/`))
  const own = host(t, httpServerOptions)
  await own.ready()
  await new Promise<void>(resolve => own.server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => own.server.close())
  t.match(own.server.address(), { address: '127.0.0.1' }, 'the server of Node has its own arguments')
})

test('on localhost, closing waits for the requests of all addresses', async t => {
  giveLocalhostTwoAddresses(t)
  const app = host(t, httpServerOptions)
  app.register(connections)
  const answers = new PassThrough()
  app.get('/', async () => (await once(answers, 'data'))[0])
  const { port } = new URL(await app.listen({ port: 0, host: 'localhost' }))
  const response = fetch(`http://127.0.0.2:${port}/`)
  await once(app.server, 'request')
  let isClosed = false
  const closed = app.close().then(() => { isClosed = true })
  while (app.server.listening) await turn()
  await sleep(100)
  t.notOk(isClosed)
  answers.write('served')
  t.equal(await (await response).text(), 'served')
  await closed
})

test('if the first address of localhost is in use, the others are closed', async t => {
  giveLocalhostTwoAddresses(t)
  const { port } = await takenPort(t)
  await t.rejects(host(t, httpServerOptions).listen({ port, host: 'localhost' }), { code: 'EADDRINUSE' })
  await t.rejects(fetch(`http://127.0.0.2:${port}/`))
})

function giveLocalhostTwoAddresses (t: Test) {
  const { lookup } = dns
  t.teardown(() => { dns.lookup = lookup })
  const addresses = ['127.0.0.1', '127.0.0.2', '192.0.2.1'].map(address => ({ address, family: 4 }))
  dns.lookup = ((name: string, options: { all?: boolean }, done: (...results: unknown[]) => void) =>
    name === 'localhost' && options.all ? done(null, addresses) : lookup(name, options, done)) as typeof lookup
}
