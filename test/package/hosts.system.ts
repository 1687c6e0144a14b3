import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { Validator } from '@seriousme/openapi-schema-validator'
import type { FastifyInstance, InjectOptions } from 'fastify'
import { test, type Test } from 'tap'
import { uncovered as env } from '../support/environment.js'
import { compile, hostFolder, optionsIn } from '../support/host-folder.js'
import { invalidBody } from '../support/helper.js'
import { examplesIn, pages } from '../support/markdown.js'

const run = promisify(execFile)
const item = { id: 7, name: 'Kettle', price: 19.99 }

const folder = await hostFolder('5')

const storesOptions = optionsIn('plugins/stores.ts', 'StoresOptions')
const docsOptions = optionsIn('plugins/docs/openapi.ts', 'DocsOptions')

async function host (t: Test, name: string, options = {}): Promise<FastifyInstance> {
  const { build } = await import(pathToFileURL(join(folder, name)).href)
  // Fastify is a promise too, which to await is to make it ready.
  const app = await build(options)
  t.teardown(() => app.close())
  return app
}

test('a host has one copy of Fastify, and can use all plugins', async t => {
  const { packages } = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8'))
  t.same(Object.keys(packages).filter(name => /(^|\/)node_modules\/fastify$/.test(name)), ['node_modules/fastify'])
  const app = await host(t, 'everything.js')
  const headers = { authorization: 'Bearer one' }
  t.same((await app.inject({ method: 'POST', url: '/api/items', payload: item, headers })).json(), item)
  t.equal((await app.inject({ url: '/api/items/9', headers })).body, '{"detail":"Not found"}')
  t.equal((await app.inject('/api/items')).statusCode, 401)
  t.equal((await app.inject({ url: '/api/nope', headers })).body, '{"detail":"Path not found"}')
  t.equal((await app.inject({ method: 'PUT', url: '/api/items', headers })).headers.allow, 'GET, HEAD, POST, OPTIONS')
  t.equal((await app.inject('/nope')).body, '{"detail":"Path not found"}')
  t.equal((await app.inject('/readyz')).body, '{"status":"ok"}')
  for (const url of ['/docs', '/redoc', '/redoc/redoc.standalone.js', '/openapi.json']) t.equal((await app.inject(url)).statusCode, 200, url)
})

test('a host keeps its own parsers, handlers and compilers, and the plugin keeps the contract', async t => {
  const app = await host(t, 'own-ways.js')
  const bare = await host(t, 'own-ways.js', { withPlugin: false })
  for (const request of [
    { method: 'POST', url: '/own', payload: { n: '5', extra: 1 } },
    { method: 'POST', url: '/own', payload: { n: 'x' } },
    { method: 'POST', url: '/own', headers: { 'content-type': 'text/special' }, body: 'anything' },
    { method: 'POST', url: '/own', headers: { 'content-type': 'text/other' }, body: '{"n":1}' },
    { method: 'POST', url: '/own', headers: { 'content-type': 'application/json' }, body: '{' },
    { method: 'PUT', url: '/own' },
    { method: 'HEAD', url: '/own' },
    { method: 'GET', url: '/nope' },
    { method: 'GET', url: '/fails' },
    { method: 'OPTIONS', url: '/own', headers: { origin: 'https://example.com', 'access-control-request-method': 'POST' } }
  ] satisfies InjectOptions[]) {
    const [withPlugin, without] = await Promise.all([app.inject(request), bare.inject(request)])
    t.equal(withPlugin.statusCode, without.statusCode, `${request.method} ${request.url}`)
    t.equal(withPlugin.body, without.body)
    t.same({ ...withPlugin.headers, date: '' }, { ...without.headers, date: '' })
  }

  t.same((await app.inject({ method: 'POST', url: '/api/items', payload: item })).json(), item)
  t.same((await app.inject('/api/items/7')).json(), item)
  t.equal((await app.inject('/api/items/9')).body, '{"detail":"Not found"}')
  t.same((await app.inject({ method: 'POST', url: '/api/items', payload: { ...item, id: '7' } })).json(), invalidBody('body', ['/id', 'must be an integer']))
  t.same((await app.inject({ method: 'POST', url: '/api/items', headers: { 'content-type': 'text/special' }, body: '{' })).json(), invalidBody('body', ['', 'must be valid JSON']))
  t.equal((await app.inject('/api/nope')).body, '{"detail":"Path not found"}')
  t.equal((await app.inject({ method: 'HEAD', url: '/api/items' })).statusCode, 200)
  t.same(Object.keys(app.getSchemas()), ['Item'])
})

