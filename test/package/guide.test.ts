import { execFile } from 'node:child_process'
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { promisify } from 'node:util'
import { test } from 'tap'
import { ensureBuilt } from '../support/built.js'
import { newFolder } from '../support/folder.js'
import { withoutTools } from '../support/tools.js'

const run = promisify(execFile)
const env = {
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^_?TAP/.test(name))),
  NODE_OPTIONS: ''
}

test('the guide "Add a collection" leads to a third collection on all engines', { skip: withoutTools, timeout: 240_000 }, async t => {
  ensureBuilt()
  const folder = newFolder(t)
  for (const path of ['src', 'plugins', 'schemas', 'test', 'scripts', 'dist', 'package.json', 'tsconfig.json', 'openapi.json']) {
    cpSync(path, `${folder}/${path}`, { recursive: true, filter: name => basename(name) !== 'node_modules' })
  }
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)

  const [, guide = ''] = /\n## Add a collection\n(.+?)\n## /s.exec(readFileSync('CONTRIBUTING.md', 'utf8')) ?? []
  const blocks = [...guide.matchAll(/```ts\n(.+?)```/gs)].map(([, code = '']) => code)
  t.ok(guide.split('\n').length <= 60)
  for (const [n, file] of ['schemas/order.ts', 'plugins/orders.ts', 'plugins/definitions.ts'].entries()) writeFileSync(`${folder}/${file}`, String(blocks[n]))
  t.equal(blocks.length, 3)

  writeFileSync(`${folder}/tsconfig.guide.json`, JSON.stringify({ extends: './tsconfig.json', include: ['src', 'plugins', 'schemas', 'test/support/helper.ts'] }))
  const { stdout: faults, stderr } = await run(process.execPath, ['node_modules/typescript-7/lib/tsc.js', '--project', 'tsconfig.guide.json'], { env, cwd: folder }).catch(error => error)
  t.equal(faults + stderr, '')
  const { stdout } = await run('npx', ['tap', '--disable-coverage', '--reporter=tap', '--grep=/./', '--grep=/^.api.orders$/', 'test/collections.test.ts'],
    { env, cwd: folder, maxBuffer: 64 * 1024 * 1024 }).catch(error => error)
  t.notMatch(stdout, /^ *not ok/m)
  for (const engine of ['memory', 'SQLite', 'PostgreSQL']) t.match(stdout, new RegExp(`^ *# Subtest: on ${engine}`, 'm'))
  t.equal(stdout.match(/^ *# Subtest: \/api\/orders$/gm)?.length, 3)
})
