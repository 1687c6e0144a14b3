import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { Validator } from '@seriousme/openapi-schema-validator'
import type { FastifyInstance, InjectOptions } from 'fastify'
import { test, type Test } from 'tap'
import { uncovered as env } from '../support/environment.js'
import { hostFolder } from '../support/host-folder.js'
import { install } from '../support/install.js'

// Hosts that use the package from its tarball in ways of their own, some with plugins of other packages.

const run = promisify(execFile)
const folder = await hostFolder('5')
const plugins = 'test/package/plugins'
const skip = await install(plugins)
const requirePlugin = createRequire(resolve(plugins, 'package.json'))

async function host (t: Test, name: string, options = {}): Promise<FastifyInstance> {
  const { build } = await import(pathToFileURL(join(folder, name)).href)
  const app = await build(options)
  t.teardown(() => app.close())
  return app
}

for (const way of ['collected', 'connection', 'request-context']) {
  test(`each tenant has its own records, whatever the async context of a hook is: ${way}`, { skip: way === 'request-context' && skip }, async t => {
    const app = await host(t, 'contexts.js', { way, requestContext: way === 'request-context' && requirePlugin('@fastify/request-context') })
    const both = async (request: (tenant: string, n: number) => InjectOptions) =>
      Promise.all(['red', 'blue'].map(async (tenant, n) => app.inject({ ...request(tenant, n), headers: { tenant } })))
    const created = await both((_, n) => ({ method: 'POST', url: '/orders', payload: { quantity: n } }))
    t.same(created.map(response => [response.statusCode, response.json()]), [[201, { id: 1, quantity: 0 }], [201, { id: 1, quantity: 1 }]])
    t.same((await both(() => ({ url: '/orders' }))).map(response => response.json()), [[{ id: 1, quantity: 0 }], [{ id: 1, quantity: 1 }]])
    t.same((await both((_, n) => ({ method: 'PATCH', url: '/orders/1', payload: { quantity: 5 + n } }))).map(response => response.json().quantity), [5, 6])
    t.same((await both(() => ({ url: '/orders?limit=1' }))).map(response => response.json()), [[{ id: 1, quantity: 5 }], [{ id: 1, quantity: 6 }]])
    t.same((await both((tenant) => ({ method: tenant === 'red' ? 'DELETE' : 'GET', url: '/orders/1' }))).map(response => response.statusCode), [204, 200])
    t.same((await both(() => ({ url: '/orders' }))).map(response => response.json()), [[], [{ id: 1, quantity: 6 }]])
  })
}

for (const isFunction of [false, true]) {
  test(`a class as a store ${isFunction ? 'behind a function ' : ''}has all operations, and sees no unknown fields`, async t => {
    const app = await host(t, 'class-store.js', { isFunction })
    const send = async (method: 'POST' | 'PUT' | 'PATCH', url: string, payload: object) => {
      const response = await app.inject({ method, url, payload })
      t.ok(response.statusCode < 300, response.body)
      return response.json()
    }
    const unknown = { isAdmin: true, address: { city: 'Rome', isAdmin: true }, stops: [{ city: 'Bonn', isAdmin: true }], open: { a: 1, b: { c: 2 } } }
    const known = { address: { city: 'Rome' }, stops: [{ city: 'Bonn' }], open: { a: 1, b: { c: 2 } } }
    t.same(await send('POST', '/orders', { quantity: 1, ...unknown }), { id: 1, quantity: 1, ...known })
    t.same(await send('PUT', '/orders/1', { quantity: 2, ...unknown }), { id: 1, quantity: 2, ...known })
    t.same(await send('PUT', '/orders/1', { quantity: 2 }), { id: 1, quantity: 2 })
    t.same(await send('PATCH', '/orders/1', unknown), { id: 1, quantity: 2, ...known })
    t.same((await app.inject('/orders')).json(), [{ id: 1, quantity: 2, ...known }])
    await send('POST', '/orders', { quantity: 3 })
    const first = await app.inject('/orders?limit=1')
    const second = await app.inject(`/orders${/<([^>]*)>/.exec(String(first.headers.link))?.[1]}`)
    t.same([first, second].map(page => page.json().map(({ id }: { id: number }) => id)), [[1], [2]], 'positions may start at 0')
  })
}

