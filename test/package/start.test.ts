import { cpSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import tap, { test, type Test } from 'tap'
import { ensureBuilt } from '../support/built.js'
import { newFolder } from '../support/folder.js'
import { start } from '../support/process.js'

// A copy of the repository with its build.
ensureBuilt()
const folder = newFolder(tap)
for (const path of ['src', 'plugins', 'schemas', 'scripts', 'dist', 'package.json', 'tsconfig.json', 'tsconfig.build.json']) {
  cpSync(path, `${folder}/${path}`, { recursive: true })
}
symlinkSync(resolve('node_modules'), `${folder}/node_modules`)

const pages = ['/docs', '/docs/static/swagger-ui-bundle.js', '/redoc', '/redoc/redoc.standalone.js']
const lamp = '[{"id":1,"name":"Lamp","price":42.5}]'
const running = start(tap, { DOCS: 'true' }, { built: true, folder, npm: true })

test('npm start does not compile if nothing has changed', async t => {
  t.equal(await (await fetch(`${await running.url}/api/items`)).text(), lamp)
  t.notMatch(running.errors(), 'Building')
})

test('npm start reports an invalid configuration', async t => {
  const server = startCopy(t, { PORT: '80x', DOCS: 'yes' })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), 'Invalid configuration:\n  PORT must be an integer, not "80x"\n  DOCS must be true or false, not "yes"\n')
})

test('a build that fails does not remove the previous build', async t => {
  change('plugins/items.ts', 'Lamp', 'Candle')
  const settings = readFileSync(`${folder}/tsconfig.build.json`, 'utf8')
  writeFileSync(`${folder}/tsconfig.build.json`, '{ "include": ["nothing"] }')
  const build = start(t, {}, { built: true, folder, entry: 'scripts/build.js' })
  t.same(await build.exit, [1, null])
  t.equal(build.errors(), 'The build failed. dist/ is unchanged.\n')
  t.match(readFileSync(`${folder}/dist/plugins/items.js`, 'utf8'), 'Lamp')
  writeFileSync(`${folder}/tsconfig.build.json`, settings)
})

test('without TypeScript, npm start starts the existing build', async t => {
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Record<string, { dev?: boolean }> }
  rmSync(`${folder}/node_modules`)
  for (const [path, { dev }] of Object.entries(packages)) {
    if (dev || !/^node_modules\/(@[^/]+\/)?[^/]+$/.test(path)) continue
    mkdirSync(dirname(`${folder}/${path}`), { recursive: true })
    symlinkSync(resolve(path), `${folder}/${path}`)
  }
  const server = startCopy(t)
  t.equal(await (await fetch(`${await server.url}/api/items`)).text(), lamp)
  t.equal(server.errors(), '')
  server.process.kill('SIGTERM')
  t.same(await server.exit, [0, null])

  rmSync(`${folder}/node_modules`, { recursive: true })
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)
})

test('without TypeScript and without a build, npm start says what to do', async t => {
  const empty = newFolder(t)
  cpSync('scripts', `${empty}/scripts`, { recursive: true })
  const server = start(t, {}, { built: true, folder: empty, entry: 'scripts/start.js' })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), 'There is no build, and TypeScript is not installed. Run: npm ci && npm run build\n')
})

test('while a second npm start builds and after it, the pages of a running service work', async t => {
  const url = await running.url
  const contents = await Promise.all(pages.map(textOf))
  symlinkSync('nowhere', `${folder}/dist/.part-1`) // like the file of another build that is gone when it is looked at
  const second = startCopy(t)
  const built = new AbortController()
  const statuses = visit()
  t.equal(await (await fetch(`${await second.url}/api/items`)).text(), lamp.replace('Lamp', 'Candle'), 'it is built from the new sources')
  t.equal(second.errors(), 'Building the service...\n')
  built.abort()
  t.same([...await statuses], [200])
  t.same(await Promise.all(pages.map(textOf)), contents)
  t.throws(() => statSync(`${folder}/dist/src/index.d.ts`), { code: 'ENOENT' }, 'files of the previous build are removed')

  async function textOf (page: string) {
    return (await fetch(url + page)).text()
  }

  async function visit () {
    const statuses = new Set<number>()
    while (!built.signal.aborted) {
      statuses.add((await fetch(`${url}/redoc/redoc.standalone.js`, { method: 'HEAD' })).status)
      await sleep(50)
    }
    return statuses
  }
})

test('SIGTERM stops npm start and the service', async t => {
  running.process.kill('SIGTERM')
  await running.exit
  t.match(running.output(), 'closing on SIGTERM')
})

/** Runs the script of `npm start` in the copy. */
function startCopy (t: Test, env: NodeJS.ProcessEnv = {}) {
  return start(t, env, { built: true, folder, entry: 'scripts/start.js' })
}

function change (file: string, text: string, replacement: string) {
  const code = readFileSync(`${folder}/${file}`, 'utf8')
  if (!code.includes(text)) throw new Error(`${file} does not contain ${text}`)
  writeFileSync(`${folder}/${file}`, code.replace(text, replacement))
}
