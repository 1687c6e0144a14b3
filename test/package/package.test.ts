import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { promisify } from 'node:util'
import tap, { test } from 'tap'
import { version } from '../../plugins/common/version.js'
import { uncovered as env } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { start } from '../support/process.js'

const run = promisify(execFile)
const read = (file: string) => readFileSync(file, 'utf8')
const manifest = JSON.parse(read('package.json'))

/** The tarball, in its own folder. */
const packed = newFolder(tap)
const pack = ['pack', '--json', '--ignore-scripts', '--pack-destination', packed]
const { stdout: report } = await run('npm', pack, { env })
const [tarball]: [{ filename: string, files: { path: string }[] }] = JSON.parse(report)

/** The files that users need. */
const needed = [
  /^dist\/(src|plugins|schemas)\/.+\.(js|d\.ts)$/, /^dist\/(plugins\/docs\/theme\.css|redoc\/.+)$/,
  /^(docs|bench)\/[\w-]+\.(md|png|svg)$/, /^([A-Z]+\.md|openapi\.json|package\.json|LICENSE)$/
]

test('the package contains only what users need, and its version', async t => {
  const files = tarball.files.map(({ path }) => path)
  t.same(files.filter(file => !needed.some(pattern => pattern.test(file))), [])
  const entries = Object.values<string | Record<string, string>>(manifest.exports).flatMap(entry =>
    Object.values(entry)
  )
  const targets = [...entries.filter(({ length }) => length > 1), manifest.bin['fastify-items-users']]
  const pages = ['dist/redoc/redoc.standalone.js', 'dist/plugins/docs/theme.css']
  for (const file of [...targets, ...pages]) t.ok(files.includes(file.replace('./', '')), file)
  for (const [, link = ''] of read('README.md').matchAll(/\]\((?!https?:|#)([^)#]+)/g)) t.ok(files.includes(link), link)
  for (const path of Object.keys(manifest.exports)) {
    t.match(read('docs/package.md'), `| \`fastify-items-users${path.slice(1)}\` |`)
  }
  t.equal(version, manifest.version)
})

test('without optional dependencies, the package serves from memory, and names the driver of a database', async t => {
  const modules = `${packed}/node_modules`
  const own = `${modules}/fastify-items-users`
  mkdirSync(own, { recursive: true })
  await run('tar', ['-xzf', `${packed}/${tarball.filename}`, '--strip-components=1', '-C', own])
  for (const name of Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies })) {
    mkdirSync(dirname(`${modules}/${name}`), { recursive: true })
    symlinkSync(resolve('node_modules', name), `${modules}/${name}`)
  }
  writeFileSync(`${packed}/host.mjs`, `
    import Fastify from 'fastify'
    import itemsUsers from 'fastify-items-users'
    for (const store of ['memory', 'sqlite:./items.db', 'postgres://ada:sesame@db/items']) {
      const app = Fastify()
      app.register(itemsUsers, { prefix: '/api', store })
      console.log(await app.inject('/api/items').then(({ body }) => body, ({ message }) => message))
      await app.close().catch(() => {})
    }`)
  const { stdout } = await run(process.execPath, ['host.mjs'], { env, cwd: packed })
  const [memory, sqlite, postgres] = stdout.split('\n')
  const missing = (name: string) =>
    `The option store needs the package ${name}, which is not installed. Run: npm install ${name}`
  t.equal(memory, '[{"id":1,"name":"Lamp","price":42.5}]')
  if (sqlite !== memory) t.equal(sqlite, missing('libsql'), 'this Node does not have SQLite')
  t.equal(postgres, missing('pg'))
})

test('npm start starts the service with its pages, and SIGTERM stops it', async t => {
  const service = start(t, { DOCS: 'true' }, { npm: true })
  const url = await service.url
  t.equal(await (await fetch(`${url}/api/items`)).text(), '[{"id":1,"name":"Lamp","price":42.5}]')
  for (const page of ['/docs', '/docs/static/swagger-ui-bundle.js', '/redoc', '/redoc/redoc.standalone.js']) {
    t.equal((await fetch(url + page)).status, 200, page)
  }
  service.process.kill('SIGTERM')
  await service.exit
  t.match(service.output(), 'closing on SIGTERM')
})

interface Locked {
  version?: string
  integrity?: string
  dev?: boolean
  deprecated?: string
  hasInstallScript?: boolean
}

test('the lockfiles pin every package and name no host, and no production package has an install script', async t => {
  const others = (await run('git', ['ls-files', '*package-lock.json'], { env }).catch(() => ({ stdout: '' }))).stdout
  for (const file of ['package-lock.json', ...others.trim().split('\n').filter(Boolean)]) {
    t.notMatch(read(file), /"resolved"/, file)
  }
  const { '': root, ...packages }: Record<string, Locked> = JSON.parse(read('package-lock.json')).packages
  for (const part of ['version', 'dependencies', 'optionalDependencies', 'devDependencies', 'engines', 'bin']) {
    t.same(Object(root)[part], manifest[part], `${part} are in step with package.json`)
  }
  const names = (test: (locked: Locked) => unknown) =>
    Object.entries(packages).filter(([, locked]) => test(locked)).map(([name]) => name)
  t.same(names(({ integrity }) => !integrity?.startsWith('sha512-')), [], 'each has its hash')
  t.ok(names(({ dev }) => !dev).length > 50)
  t.same(names(({ dev, deprecated, hasInstallScript }) => !dev && (deprecated || hasInstallScript)), [])
})
