import { spawn } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { request, type RequestOptions } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { test, type Test } from 'tap'
import { cert, key } from '../support/certificate.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { examplesIn } from '../support/markdown.js'
import { ownPaths, startNginx } from '../support/nginx.js'
import { freePort } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { until } from '../support/until.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

interface Place { folder: string, plain: number, secure: number }

/** The programs of the configurations in docs/production.md, each with its arguments and what it needs here. */
const programs = {
  nginx: {
    language: 'nginx',
    args (folder: string) {
      const own = `daemon off; pid ${folder}/pid; error_log ${folder}/errors;`
      return ['-p', folder, '-c', `${folder}/config`, '-g', own]
    },
    adapt (config: string, { folder, plain, secure }: Place) {
      const adapted = config
        .replace('listen 443', `listen 127.0.0.1:${secure}`)
        .replace('listen 80', `listen 127.0.0.1:${plain}`)
        .replace(/ssl_certificate .+;/, `ssl_certificate ${folder}/cert.pem;`)
        .replace(/ssl_certificate_key .+;/, `ssl_certificate_key ${folder}/key.pem;`)
      return `events {} http { ${ownPaths(folder)} ${adapted} }`
    }
  },
  caddy: {
    language: 'caddyfile',
    args: (folder: string) => ['run', '--adapter', 'caddyfile', '--config', `${folder}/config`],
    adapt: (config: string, { folder, plain, secure }: Place) => `
      {
        admin off
        default_bind 127.0.0.1
        http_port ${plain}
        https_port ${secure}
        storage file_system ${folder}
      }
      ${config.replace('{', `{\n tls ${folder}/cert.pem ${folder}/key.pem`)}`
  }
}

/** Starts a proxy with the configuration in docs/production.md, with other ports and a certificate for localhost. */
async function startProxy (t: Test, program: keyof typeof programs, servicePort: number) {
  const { language, args, adapt } = programs[program]
  const folder = newFolder(t)
  chmodSync(folder, 0o755) // as root, nginx handles requests as another user
  const [plain, secure] = [await freePort(), await freePort()]
  const config = examplesIn('docs/production.md').find(example => example.language === language)?.code ?? ''
  const adapted = config
    .replaceAll('items.example.com', 'localhost')
    .replace('127.0.0.1:3000', `127.0.0.1:${servicePort}`)
  writeFileSync(`${folder}/config`, adapt(adapted, { folder, plain, secure }))
  writeFileSync(`${folder}/cert.pem`, cert)
  writeFileSync(`${folder}/key.pem`, key)
  const env = { ...process.env, HOME: folder }
  const proxy = spawn(program, args(folder), { stdio: ['ignore', 'ignore', 'pipe'], env })
  let errors = ''
  proxy.stderr.on('data', chunk => { errors += chunk })
  t.teardown(() => proxy.kill('SIGTERM'))
  await until(async () => {
    if (proxy.exitCode !== null) throw new Error(errors)
    return await fetch(`http://localhost:${plain}`, { redirect: 'manual' }).then(() => true, () => false)
  })
  return { plain, secure }
}

/** Sends a request over TLS to localhost, from one of the loopback addresses, and checks the certificate. */
function send (port: number, localAddress: string, options: RequestOptions & { body?: string }) {
  const { body, headers, ...rest } = options
  const host = `localhost:${port}`
  const tls = { host: '127.0.0.1', port, servername: 'localhost', ca: cert, localAddress }
  return new Promise<{ status?: number, body: string }>((resolve, reject) => {
    request({ ...rest, ...tls, headers: { ...headers, host } }, async response => {
      resolve({ status: response.statusCode, body: await text(response) })
    }).on('error', reject).end(body)
  })
}

for (const program of ['nginx', 'caddy'] as const) {
  const skip = without(program)
  test(`behind the ${program} of docs/production.md, clients keep their addresses and origins`, { skip }, async t => {
    const app = build(t, { TRUST_PROXY: '127.0.0.1', RATE_LIMIT_MAX: '2', DOCS: 'false' })
    await app.listen({ port: 0 })
    const { plain, secure } = await startProxy(t, program, (app.server.address() as AddressInfo).port)
    const body = JSON.stringify(item)
    const post = { method: 'POST', path: '/api/items', body }
    const lamp = { status: 200, body: '{"id":1,"name":"Lamp","price":42.5}' }
    t.same(await send(secure, '127.0.0.2', { path: '/api/items/1' }), lamp)
    t.match(await send(secure, '127.0.0.2', { path: '/api/items/9' }), { status: 404 })
    t.match(await send(secure, '127.0.0.2', { path: '/api/items/1' }), { status: 429 })
    const own = { origin: `https://localhost:${secure}`, 'content-length': body.length }
    t.match(await send(secure, '127.0.0.3', { ...post, headers: own }), { status: 201, body }, 'another client')
    const foreign = { ...own, origin: 'https://example.com' }
    t.match(await send(secure, '127.0.0.4', { ...post, headers: foreign }), { status: 403 })
    t.match(await send(secure, '127.0.0.5', { ...post, body: ' '.repeat(1024 * 1024 + 1) }), { status: 413 })
    const redirect = await fetch(`http://localhost:${plain}/api/items?limit=1`, { redirect: 'manual' })
    t.equal(redirect.status, 308)
    t.match(redirect.headers.get('location'), /^https:\/\/localhost(:\d+)?\/api\/items\?limit=1$/)
  })
}

test('Location and Link work through an nginx that strips a path prefix', { skip: without('nginx') }, async t => {
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
    const [, link = ''] = /<(.+)>; rel="next"/.exec(String(page.headers.get('link'))) ?? []
    t.same(await (await fetch(new URL(link, page.url))).json(), [item])
  }
  const home = await fetch(`${base}/`, { headers: { accept: 'text/html' } })
  t.same([home.status, home.url], [200, `${base}/docs`])
})
