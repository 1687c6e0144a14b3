import { execFile } from 'node:child_process'
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { promisify } from 'node:util'
import { test } from 'tap'
import { newFolder } from '../support/folder.js'

const run = promisify(execFile)
const env = {
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^_?TAP/.test(name))),
  NODE_OPTIONS: ''
}

test('the guide "Add an endpoint" leads to an endpoint and its test', { timeout: 240_000 }, async t => {
  const folder = newFolder(t)
  for (const path of ['src', 'plugins', 'schemas', 'test', 'scripts', 'dist', 'package.json', 'tsconfig.json', 'openapi.json']) {
    cpSync(path, `${folder}/${path}`, { recursive: true, filter: name => basename(name) !== 'node_modules' })
  }
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)

  const [, guide = ''] = /\n## Add an endpoint\n(.+?)\n## /s.exec(readFileSync('CONTRIBUTING.md', 'utf8')) ?? []
  const [endpoint = '', ownTest = ''] = Array.from(guide.matchAll(/```ts\n(.+?)```/gs), ([, code]) => String(code))
  const [, registration = ''] = /(app\.register\(cheapestItem.+?)`/.exec(guide) ?? []
  const app = readFileSync('src/app.ts', 'utf8')
  writeFileSync(`${folder}/plugins/cheapest-item.ts`, endpoint)
  writeFileSync(`${folder}/test/cheapest-item.test.ts`, ownTest)
  writeFileSync(`${folder}/src/app.ts`, "import cheapestItem from '../plugins/cheapest-item.js'\n" +
    app.replace(/(async function collectionsUnder .+\n)/, `$1  ${registration}\n`))

  const { stdout: faults } = await run(process.execPath, ['node_modules/typescript/lib/tsc.js', '--noEmit'], { env, cwd: folder }).catch(error => error)
  t.equal(faults, '')
  await t.resolves(run('npx', ['tap', '--disable-coverage', '--allow-incomplete-coverage', 'test/cheapest-item.test.ts'], { env, cwd: folder }))
})
