import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type { FastifyInstance } from 'fastify'
import { test } from 'tap'
import itemsUsers from '../../src/index.js'
import { uncovered as env } from '../support/environment.js'
import { host } from '../support/helper.js'
import { compile, hostFolder, optionsIn, tarball } from '../support/host-folder.js'
import { install } from '../support/install.js'
import { examplesIn, pages } from '../support/markdown.js'
import { freePort } from '../support/postgres.js'

const run = promisify(execFile)
const item = { id: 7, name: 'Kettle', price: 19.99 }
const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8'))

const tools = 'test/package/tools'
const skip = await install(tools)

/** The oldest Fastify that the plugin supports. */
const oldest = peerDependencies.fastify.slice(1)

test('a host with the oldest Fastify has one copy of it, and can use all plugins', async t => {
  const from = await hostFolder(oldest)
  const { packages } = JSON.parse(readFileSync(join(from, 'package-lock.json'), 'utf8'))
  t.same(Object.keys(packages).filter(name => /(^|\/)node_modules\/fastify$/.test(name)), ['node_modules/fastify'])
  const { build } = await import(pathToFileURL(join(from, 'everything.js')).href)
  const app: FastifyInstance = await build()
  t.teardown(() => app.close())
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

test('the host and the examples compile with TypeScript 5.4 and 5.9, all module resolutions and the oldest Fastify', { skip }, async t => {
  const folder = await hostFolder('5')
  const examples = pages.flatMap(examplesIn).filter(({ language, code }) => /^[jt]s$/.test(language) && code.includes('Fastify'))
  const names = examples.map((_, n) => `example-${n}.ts`)
  for (const [n, { code }] of examples.entries()) writeFileSync(join(folder, `example-${n}.ts`), `${code}\n`)
  const [oldTypeScript, newTypeScript] = [`${tools}/node_modules/typescript-oldest`, 'node_modules/typescript']
  for (const [compiler, resolution] of [
    [oldTypeScript, 'nodenext'], [oldTypeScript, 'node16'], [oldTypeScript, 'bundler'], [newTypeScript, 'nodenext'], [newTypeScript, 'bundler']
  ] as const) {
    // With the oldest TypeScript, only the files without other libraries are compiled.
    const files = ['strict.ts', ...compiler === oldTypeScript ? [] : ['schemas.ts'], ...names]
    t.equal(await compile(compiler, resolution, files, folder), '', `${compiler} with ${resolution}`)
  }
  t.equal(await compile(newTypeScript, 'nodenext', ['strict.ts'], await hostFolder(oldest)), '', 'with the oldest Fastify')
})

test('an editor describes each option and each decorator, and the message for a wrong option is short', async t => {
  const { default: ts } = await import('typescript')
  const folder = await hostFolder('5')
  const file = join(folder, 'edited.ts')
  const named = (names: string[]) => names.map(name => `${name}: undefined as never`).join(', ')
  const text = `import Fastify from 'fastify'
    import itemsUsers, { docs, type ItemsUsersOptions } from 'fastify-items-users'
    import 'fastify-items-users/augment'
    const app = Fastify()
    app.register(itemsUsers, { ${named(['prefix', 'idSource', 'notFound', 'errorHandler', ...optionsIn('plugins/stores.ts', 'StoresOptions')])} })
    app.register(docs, { ${named(optionsIn('plugins/docs/openapi.ts', 'DocsOptions'))} })
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

test('fastify-cli can start the plugin', { skip }, async t => {
  const folder = await hostFolder('5')
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

test('the types are found by every kind of module resolution', { skip }, async t => {
  // It exits with 1 where there is a problem.
  await t.resolves(run(`${tools}/node_modules/.bin/attw`, [join(await hostFolder('5'), tarball), '--profile', 'esm-only'], { env }))
})

test('publint finds no problem in the package', { skip }, async t => {
  await t.resolves(run(`${tools}/node_modules/.bin/publint`, ['--strict'], { env }))
})

test('@fastify/response-validation at the root validates the routes of the host only', { skip }, async t => {
  const app = host(t)
  await app.register(createRequire(resolve(tools, 'package.json'))('@fastify/response-validation'))
  app.get('/own', { schema: { response: { 200: { type: 'object', properties: { n: { type: 'integer' } } } } } }, async () => ({ n: 'x' }))
  app.register(itemsUsers, { prefix: '/api' })
  t.equal((await app.inject('/own')).statusCode, 500)
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/api/items/9')).body, '{"detail":"Not found"}')
})
