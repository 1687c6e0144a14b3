import { execFile } from 'node:child_process'
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { arch, platform } from 'node:os'
import { basename, delimiter, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import { uncovered } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { compile, hostFolder, tarball } from '../support/host-folder.js'
import { install } from '../support/install.js'
import { examplesIn, pages } from '../support/markdown.js'
import { start } from '../support/process.js'
import { usesEverything } from './hosts.js'

const run = promisify(execFile)
const tools = 'test/package/tools'
const skip = await install(tools)
const bun = resolve(tools, `node_modules/@oven/bun-${platform()}-${arch().replace('arm64', 'aarch64')}/bin/bun`)

/** The oldest Fastify that the plugin supports. */
const oldestFastify = JSON.parse(readFileSync('package.json', 'utf8')).peerDependencies.fastify.slice(1)

/** The package that `node` installs on this machine with an install script. */
const binary = `node-${platform()}-${arch()}`

for (const version of ['20', '22', '24', '26']) {
  test(`the tests pass on Node.js ${version}`, { timeout: 1_800_000 }, async t => {
    const folder = newFolder(t)
    const install = ['install', '--silent', '--no-save', '--prefix', folder, `${binary}@${version}`]
    await run('npm', install, { env: uncovered })
    const path = join(folder, 'node_modules', binary, 'bin') + delimiter + process.env.PATH
    const withoutTap = Object.entries(uncovered).filter(([name]) => !/^_?TAP/.test(name))
    const env = { ...Object.fromEntries(withoutTap), PATH: path }
    const options = { env, maxBuffer: 2 ** 26 }
    const failure = await run('npx', ['tap', '--disable-coverage'], options).then(() => '', ({ stdout }) => stdout)
    t.equal(failure, '')
  })
}

test('with the oldest supported Fastify, a host can use all plugins', async t => {
  await usesEverything(t, await hostFolder(oldestFastify))
})

test('hosts and examples compile with TypeScript 5.4, every module resolution and old Fastify', { skip }, async t => {
  const folder = await hostFolder('5')
  const examples = pages.flatMap(examplesIn)
    .filter(({ language, code }) => /^[jt]s$/.test(language) && code.includes('Fastify'))
  const names = examples.map((_, n) => `example-${n}.ts`)
  for (const [n, { code }] of examples.entries()) writeFileSync(join(folder, `example-${n}.ts`), `${code}\n`)
  for (const resolution of ['nodenext', 'node16', 'bundler'] as const) {
    const compiler = `${tools}/node_modules/typescript-oldest`
    t.equal(await compile(compiler, resolution, ['strict.ts', ...names], folder), '', resolution)
  }
  const oldest = await hostFolder(oldestFastify)
  t.equal(await compile('node_modules/typescript', 'nodenext', ['strict.ts'], oldest), '', 'with the oldest Fastify')
})

test('the types are found by every kind of module resolution, and publint finds no problem', { skip }, async t => {
  const packed = join(await hostFolder('5'), tarball)
  await t.resolves(run(`${tools}/node_modules/.bin/attw`, [packed, '--profile', 'esm-only'], { env: uncovered }))
  await t.resolves(run(`${tools}/node_modules/.bin/publint`, ['--strict'], { env: uncovered }))
})

const record = { id: 7, name: 'Kettle', price: 19.99 }
const post = (body: string) => ({ method: 'POST', headers: { 'content-type': 'application/json' }, body })
const requests: [path: string, options?: RequestInit][] = [
  ['/readyz'], ['/docs'], ['/redoc/redoc.standalone.js'], ['/openapi.json?relative'], ['/api/nope'], ['/api/items'],
  ['/api/items', { method: 'HEAD' }], ['/api/items', { ...post('{}'), method: 'PUT' }],
  ...[JSON.stringify(record), '{}', '{', ''].map((body): [string, RequestInit] => ['/api/items', post(body)]),
  ['/api/items?limit=1'], ['/api/items?limit=0'], ['/api/items/7'], ['/api/items/99'], ['/api/items/x'],
  ['/api/users/1', { method: 'DELETE' }], ['/api/users/1', { method: 'DELETE' }]
]
const entries = { service: 'node_modules/fastify-items-users/dist/src/server.js', plugin: 'listening.js' }

for (const [name, entry] of Object.entries(entries)) {
  test(`the ${name} answers on Bun as on Node`, { skip, timeout: 120_000 }, async t => {
    const folder = await hostFolder('5')
    const [onBun, onNode] = await Promise.all([answers(t, folder, entry, bun), answers(t, folder, entry)])
    for (const [n, [path, options]] of requests.entries()) {
      t.same(onBun[n], onNode[n], `${options?.method ?? 'GET'} ${path}`)
    }
  })
}

async function answers (t: Test, folder: string, entry: string, runtime?: string) {
  const url = await start(t, { DOCS: 'true' }, { folder, entry, ...runtime && { runtime } }).url
  const answers = []
  for (const [path, options] of requests) {
    const response = await fetch(url + path, options)
    const names = ['allow', 'cache-control', 'content-type', 'link', 'location']
    const headers = names.map(name => response.headers.get(name))
    answers.push({ status: response.status, headers, body: await response.text() })
  }
  return answers
}

test('the guide "Add an endpoint" leads to an endpoint and its test', { timeout: 240_000 }, async t => {
  const folder = newFolder(t)
  const copied = 'src,plugins,schemas,test,scripts,dist,package.json,tsconfig.json,openapi.json'.split(',')
  for (const path of copied) {
    cpSync(path, `${folder}/${path}`, { recursive: true, filter: name => basename(name) !== 'node_modules' })
  }
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)

  const [, guide = ''] = /\n## Add an endpoint\n(.+?)\n## /s.exec(readFileSync('CONTRIBUTING.md', 'utf8')) ?? []
  const [endpoint = '', ownTest = ''] = Array.from(guide.matchAll(/```ts\n(.+?)```/gs), ([, code]) => String(code))
  const [, registration = ''] = /(if \(definitions.+?cheapestItem.+?)`/.exec(guide) ?? []
  const app = readFileSync('src/app.ts', 'utf8')
  writeFileSync(`${folder}/plugins/cheapest-item.ts`, endpoint)
  writeFileSync(`${folder}/test/cheapest-item.test.ts`, ownTest)
  writeFileSync(`${folder}/src/app.ts`, "import cheapestItem from '../plugins/cheapest-item.js'\n" +
    app.replace(/(async function collectionsUnder .+\n)/, `$1  ${registration}\n`))

  const options = { env: uncovered, cwd: folder }
  const { stdout: faults } = await run('npx', ['tsc', '--noEmit'], options).catch(error => error)
  t.equal(faults, '')
  await t.resolves(run('npx', ['tap', 'test/cheapest-item.test.ts'], options))
})

const linters = 'test/docs/tools'
const withoutLinters = await install(linters)
const markdown = ['*.md', 'docs/*.md']

test('the documentation is valid Markdown', { skip: withoutLinters }, async t => {
  t.equal(await problems('markdownlint-cli2', ...markdown), '')
})

test('the documentation and the comments have no spelling mistakes', { skip: withoutLinters }, async t => {
  t.equal(await problems('cspell', '--no-progress', '--no-summary', '--config', `${linters}/cspell.json`, ...markdown,
    '{src,plugins,schemas}/**/*.ts'),
  '')
})

/** Runs a linter and returns what it complains about. */
async function problems (linter: string, ...args: string[]) {
  const { code, stdout, stderr } = await run(`${linters}/node_modules/.bin/${linter}`, args, { env: uncovered })
    .catch(error => error)
  return code ? stdout + stderr : ''
}
