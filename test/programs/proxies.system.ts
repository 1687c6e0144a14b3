import type { AddressInfo } from 'node:net'
import { test } from 'tap'
import { sendSecurely, startProxy } from '../deploy/tls.js'
import { rollingRestart } from '../stress/rolling.js'
import { build } from '../support/helper.js'
import { ownPaths, startNginx } from '../support/nginx.js'
import { startPostgres } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { until } from '../support/until.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

for (const program of ['nginx', 'caddy'] as const) {
  test(`the configuration of ${program} in docs/production.md terminates TLS, and the service sees the addresses and origins of clients`, { skip: without(program) }, async t => {
    const app = build(t, { TRUST_PROXY: '127.0.0.1', RATE_LIMIT_MAX: '2', DOCS: 'false' })
    await app.listen({ port: 0 })
    const { plain, secure } = await startProxy(t, program, (app.server.address() as AddressInfo).port)
    const item = JSON.stringify({ id: 7, name: 'Kettle', price: 19.99 })
    const post = (origin: string) => ({ method: 'POST', path: '/api/items', body: item, headers: { origin, 'content-length': item.length } })

    t.same(await sendSecurely(secure, '127.0.0.2', { path: '/api/items/1' }), { status: 200, body: '{"id":1,"name":"Lamp","price":42.5}' })
    t.match(await sendSecurely(secure, '127.0.0.2', { path: '/api/items/9' }), { status: 404 })
    t.match(await sendSecurely(secure, '127.0.0.2', { path: '/api/items/1' }), { status: 429 })
    t.match(await sendSecurely(secure, '127.0.0.3', post(`https://localhost:${secure}`)), { status: 201, body: item }, 'another client is not limited')
    t.match(await sendSecurely(secure, '127.0.0.4', post('https://example.com')), { status: 403 })
    t.match(await sendSecurely(secure, '127.0.0.5', { method: 'POST', path: '/api/items', body: ' '.repeat(1024 * 1024 + 1) }), { status: 413, body: '{"detail":' })
    const redirect = await fetch(`http://localhost:${plain}/api/items?limit=1`, { redirect: 'manual' })
    t.equal(redirect.status, 308)
    t.match(redirect.headers.get('location'), /^https:\/\/localhost(:\d+)?\/api\/items\?limit=1$/)
  })
}

test('Location and Link lead to the record and the next page through an nginx that strips a path prefix', { skip: without('nginx') }, async t => {
  const service = await build(t).listen({ port: 0, host: '127.0.0.1' })
  const { port } = await startNginx(t, (port, folder) => `events {} http { ${ownPaths(folder)}
    server { listen 127.0.0.1:${port}; location /shop/ { proxy_pass ${service}/; } } }`)
  const base = `http://127.0.0.1:${port}/shop`
  await until(async () => (await fetch(`${base}/readyz`).catch(() => undefined))?.ok === true)
  for (const url of [`${base}/api/items`, `${base}/api/items/`]) {
    const created = await fetch(url, { method: 'POST', body: JSON.stringify(item) })
    const record = await fetch(new URL(String(created.headers.get('location')), created.url))
    t.same(await record.json(), item)
    t.equal(record.url, `${base}/api/items/7`)
    const page = await fetch(`${url}?limit=1`)
    const next = await fetch(new URL(String(/<(.+)>; rel="next"/.exec(String(page.headers.get('link')))?.[1]), page.url))
    t.same(await next.json(), [item])
  }
  const home = await fetch(`${base}/`, { headers: { accept: 'text/html' } })
  t.same([home.status, home.url], [200, `${base}/docs`])
})

test('a rolling restart of three instances behind nginx and haproxy fails no request and loses no record', async t => {
  const proxies = ['nginx', 'haproxy'] as const
  for (const proxy of proxies) if (without(proxy)) t.pass(`behind ${proxy}`, { skip: without(proxy) })
  const behind = proxies.filter(proxy => !without(proxy))
  const server = behind.length > 0 && await startPostgres(t)
  if (server) t.match(await rollingRestart(t, server, { behind, rounds: 1, pause: 300 }), { restarts: 3 })
})
