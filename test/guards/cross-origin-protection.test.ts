import Fastify from 'fastify'
import { test } from 'tap'
import itemsUsers, { auth, crossOriginProtection, docs } from '../../src/index.js'
import { build } from '../support/helper.js'
import { connection, written } from '../support/connection.js'

const item = JSON.stringify({ id: 7, name: 'Kettle', price: 19.99 })
const rejection = { detail: 'Cross-origin request rejected: its origin is not allowed' }
const allowed = 'https://page.example'

/** What browsers say of a request, and whether it is served with CORS_ORIGIN unset, set to `allowed`, and `*`. */
const table: [site: string | undefined, origin: string | undefined, served: [unset: boolean, allowed: boolean, any: boolean]][] = [
  [undefined, undefined, [true, true, true]],
  ['', '', [true, true, true]],
  ['same-origin', 'http://api.example:3000', [true, true, true]],
  ['same-origin', 'https://behind.a.proxy.example', [true, true, true]],
  ['same-origin', undefined, [true, true, true]],
  ['none', undefined, [true, true, true]],
  ['same-site', 'http://api.example:8080', [false, false, true]],
  ['same-site', allowed, [false, true, true]],
  ['cross-site', allowed, [false, true, true]],
  ['cross-site', 'https://evil.example', [false, false, true]],
  ['cross-site', 'http://api.example:3000', [false, false, true]],
  ['cross-site', 'null', [false, false, true]],
  ['cross-site', undefined, [false, false, true]],
  ['same-origin, cross-site', undefined, [false, false, true]],
  ['unheard-of', undefined, [false, false, true]],
  [undefined, 'http://api.example:3000', [true, true, true]],
  [undefined, 'https://api.example:3000', [true, true, true]],
  [undefined, 'http://api.example', [false, false, true]],
  [undefined, 'http://api.example:3000.evil.example', [false, false, true]],
  [undefined, 'extension://api.example:3000', [false, false, true]],
  [undefined, 'https://evil.example', [false, false, true]],
  [undefined, 'null', [false, false, true]],
  [undefined, allowed, [false, true, true]],
  [undefined, allowed.replace('https', 'http'), [false, false, true]],
  ['', allowed, [false, true, true]]
]

test('browsers can change data only from the origin of the service and the origins in CORS_ORIGIN', async t => {
  for (const [n, CORS_ORIGIN] of [undefined, `http://other.example,${allowed}`, '*'].entries()) {
    const app = build(t, { ...CORS_ORIGIN && { CORS_ORIGIN } })
    const { socket, send } = connection(await app.listen({ port: 0, host: '127.0.0.1' }))
    let stored = 1
    for (const [site, origin, served] of table) {
      const headers = { host: 'api.example:3000', ...site !== undefined && { 'sec-fetch-site': site }, ...origin !== undefined && { origin } }
      const says = `Sec-Fetch-Site: ${site}, Origin: ${origin}, CORS_ORIGIN: ${CORS_ORIGIN}`
      for (const [method, path, body, status] of [
        ['POST', '/api/items', item, 201], ['DELETE', '/api/users/9', undefined, 404], ['PUT', '/api/items', item, 405], ['PATCH', '/nope', item, 404]
      ] as const) {
        const answer = await send(written(method, path, body, headers))
        t.equal(answer.status, served[n] ? status : 403, `${method} ${says}`)
        if (!served[n]) t.same(JSON.parse(String(answer.body)), rejection)
        if (answer.status === 201) stored++
      }
      for (const method of ['GET', 'HEAD']) t.equal((await send(written(method, '/api/items', undefined, headers), method === 'HEAD')).status, 200, `${method} ${says}`)
      t.not((await send(written('OPTIONS', '/api/items', undefined, headers))).status, 403, `OPTIONS ${says}`)
    }
    t.equal((await app.inject('/api/items')).json().length, stored)
    socket.destroy()
  }
})

test('a cross-origin request is rejected before its token is checked and before its body is sent', async t => {
  const app = build(t, { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '1' })
  const { socket, send } = connection(await app.listen({ port: 0, host: '127.0.0.1' }))
  const head = written('POST', '/api/items', undefined, { origin: 'https://evil.example', 'content-length': '1000000' })
  t.equal((await send(head)).status, 403)
  socket.destroy()
  t.equal((await app.inject('/api/items')).statusCode, 401, 'and it is not counted against the address')
})

test('behind a trusted proxy that changes the Host, X-Forwarded-Host is the origin of the service', async t => {
  const post = { method: 'POST', url: '/api/items', body: item } as const
  const headers = { host: 'internal:3000', 'x-forwarded-host': 'api.example', origin: 'https://api.example' }
  t.equal((await build(t, { TRUST_PROXY: '127.0.0.1' }).inject({ ...post, headers })).statusCode, 201)
  t.equal((await build(t).inject({ ...post, headers })).statusCode, 403)
})

test('a host has cross-origin protection only if it registers the plugin, with its own origins', async t => {
  const plain = Fastify()
  const app = Fastify()
  for (const each of [plain, app]) t.teardown(() => each.close())
  plain.register(itemsUsers, { prefix: '/api' })
  await app.register(docs)
  app.register(crossOriginProtection, { origins: [allowed] })
  app.register(auth, { tokens: ['one'] })
  app.register(itemsUsers, { prefix: '/api' })
  app.post('/mine', { schema: { response: { 200: { type: 'string' } } } }, async () => 'mine')
  app.setErrorHandler<Error & { statusCode: number }>((error, _request, reply) => reply.code(error.statusCode).send({ mine: error.message }))

  const headers = { origin: 'https://evil.example', authorization: 'Bearer one' }
  t.equal((await plain.inject({ method: 'POST', url: '/api/items', body: item, headers })).statusCode, 201)
  const rejected = await app.inject({ method: 'POST', url: '/api/items', body: item, headers })
  t.same([rejected.statusCode, rejected.json()], [403, rejection])
  const mine = await app.inject({ method: 'POST', url: '/mine', headers })
  t.same([mine.statusCode, mine.json()], [403, { mine: rejection.detail }])
  t.equal((await app.inject({ method: 'POST', url: '/api/items', body: item, headers: { ...headers, origin: allowed } })).statusCode, 201)

  const { paths } = (await app.inject({ url: '/openapi.json', headers })).json()
  t.same(Object.entries<Record<string, { responses: Record<string, { description: string }> }>>(paths).flatMap(([path, methods]) => Object.entries(methods)
    .filter(([, { responses }]) => responses[403]?.description.includes('another origin')).map(([method]) => `${method} ${path}`)).sort(), ['delete /api/users/{id}', 'post /api/items', 'post /api/users'])
})
