import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { InjectOptions } from 'fastify'
import { test } from 'tap'
import { uncovered as env } from '../support/environment.js'
import { invalidBody } from '../support/helper.js'
import { compile, hostFolder, optionsIn } from '../support/host-folder.js'
import { examplesIn, pages } from '../support/markdown.js'
import { buildHost, usesEverything } from './hosts.js'

const run = promisify(execFile)
const item = { id: 7, name: 'Kettle', price: 19.99 }
const folder = await hostFolder('5')

test('a host has one copy of Fastify, and can use all plugins', async t => {
  await usesEverything(t, folder)
})

test('a host keeps its own parsers, handlers and compilers, and the plugin keeps the contract', async t => {
  const app = await buildHost(t, folder, 'own-ways.js')
  const bare = await buildHost(t, folder, 'own-ways.js', { withPlugin: false })
  const preflight = { origin: 'https://example.com', 'access-control-request-method': 'POST' }
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
    { method: 'OPTIONS', url: '/own', headers: preflight }
  ] satisfies InjectOptions[]) {
    const [withPlugin, without] = await Promise.all([app.inject(request), bare.inject(request)])
    t.equal(withPlugin.statusCode, without.statusCode, `${request.method} ${request.url}`)
    t.equal(withPlugin.body, without.body)
    t.same({ ...withPlugin.headers, date: '' }, { ...without.headers, date: '' })
  }

  const post = async (options: InjectOptions) =>
    (await app.inject({ method: 'POST', url: '/api/items', ...options })).json()
  t.same(await post({ payload: item }), item)
  t.same((await app.inject('/api/items/7')).json(), item)
  t.equal((await app.inject('/api/items/9')).body, '{"detail":"Not found"}')
  t.same(await post({ payload: { ...item, id: '7' } }), invalidBody('body', ['/id', 'must be an integer']))
  const special = { headers: { 'content-type': 'text/special' }, body: '{' }
  t.same(await post(special), invalidBody('body', ['', 'must be valid JSON']))
  t.equal((await app.inject('/api/nope')).body, '{"detail":"Path not found"}')
  t.equal((await app.inject({ method: 'HEAD', url: '/api/items' })).statusCode, 200)
})

test('a host can pass the same options to all plugins, in any order, and handle errors itself', async t => {
  const app = await buildHost(t, folder, 'shared-options.js')
  for (const url of ['/api/items', '/ops/livez', '/ops/readyz', '/manual/docs', '/manual/redoc']) {
    t.equal((await app.inject(url)).statusCode, 200, url)
  }
  const { paths } = (await app.inject('/manual/openapi.json')).json()
  t.ok(paths['/api/items'] && paths['/ops/readyz'])
  t.same((await app.inject('/own-errors/items/9')).json(), { own: 'Not found', code: 'ERR_NOT_FOUND' })
  const invalid = { code: 'ERR_INVALID_REQUEST', errors: [{ in: 'path', path: '/item_id' }] }
  t.match((await app.inject('/own-errors/items/x')).json(), invalid)
  t.equal((await app.inject('/tenants/items')).body, '{"detail":"Unknown tenant"}')
  t.equal((await app.inject({ url: '/tenants/items', headers: { tenant: 'acme' } })).statusCode, 200)
  const down = await buildHost(t, folder, 'shared-options.js', { store: 'postgres://127.0.0.1:1/none' })
  t.equal((await down.inject('/ops/readyz')).statusCode, 503, 'the probes were registered last, in another scope')
})

test('a host with its own document finds our routes in it, next to its own Item', async t => {
  const app = await buildHost(t, folder, 'own-document.js')
  await app.ready()
  const { paths, components: { schemas } } = JSON.parse(JSON.stringify(app.swagger()))
  t.same(Object.keys(paths), ['/own', '/api/items', '/api/items/{item_id}', '/api/users', '/api/users/{id}'])
  const schemaOf = (path: string) => paths[path].get.responses[200].content['application/json'].schema
  t.same(schemaOf('/own'), { $ref: '#/components/schemas/Item' })
  t.same(schemaOf('/api/items/{item_id}'), { $ref: '#/components/schemas/ItemsUsers.Item' })
  t.same(Object.keys(schemas.Item.properties), ['colour'])
  t.same(Object.keys(schemas['ItemsUsers.Item'].properties), ['id', 'name', 'price'])
  t.equal((await app.inject('/own')).body, '{"colour":"red"}')
})

test('hooks of a host can identify tenants, and each tenant has its own stores', async t => {
  const app = await buildHost(t, folder, 'tenants.js')
  const created = await app.inject({ method: 'POST', url: '/red/api/items', payload: item })
  t.equal(created.headers.location, './items/7')
  t.same((await app.inject('/red/api/items')).json(), [item])
  t.same((await app.inject('/blue/api/items')).json(), [])
  const unknown = await app.inject('/green/api/items')
  t.same([unknown.statusCode, unknown.body], [401, '{"detail":"Who are you?"}'])
  t.same((await app.inject({ url: '/green/api/items', headers: { 'x-tenant': 'red' } })).json(), [item])
})