test('three folders with a collection are three collections', { skip }, async t => {
  const app = await host(t, 'autoloaded.js', { autoload: requirePlugin('@fastify/autoload') })
  for (const [url, list] of [['/orders', '[]'], ['/notes', '[]'], ['/v2/orders', '[{"id":9}]']] as const) t.equal((await app.inject(url)).body, list, url)
})

test('an error has the status of what a host throws, also if it is a plain object, and the code of a plugin', async t => {
  const app = await host(t, 'rejecting.js', { jwt: skip === undefined && requirePlugin('@fastify/jwt') })
  const unpaid = await app.inject('/unpaid')
  t.same([unpaid.statusCode, unpaid.json()], [402, { detail: 'Pay first' }])
  t.equal((await app.inject('/limited')).statusCode, 200)
  const limited = await app.inject('/limited')
  t.match([limited.statusCode, limited.json()], [429, { detail: /^Wait (1 minute|\d+ seconds)$/ }])
  if (skip) return
  const unsigned = await app.inject('/signed')
  t.same([unsigned.statusCode, unsigned.json().code], [401, 'FST_JWT_NO_AUTHORIZATION_IN_HEADER'])
})

test('an app that is closed needs no memory', async t => {
  const { stdout } = await run(process.execPath, ['--expose-gc', '--input-type=module', '--eval', `
    import { setTimeout as sleep } from 'node:timers/promises'
    import { build } from './everything.js'
    async function heapAfter (restarts) {
      for (let n = 0; n < restarts; n++) {
        const app = await build()
        await app.ready()
        await app.inject('/api/items')
        await app.close()
      }
      for (let n = 0; n < 3; n++) {
        await sleep(10)
        gc()
      }
      return process.memoryUsage().heapUsed
    }
    const before = await heapAfter(20)
    console.log(await heapAfter(50) - before)`], { env, cwd: folder })
  t.ok(Number(stdout) < 1e6, `${stdout.trim()} bytes after 50 restarts`)
})

test('code of a host appends validated records to the store of a collection, when the app is ready', async t => {
  const app = await host(t, 'own-code.js') as FastifyInstance & { early: string[] }
  await app.ready()
  t.same(app.early, ['The stores can be used when the app is ready.'])
  const append = async (payload: object) => app.inject({ method: 'POST', url: '/import', payload })
  t.same((await append({ quantity: 2, isAdmin: true })).json(), { id: 1, quantity: 2 })
  t.same((await append({ id: 7, quantity: 3 })).json(), { id: 7, quantity: 3 })
  const invalid = await append({ id: 'x', quantity: 0 })
  t.same([invalid.statusCode, invalid.json().detail], [400, 'Invalid body: id must be an integer, quantity must be at least 1.'])
  t.same((await app.inject('/orders')).json(), [{ id: 1, quantity: 2 }, { id: 7, quantity: 3 }])
  t.equal((await app.inject('/size')).body, '2')
})

test('a host declares the records of its collections, and provides only some stores', async t => {
  writeFileSync(join(folder, 'tsconfig.records.json'), JSON.stringify({
    compilerOptions: { strict: true, skipLibCheck: true, exactOptionalPropertyTypes: true, module: 'nodenext', target: 'es2022', types: ['node'], noEmit: true },
    files: ['records.ts']
  }))
  const { stdout = '' } = await run(process.execPath, [resolve('node_modules/typescript/lib/tsc.js'), '-p', 'tsconfig.records.json'], { env, cwd: folder }).catch(error => error)
  t.equal(stdout, '')
})

