import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, resolve } from 'node:path'
import { promisify } from 'node:util'
import tap, { test } from 'tap'
import { version } from '../../plugins/common/version.js'
import { uncovered as env } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { install } from '../support/install.js'

const run = promisify(execFile)
const manifest = JSON.parse(readFileSync('package.json', 'utf8'))

/** The tarball, in its own folder. */
const packed = newFolder(tap)
const { stdout: report } = await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', packed], { env })
const [tarball]: [{ filename: string, files: { path: string }[] }] = JSON.parse(report)

test('the package contains only what users need', async t => {
  const files = tarball.files.map(({ path }) => path)
  const expected = /^(dist\/(src|plugins|schemas)\/.+\.(js|d\.ts)|dist\/plugins\/docs\/theme\.css|dist\/redoc\/.+|(docs|bench)\/[\w-]+\.(md|png|svg)|[A-Z]+\.md|openapi\.json|package\.json|LICENSE)$/
  t.same(files.filter(file => !expected.test(file)), [])
  for (const file of ['dist/src/index.js', 'dist/src/index.d.ts', 'dist/src/server.js', 'dist/redoc/redoc.standalone.js', 'dist/plugins/docs/theme.css', 'openapi.json']) {
    t.ok(files.includes(file), file)
  }
  for (const [, link = ''] of readFileSync('README.md', 'utf8').matchAll(/\]\((?!https?:|#)([^)#]+)/g)) t.ok(files.includes(link), `README.md: ${link}`)
  for (const [path, target] of Object.entries<string | object>(manifest.exports)) {
    if (typeof target === 'object') t.equal(Object.keys(target)[0], 'types', `${path} has its types first`)
    t.match(readFileSync('docs/package.md', 'utf8'), `| \`fastify-items-users${path.slice(1)}\` |`)
  }
})

test('without optional dependencies, the package serves from memory, and names the driver that a database needs', async t => {
  const modules = `${packed}/node_modules`
  mkdirSync(`${modules}/fastify-items-users`, { recursive: true })
  await run('tar', ['-xzf', `${packed}/${tarball.filename}`, '--strip-components=1', '-C', `${modules}/fastify-items-users`])
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
  t.equal(memory, '[{"id":1,"name":"Lamp","price":42.5}]')
  if (sqlite !== memory) t.equal(sqlite, 'The option store needs the package libsql, which is not installed. Run: npm install libsql', 'this Node does not have SQLite')
  t.equal(postgres, 'The option store needs the package pg, which is not installed. Run: npm install pg')
  for (const name of Object.keys(manifest.optionalDependencies)) t.match(readFileSync('docs/package.md', 'utf8'), `| \`${name}\` |`)
})

test('the version in the code is that of the package', async t => {
  t.equal(version, manifest.version)
})

test('lockfiles contain no host names', async t => {
  for (const folder of ['.', 'bench', 'test/browser', 'test/clients', 'test/clients/types', 'test/deploy/tools', 'test/docs/tools', 'test/operations/tracing', 'test/package/bundlers', 'test/package/plugins', 'test/package/tools']) {
    t.notMatch(await readFile(`${folder}/package-lock.json`, 'utf8'), /"resolved"/, folder)
  }
})

test('a test whose own packages cannot be installed is skipped with the reason, and fails with CI=true', async t => {
  const { CI } = process.env
  t.teardown(() => { process.env.CI = CI ?? '' })
  const folder = newFolder(t) // has no lockfile
  process.env.CI = ''
  t.match(await install(folder), /^its packages cannot be installed: .*npm ci/s)
  process.env.CI = 'true'
  await t.rejects(install(folder), /npm ci/)
})

test('SECURITY.md covers all ten risks of the OWASP API Security Top 10', async t => {
  const risks = [
    'Broken Object Level Authorization', 'Broken Authentication', 'Broken Object Property Level Authorization',
    'Unrestricted Resource Consumption', 'Broken Function Level Authorization', 'Unrestricted Access to Sensitive Business Flows',
    'Server Side Request Forgery', 'Security Misconfiguration', 'Improper Inventory Management', 'Unsafe Consumption of APIs'
  ]
  const titles = Array.from(readFileSync('SECURITY.md', 'utf8').matchAll(/^### (API\d.+)$/gm), ([, title]) => title)
  t.same(titles, risks.map((risk, n) => `API${n + 1}:2023 ${risk}`))
})

test('the lockfile pins every package, and no production package is deprecated or has an install script', async t => {
  interface Locked {
    version?: string
    integrity?: string
    resolved?: string
    dev?: boolean
    deprecated?: string
    hasInstallScript?: boolean
    [dependencies: string]: unknown
  }
  const lock: { lockfileVersion: number, packages: Record<string, Locked> } = JSON.parse(readFileSync('package-lock.json', 'utf8'))
  const { '': root, ...packages } = lock.packages
  t.equal(lock.lockfileVersion, 3)
  for (const part of ['name', 'version', 'dependencies', 'optionalDependencies', 'devDependencies', 'engines', 'bin']) {
    t.same(root?.[part], manifest[part], `${part} are in step with package.json`)
  }
  const names = (test: (locked: Locked) => unknown) => Object.entries(packages).filter(([, locked]) => test(locked)).map(([name]) => name)
  t.same(names(({ integrity }) => !/^sha512-[\w+/]{86}==$/.test(String(integrity))), [], 'each has its hash')
  t.same(names(({ resolved }) => resolved !== undefined), [], 'none names a host')

  // The optional ones are for production too.
  const production = names(({ dev }) => !dev)
  t.ok(production.length > 50)
  for (const dependency of Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })) t.ok(production.includes(`node_modules/${dependency}`), dependency)
  t.same(names(({ dev, deprecated }) => !dev && deprecated !== undefined), [])
  t.same(names(({ dev, hasInstallScript }) => !dev && hasInstallScript), [])
  const { satisfies } = createRequire(import.meta.resolve('fastify'))('semver')
  t.same(names(({ engines }) => !satisfies('20.19.0', Object(engines).node ?? '*')), [], 'all support the oldest Node in engines')
  for (const name of production) {
    const installed = read(`${name}/package.json`)
    if (!installed) continue // for another machine
    const { version, scripts = {} } = JSON.parse(installed)
    t.equal(version, packages[name]?.version, name)
    t.same(['preinstall', 'install', 'postinstall'].filter(script => script in scripts), [], name)
    t.notOk(read(`${name}/binding.gyp`), `${name} is not compiled when it is installed`)
  }

  function read (file: string) {
    try {
      return readFileSync(file, 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
  }
})