test('a class as a store has all operations, and sees no unknown fields', async t => {
  const app = await buildHost(t, folder, 'class-store.js')
  const send = async (method: 'POST' | 'PUT' | 'PATCH', url: string, payload: object) =>
    (await app.inject({ method, url, payload })).json()
  const unknown = { isAdmin: true, address: { city: 'Rome', isAdmin: true }, stops: [{ city: 'Bonn', isAdmin: true }] }
  const known = { address: { city: 'Rome' }, stops: [{ city: 'Bonn' }] }
  t.same(await send('POST', '/orders', { quantity: 1, ...unknown }), { id: 1, quantity: 1, ...known })
  t.same(await send('PUT', '/orders/1', { quantity: 2 }), { id: 1, quantity: 2 })
  t.same(await send('PATCH', '/orders/1', unknown), { id: 1, quantity: 2, ...known })
  await send('POST', '/orders', { quantity: 3 })
  const { headers: { link } } = await app.inject('/orders?limit=1')
  const second = await app.inject(`/orders${/<([^>]*)>/.exec(String(link))?.[1]}`)
  t.same(second.json(), [{ id: 2, quantity: 3 }])
})

/** The recipes, and the chapter about own routes, have a test of their own. */
const examples = pages.filter(page => page !== 'docs/recipes.md').flatMap(page => examplesIn(page))
  .filter(({ code }) => /^await app.listen/m.test(code) && !code.includes('transaction'))

/** Requests to the app of each example in the documentation. */
const requests: (string | InjectOptions)[][] = [
  ['/api/items', '/docs', '/livez'],
  ['/orders', { method: 'POST', url: '/orders', payload: { item_id: 1, quantity: 1 } }, '/docs'],
  ['/api/items', '/size', '/readyz']
]

test('a strict TypeScript host and the examples in the documentation compile, and the examples run', async t => {
  t.equal(examples.length, requests.length)
  for (const [n, { language, code }] of examples.entries()) {
    const then = (requests[n] ?? [])
      .map(request => `console.log((await app.inject(${JSON.stringify(request)})).statusCode)`)
      .concat('await app.close()').join('\n')
    const ending = language === 'cjs' ? `.then(async () => { ${then} })` : then
    const file = `example-${n}.${language === 'cjs' ? 'cjs' : 'ts'}`
    writeFileSync(join(folder, file), `${code.replace('port: 3000', 'port: 0')}\n${ending}\n`)
  }
  const typescript = examples.flatMap(({ language }, n) => language === 'cjs' ? [] : [`example-${n}.ts`])
  const files = ['strict.ts', 'schemas.ts', ...typescript]
  t.equal(await compile('node_modules/typescript', 'nodenext', files, folder), '')
  // One process for all ES modules, because most of the time is for loading packages.
  const modules = typescript
    .map(file => `console.log('next'); await import('./${file.replace('.ts', '.js')}')`)
    .join('\n')
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', modules], { env, cwd: folder })
  const [, ...outputs] = stdout.split(/^next$/m)
  for (const [n, { language, code }] of examples.entries()) {
    const isModule = language !== 'cjs'
    const output = isModule
      ? outputs.shift()
      : (await run(process.execPath, [`example-${n}.cjs`], { env, cwd: folder })).stdout
    t.match(output?.trim().split('\n'), requests[n]?.map(() => /^20[014]$/), code)
  }
})

test('a host declares the records of its collections, and provides only some stores', async t => {
  t.equal(await compile('node_modules/typescript', 'nodenext', ['records.ts'], folder), '')
})

test('docs/plugin.md lists every option and every exported plugin', async t => {
  const page = readFileSync('docs/plugin.md', 'utf8')
  const index = readFileSync('src/index.ts', 'utf8')
  for (const [, name] of index.matchAll(/^export {\s+default as (\w+)/gm)) {
    t.match(page, new RegExp(`^\\| .*\`${name}\`.* \\|`, 'm'))
  }
  const options = [
    ...optionsIn('plugins/stores.ts', 'StoresOptions'),
    ...optionsIn('plugins/docs/openapi.ts', 'DocsOptions')
  ]
  for (const name of options) t.match(page, `| \`${name}\` |`)
})

test('CommonJS can require the package', async t => {
  const script = `const app = require('./common.cjs').build()
    app.inject('/api/items').then(async ({ body }) => { console.log(body); await app.close() })`
  const { stdout } = await run(process.execPath, ['-e', script], { env, cwd: folder })
  t.equal(stdout, '[{"id":1,"name":"Lamp","price":42.5}]\n')
})

test('closing a host closes the stores, and its process can exit', async t => {
  mkdirSync(join(folder, 'closed'))
  const script = `
    import { statSync } from 'node:fs'
    import Fastify from 'fastify'
    import itemsUsers from 'fastify-items-users'
    const app = Fastify()
    app.register(itemsUsers, { prefix: '/api', store: 'sqlite:closed/items.db' })
    await app.inject({ method: 'POST', url: '/api/items', payload: ${JSON.stringify(item)} })
    await app.close()
    console.log(statSync('closed/items.db-wal', { throwIfNoEntry: false })?.size ?? 0)`
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], { env, cwd: folder })
  t.equal(stdout, '0\n', 'all is in the file')
})