test('docs uses the transform of a host for its routes, and a second document is one error at startup', async t => {
  const { build } = await import(pathToFileURL(join(folder, 'documents.js')).href)
  const { app } = await build({ both: false })
  t.teardown(() => app.close())
  const { paths } = (await app.inject('/openapi.json')).json()
  t.same([paths['/own'].get.summary, paths['/api/items'].get.summary], ['transformed', 'List all items'])
  const wrong = await build({ both: true })
  await t.rejects(wrong.app.ready(), { code: 'ERR_STARTUP', message: 'The plugin docs and @fastify/swagger cannot document the same routes. Register only one of them.' })
})

test('a hook of a host gets a usable stream, also for HEAD, and Location works behind a proxy of Fastify', { skip }, async t => {
  const app = await host(t, 'streams.js', { proxy: requirePlugin('@fastify/http-proxy') }) as FastifyInstance & { bodies: unknown[], front: FastifyInstance }
  for (const method of ['GET', 'HEAD'] as const) t.equal((await app.inject({ method, url: '/items' })).statusCode, 200)
  t.same(app.bodies, [false, false])
  const created = await app.front.inject({ method: 'POST', url: '/shop/items', payload: { id: 99_999, name: 'x', price: 1 } })
  t.equal(new URL(String(created.headers.location), 'http://127.0.0.1/shop/items').pathname, '/shop/items/99999')
  t.equal((await app.front.inject('/shop/items/99999')).statusCode, 200)
})

test('a parameter of the prefix cannot have the name of the id', async t => {
  const { collection, items } = await import(pathToFileURL(join(folder, 'node_modules/fastify-items-users/dist/src/index.js')).href)
  const { default: Fastify } = await import(pathToFileURL(join(folder, 'node_modules/fastify/fastify.js')).href)
  const register = (options: object) => Fastify().register(collection, { ...items, ...options }).ready()
  await t.rejects(register({ prefix: '/customers/:id/items', idParameter: 'id' }), {
    code: 'ERR_STARTUP', message: 'Invalid collection items: the prefix /customers/:id/items has a parameter id, too. Set the option idParameter to another name.'
  })
  await t.resolves(register({ prefix: '/customers/:customer_id/items', idParameter: 'id' }))
})

test('the keywords of a schema have their meaning in requests, responses and the documents of hosts', async t => {
  const app = await host(t, 'accounts.js')
  const send = async (method: 'POST' | 'PUT' | 'PATCH', url: string, payload: object) => app.inject({ method, url, payload })
  const created = await send('POST', '/accounts', { name: 'Ada', nick: 'a', made: 5, address: { city: 'Rome', zip: '1' } })
  t.same(created.json(), { id: 1, name: 'Ada', nick: 'a', role: 'user', address: { city: 'Rome', zip: '1' } })
  const patched = await send('PATCH', '/accounts/1', { nick: null, made: 6, address: { zip: null } })
  t.same(patched.json(), { id: 1, name: 'Ada', nick: null, role: 'user', address: { city: 'Rome' } })
  t.same((await send('PUT', '/accounts/1', { name: 'Grace', nick: 'g' })).json(), { id: 1, name: 'Grace', nick: 'g', role: 'user' })

  const { paths, components: { schemas } } = (await app.inject('/openapi.json')).json()
  t.same(['/accounts', '/accounts/{id}'].map(path => [paths[path].get.operationId, paths[path].get.tags]), [['listAccounts', ['accounts']], ['readAccount', ['mine']]])
  const { annotations } = await import(pathToFileURL(join(folder, 'accounts.js')).href)
  t.match(schemas.Account.properties.name, annotations)
  t.match(schemas.AccountPatch.properties.address.anyOf[0], { required: undefined, properties: { city: { type: 'string' }, zip: { anyOf: [{ type: 'string' }, { type: 'null' }] } } })
  const info = { title: 'Shop', version: '1.0.0' }
  const { swagger } = await host(t, 'accounts.js', { document: { openapi: { openapi: '3.1.0', info } } })
  t.match(await new Validator().validate(JSON.parse(JSON.stringify(swagger()))), { valid: true })
})