test('a host can pass the same options to all plugins, in any order and scope, and handle errors itself', async t => {
  const app = await host(t, 'shared-options.js')
  t.equal((await app.inject('/api/items')).statusCode, 200)
  for (const url of ['/ops/livez', '/ops/readyz', '/manual/docs', '/manual/redoc']) t.equal((await app.inject(url)).statusCode, 200, url)
  const { paths } = (await app.inject('/manual/openapi.json')).json()
  t.ok(paths['/api/items'] && paths['/ops/readyz'])
  t.equal((await app.inject('/api/items/')).statusCode, 400)
  t.same((await app.inject('/own-errors/items/9')).json(), { own: 'Not found', code: 'ERR_NOT_FOUND' })
  t.match((await app.inject('/own-errors/items/x')).json(), { code: 'ERR_INVALID_REQUEST', errors: [{ in: 'path', path: '/item_id' }] })
  t.equal((await app.inject('/tenants/items')).body, '{"detail":"Unknown tenant"}')
  t.equal((await app.inject({ url: '/tenants/items', headers: { tenant: 'acme' } })).statusCode, 200)
  const down = await host(t, 'shared-options.js', { store: 'postgres://127.0.0.1:1/none' })
  t.equal((await down.inject('/ops/readyz')).statusCode, 503, 'the probes were registered last, in another scope')
})

test('a host with its own document finds our routes in it, next to its own Item', async t => {
  const app = await host(t, 'own-document.js')
  await app.ready()
  const { paths, components } = (app as unknown as { swagger (): any }).swagger()
  t.same(Object.keys(paths), ['/own', '/api/items', '/api/items/{item_id}', '/api/users', '/api/users/{id}'])
  t.same(Object.keys(components.schemas).sort(), ['Item', 'ItemsUsers.ConflictingRequest', 'ItemsUsers.ErrorBody', 'ItemsUsers.InvalidRequest', 'ItemsUsers.Item', 'ItemsUsers.Problem', 'ItemsUsers.User'])
  t.same(Object.keys(components.schemas.Item.properties), ['colour'])
  t.same(Object.keys(components.schemas['ItemsUsers.Item'].properties), ['id', 'name', 'price'])
  t.same(paths['/own'].get.responses[200].content['application/json'].schema, { $ref: '#/components/schemas/Item' })
  t.same(paths['/api/items/{item_id}'].get.responses[200].content['application/json'].schema, { $ref: '#/components/schemas/ItemsUsers.Item' })
  t.same(paths['/api/items'].get.tags, ['items'])
  t.equal((await app.inject('/own')).body, '{"colour":"red"}')
  t.equal((await app.inject('/api/items')).statusCode, 200)
})

test('two registrations have separate collections or share them', async t => {
  for (const share of [false, true]) {
    const app = await host(t, 'twice.js', { share })
    const created = await app.inject({ method: 'POST', url: '/api/v1/items', payload: item })
    t.equal(created.headers.location, './items/7')
    t.equal((await app.inject('/api/v2/items/7')).statusCode, share ? 200 : 404)
    const document = (await app.inject({ url: '/openapi.json', headers: { host: '127.0.0.1' } })).json()
    const ids = Object.values<any>(document.paths).flatMap(methods => Object.values<any>(methods).map(({ operationId }) => operationId))
    t.equal(new Set(ids).size, ids.length)
    t.ok(ids.includes('listItemsApiV1') && ids.includes('listItemsApiV2'))
    if (share) t.match(await new Validator().validate(document), { valid: true })
  }
})

test('a host can register one collection with its own store', async t => {
  const app = await host(t, 'one-collection.js')
  t.equal((await app.inject('/things')).body, '[]')
  for (const id of [1, 2, 3]) t.equal((await app.inject({ method: 'POST', url: '/things', payload: { ...item, id } })).statusCode, 201)
  t.same((await app.inject('/things/3')).json(), { ...item, id: 3 })
  t.equal((await app.inject('/things/4')).body, '{"detail":"Not found"}')
  const page = await app.inject('/things?limit=2')
  t.same(page.json(), [{ ...item, id: 1 }, { ...item, id: 2 }])
  t.match(page.headers.link, '<?limit=2&after=2>; rel="next"')
  t.equal((await app.inject({ method: 'POST', url: '/things', payload: {} })).statusCode, 400)
})

test('hooks of a host can identify tenants, and each tenant has its own stores', async t => {
  const app = await host(t, 'tenants.js')
  const created = await app.inject({ method: 'POST', url: '/red/api/items', payload: item })
  t.equal(created.headers.location, './items/7')
  t.same((await app.inject('/red/api/items')).json(), [item])
  t.same((await app.inject('/blue/api/items')).json(), [])
  const unknown = await app.inject('/green/api/items')
  t.equal(unknown.statusCode, 401)
  t.equal(unknown.body, '{"detail":"Who are you?"}')
  t.same((await app.inject({ url: '/green/api/items', headers: { 'x-tenant': 'red' } })).json(), [item])
})

