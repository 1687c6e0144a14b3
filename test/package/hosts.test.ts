import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type { FastifyInstance, InjectOptions } from 'fastify'
import { test, type Test } from 'tap'
import { DocsOptions } from '../../plugins/docs/openapi.js'
import { StoresOptions } from '../../plugins/stores.js'
import { uncovered as env } from '../support/environment.js'
import { hostFolder, tarball } from '../support/host-folder.js'
import { invalidBody } from '../support/helper.js'
import { examplesIn, pages } from '../support/markdown.js'
import { freePort } from '../support/postgres.js'
import { installTools, withoutTools } from '../support/tools.js'

const run = promisify(execFile)
const item = { id: 7, name: 'Kettle', price: 19.99 }
const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8'))

const tools = 'test/package/tools'
const problem = await installTools(tools)

const folder = await hostFolder('5')

/** The oldest Fastify that the plugin supports. */
const oldest = peerDependencies.fastify.slice(1)

async function host (t: Test, name: string, options = {}, from = folder): Promise<FastifyInstance> {
  const { build } = await import(pathToFileURL(join(from, name)).href)
  // Fastify is a promise too, which to await is to make it ready.
  const app = await build(options)
  t.teardown(() => app.close())
  return app
}

for (const { age, fastify, skip } of [{ age: 'newest', fastify: '5' }, { age: 'oldest', fastify: oldest, skip: withoutTools }]) {
  test(`a host with the ${age} Fastify has one copy of it, and can use all plugins`, { skip }, async t => {
    const from = await hostFolder(fastify)
    const { packages } = JSON.parse(readFileSync(join(from, 'package-lock.json'), 'utf8'))
    t.same(Object.keys(packages).filter(name => /(^|\/)node_modules\/fastify$/.test(name)), ['node_modules/fastify'])
    const app = await host(t, 'everything.js', {}, from)
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
}

test('the service rejects a Fastify that is too old for it', { skip: withoutTools }, async t => {
  const cwd = await hostFolder(oldest)
  const { stderr } = await run(process.execPath, [join(cwd, 'node_modules/.bin/fastify-items-users')], { env, cwd }).catch(error => error)
  t.equal(stderr, 'The service needs Fastify 5.10 or newer. Run: npm install fastify@5\n')
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
  t.ok((app as unknown as { lines: string[] }).lines.includes('The plugin itemsUsers has no option databaseTimout. Did you mean databaseTimeout?'))
  for (const url of ['/ops/livez', '/ops/readyz', '/manual/docs', '/manual/redoc']) t.equal((await app.inject(url)).statusCode, 200, url)
  const { paths } = (await app.inject('/manual/openapi.json')).json()
  t.ok(paths['/api/items'] && paths['/ops/readyz'])
  t.equal((await app.inject('/api/items/')).statusCode, 404)
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
    if (!share) continue
    const file = join(folder, 'twice.json')
    writeFileSync(file, JSON.stringify(document))
    t.match((await run('node_modules/.bin/redocly', ['lint', file], { env })).stderr, /is valid/)
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
    ["'/api/items'"],
    // docs/collections.md
    ["'/orders'", "{ method: 'POST', url: '/orders', payload: { item_id: 1, quantity: 1 } }", "'/docs'"],
    ["{ method: 'POST', url: '/items', payload: { id: 9, name: 'x', price: 1, colour: 'red' } }"],
    ["{ method: 'POST', url: '/orders', headers: { 'x-tenant': 'red' }, payload: { quantity: 1 } }", "{ url: '/orders/1', headers: { 'x-tenant': 'red' } }"],
    // docs/plugin.md
    ["'/api/items'", "'/size'", "'/readyz'"],
    ["{ url: '/api/items', headers: { authorization: 'Bearer a-long-random-token' } }"],
    ["'/api/items'", "{ method: 'POST', url: '/api/items', headers: { authorization: 'Bearer a-long-random-token' }, payload: { id: 9, name: 'x', price: 1 } }"],
    ["'/api/items'"],
    ["'/api/items'", "'/docs'", "{ method: 'POST', url: '/api/users', payload: { id: 9, name: 'x' } }", "{ method: 'DELETE', url: '/api/users/9', headers: { 'x-role': 'admin' } }"]
  ]
  const refused = { 4: "{ url: '/orders', headers: { 'x-tenant': 'green' } }", 7: "{ method: 'DELETE', url: '/api/users/1' }", 8: "'/api/items/9'", 9: "{ method: 'DELETE', url: '/api/users/1' }" }
  t.equal(examples.length, requests.length)
  for (const [n, { language, code }] of examples.entries()) {
    const asked = [...requests[n] ?? [], ...Object.entries(refused).filter(([of]) => Number(of) === n).map(([, request]) => request)]
    const then = asked.map(request => `console.log((await app.inject(${request})).statusCode)`).join('\n') + '\nawait app.close()\n'
    const text = code.replace('port: 3000', 'port: 0') + (language === 'cjs' ? `\n  .then(async () => { ${then} })` : `\n${then}`)
    writeFileSync(join(folder, `example-${n}.${extensionOf(language)}`), text)
  }
  const typescript = examples.flatMap(({ language }, n) => language === 'cjs' ? [] : [`example-${n}.ts`])
  t.equal(await compile('node_modules/typescript-7', 'nodenext', ['strict.ts', 'schemas.ts', ...typescript]), '')
  t.equal(await compile('node_modules/typescript-7', 'bundler', ['strict.ts', 'schemas.ts']), '')
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

test('the tests for own stores run with node:test', async t => {
  const code = examplesIn('docs/plugin.md').find(({ code }) => code.includes('storeTests'))?.code
  writeFileSync(join(folder, 'own-store.test.js'), String(code))
  const { stdout } = await run(process.execPath, ['--test', '--test-reporter=tap', 'own-store.test.js'], { env, cwd: folder })
  t.match(stdout, /^# pass 1\d$/m)
  t.match(stdout, /^# fail 0$/m)
})

test('the host and the examples compile with TypeScript 5.4 to 7.0, all module resolutions and the oldest Fastify', { skip: problem }, async t => {
  const examples = readdirSync(folder).filter(file => /^example-\d+\.ts$/.test(file))
  const [oldTypeScript, newTypeScript] = [`${tools}/node_modules/typescript-oldest`, 'node_modules/typescript-7']
  for (const [compiler, resolution] of [
    [oldTypeScript, 'nodenext'], [oldTypeScript, 'node16'], [oldTypeScript, 'bundler'], ['node_modules/typescript', 'nodenext'], [newTypeScript, 'bundler']
  ] as const) {
    // With the oldest TypeScript, only the files without other libraries are compiled.
    const files = ['strict.ts', ...compiler === oldTypeScript ? [] : ['schemas.ts'], ...examples]
    t.equal(await compile(compiler, resolution, files), '', `${compiler} with ${resolution}`)
  }
  t.equal(await compile(newTypeScript, 'nodenext', ['strict.ts'], await hostFolder(oldest)), '', 'with the oldest Fastify')
})

test('an editor describes each option and each decorator, and the message for a wrong option is short', { skip: withoutTools }, async t => {
  const { default: ts } = await import('typescript')
  const file = join(folder, 'edited.ts')
  const named = (names: string[]) => names.map(name => `${name}: undefined as never`).join(', ')
  const text = `import Fastify from 'fastify'
    import itemsUsers, { docs, type ItemsUsersOptions } from 'fastify-items-users'
    import 'fastify-items-users/augment'
    const app = Fastify()
    app.register(itemsUsers, { ${named(['prefix', 'idSource', 'notFound', 'errorHandler', ...Object.keys(StoresOptions.properties)])} })
    app.register(docs, { ${named(Object.keys(DocsOptions.properties))} })
    app.get('/', async ({ bearerToken }) => [bearerToken?.length, app.stores.items.count?.({}), app.addReadinessCheck(() => {}), app.markNotReady()])
    app.register(itemsUsers, { databasetimeout: 5 })
    const misspelled: ItemsUsersOptions = { idsource: 'server' }
    const seeded: ItemsUsersOptions = { seed: { items: [{ id: 1, name: 'Lamp', price: '1' }] } }`
  writeFileSync(file, text)
  const service = ts.createLanguageService({
    fileExists: ts.sys.fileExists,
    readFile: ts.sys.readFile,
    getScriptFileNames: () => [file],
    getScriptVersion: () => '1',
    getScriptSnapshot: name => ts.ScriptSnapshot.fromString(String(ts.sys.readFile(name))),
    getCurrentDirectory: () => folder,
    getCompilationSettings: () => ({ strict: true, module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2022, types: ['node'] }),
    getDefaultLibFileName: ts.getDefaultLibFilePath
  })
  for (const { index } of text.matchAll(/\w+(?=: undefined as never)|bearerToken(?= })|(?<=app\.)(stores|addReadinessCheck|markNotReady)\b/g)) {
    const { displayParts = [], documentation = [] } = { ...service.getQuickInfoAtPosition(file, index) }
    t.match(documentation, [{ text: / / }], displayParts.map(({ text }) => text).join(''))
  }
  t.same(service.getSemanticDiagnostics(file).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n').split('\n').at(-1)?.trim()), [
    "Object literal may only specify known properties, and 'databasetimeout' does not exist in type 'FastifyRegisterOptions<ItemsUsersOptions>'.",
    "Object literal may only specify known properties, but 'idsource' does not exist in type 'ItemsUsersOptions'. Did you mean to write 'idSource'?",
    "Type 'string' is not assignable to type 'number'."
  ])
})

test('docs/plugin.md lists every option and every exported plugin', async t => {
  const page = readFileSync('docs/plugin.md', 'utf8')
  const index = readFileSync('src/index.ts', 'utf8')
  for (const [, name] of index.matchAll(/^export { default as (\w+)/gm)) t.match(page, new RegExp(`^\\| .*\`${name}\`.* \\|`, 'm'))
  for (const [, names = ''] of index.matchAll(/^export {(?! default)([^}]+)}/gm)) {
    for (const name of names.split(',')) t.match(page, `\`${name.trim().replace('type ', '')}\``)
  }
  for (const name of Object.keys({ ...StoresOptions.properties, ...DocsOptions.properties })) t.match(page, `| \`${name}\` |`)
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

test('fastify-cli can start the plugin', { skip: problem }, async t => {
  const port = await freePort()
  const cli = spawn(resolve(tools, 'node_modules/.bin/fastify'), ['start', '--port', String(port), '--log-level', 'info', '--prefix', '/api', 'node_modules/fastify-items-users/dist/src/index.js'], { env, cwd: folder })
  t.teardown(() => cli.kill('SIGKILL'))
  let output = ''
  cli.stdout.on('data', chunk => { output += chunk })
  cli.stderr.on('data', chunk => { output += chunk })
  while (!output.includes('listening')) {
    await Promise.race([once(cli.stdout, 'data'), once(cli.stderr, 'data'), once(cli, 'exit')])
    if (cli.exitCode !== null) return t.fail(output)
  }
  t.same(await (await fetch(`http://127.0.0.1:${port}/api/items`)).json(), [{ id: 1, name: 'Lamp', price: 42.5 }])
  t.same(await (await fetch(`http://127.0.0.1:${port}/api/items/9`)).json(), { detail: 'Not found' })
  const exit = once(cli, 'exit')
  cli.kill('SIGTERM')
  t.same(await exit, [0, null])
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

test('the types are found by every kind of module resolution', { skip: problem }, async t => {
  // It exits with 1 where there is a problem.
  await t.resolves(run(`${tools}/node_modules/.bin/attw`, [join(folder, tarball), '--profile', 'esm-only'], { env }))
})

test('publint finds no problem in the package, and knip no unused file, export or dependency', { skip: problem }, async t => {
  await t.resolves(run(`${tools}/node_modules/.bin/publint`, ['--strict'], { env }))
  await t.resolves(run(`${tools}/node_modules/.bin/knip`, [], { env }))
})

/** Compiles files in the folder of the hosts, and returns the errors. */
async function compile (typescript: string, resolution: 'bundler' | 'node16' | 'nodenext', files: string[], from = folder) {
  writeFileSync(join(from, 'tsconfig.json'), JSON.stringify({
    compilerOptions: {
      strict: true,
      skipLibCheck: false,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      module: resolution === 'bundler' ? 'esnext' : resolution,
      moduleResolution: resolution,
      target: 'es2022',
      lib: ['es2023'],
      types: ['node']
    },
    files
  }))
  const { stdout, stderr } = await run(process.execPath, [resolve(typescript, 'lib/tsc.js'), ...typescript.endsWith('-7') ? ['--singleThreaded'] : []], { env, cwd: from }).catch(error => error)
  return stdout + stderr
}