test('a strict TypeScript host and the code examples in the documentation compile with skipLibCheck: false, and the examples run', async t => {
  const examples = pages.flatMap(page => examplesIn(page)).filter(({ language, code }) => ['js', 'ts', 'cjs'].includes(language) && code.includes('Fastify'))
  const requests = [
    // README.md
    ["'/api/items'", "'/docs'", "'/livez'"],
    // docs/collections.md
    ["'/orders'", "{ method: 'POST', url: '/orders', payload: { item_id: 1, quantity: 1 } }", "'/docs'"],
    ["{ method: 'POST', url: '/orders', headers: { 'x-tenant': 'red' }, payload: { quantity: 1 } }", "{ url: '/orders/1', headers: { 'x-tenant': 'red' } }"],
    // docs/plugin.md
    ["'/api/items'", "'/size'", "'/readyz'"],
    ["'/api/items'", "{ method: 'POST', url: '/api/items', headers: { authorization: 'Bearer a-long-random-token' }, payload: { id: 9, name: 'x', price: 1 } }"],
    ["'/api/items'"],
    ["'/api/items'", "'/docs'", "{ method: 'POST', url: '/api/users', payload: { id: 9, name: 'x' } }", "{ method: 'DELETE', url: '/api/users/9', headers: { 'x-role': 'admin' } }"]
  ]
  const refused = { 2: "{ url: '/orders', headers: { 'x-tenant': 'green' } }", 4: "{ method: 'DELETE', url: '/api/users/1' }", 5: "'/api/items/9'", 6: "{ method: 'DELETE', url: '/api/users/1' }" }
  t.equal(examples.length, requests.length)
  for (const [n, { language, code }] of examples.entries()) {
    const asked = [...requests[n] ?? [], ...Object.entries(refused).filter(([of]) => Number(of) === n).map(([, request]) => request)]
    const then = asked.map(request => `console.log((await app.inject(${request})).statusCode)`).join('\n') + '\nawait app.close()\n'
    const text = code.replace('port: 3000', 'port: 0') + (language === 'cjs' ? `\n  .then(async () => { ${then} })` : `\n${then}`)
    writeFileSync(join(folder, `example-${n}.${extensionOf(language)}`), text)
  }
  const typescript = examples.flatMap(({ language }, n) => language === 'cjs' ? [] : [`example-${n}.ts`])
  t.equal(await compile('node_modules/typescript', 'nodenext', ['strict.ts', 'schemas.ts', ...typescript], folder), '')
  t.equal(await compile('node_modules/typescript', 'bundler', ['strict.ts', 'schemas.ts'], folder), '')
  // One process for all ES modules, because most of the time is for loading packages.
  const modules = examples.flatMap(({ language }, n) => language === 'cjs' ? [] : [`console.log('example ${n}'); await import('./example-${n}.js')`])
  const [, ...outputs] = (await run(process.execPath, ['--input-type=module', '--eval', modules.join('\n')], { env, cwd: folder })).stdout.split(/^example \d+$/m)
  for (const [n, { language, code }] of examples.entries()) {
    const output = language === 'cjs' ? (await run(process.execPath, [`example-${n}.cjs`], { env, cwd: folder })).stdout : outputs.shift()
    const statuses = output?.trim().split('\n')
    t.match(statuses, [...(requests[n] ?? []).map(() => /^20[014]$/), ...n in refused ? [/^40[134]$/] : []], code)
  }

  function extensionOf (language: string) {
    return language === 'cjs' ? 'cjs' : 'ts'
  }
})

test('docs/plugin.md lists every option and every exported plugin', async t => {
  const page = readFileSync('docs/plugin.md', 'utf8')
  const index = readFileSync('src/index.ts', 'utf8')
  for (const [, name] of index.matchAll(/^export {\s+default as (\w+)/gm)) t.match(page, new RegExp(`^\\| .*\`${name}\`.* \\|`, 'm'))
  for (const [, names = ''] of index.matchAll(/^export {(?!\s+default)([^}]+)}/gm)) {
    for (const name of names.split(',')) t.match(page, `\`${name.trim().replace('type ', '')}\``)
  }
  for (const name of [...storesOptions, ...docsOptions]) t.match(page, `| \`${name}\` |`)
})

test('CommonJS can require the package', async t => {
  const { stdout } = await run(process.execPath, ['-e', `
    const app = require('./common.cjs').build()
    app.inject('/api/items').then(async ({ body }) => {
      console.log(body)
      await app.close()
    })`], { env, cwd: folder })
  t.equal(stdout, '[{"id":1,"name":"Lamp","price":42.5}]\n')
})

test('closing a host closes the stores, and its process can exit', async t => {
  mkdirSync(join(folder, 'closed'))
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', `
    import { statSync } from 'node:fs'
    import Fastify from 'fastify'
    import itemsUsers from 'fastify-items-users'
    const app = Fastify()
    app.register(itemsUsers, { prefix: '/api', store: 'sqlite:closed/items.db' })
    await app.inject({ method: 'POST', url: '/api/items', payload: ${JSON.stringify(item)} })
    await app.close()
    console.log(statSync('closed/items.db-wal', { throwIfNoEntry: false })?.size ?? 0)`], { env, cwd: folder })
  t.equal(stdout, '0\n', 'all is in the file')
})
