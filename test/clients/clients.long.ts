import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import { uncovered as env } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { install } from '../support/install.js'

const run = promisify(execFile)
const types = 'test/clients/types'
const COLLECTIONS_FILE = 'test/clients/collections.json'
const [problem, typesProblem] = await Promise.all([install('test/clients'), install(types)])

test('clients of seven generators compile in strict mode and can use every operation, also of own collections', { skip: problem || typesProblem, timeout: 240_000 }, async t => {
  const url = await serve(t, { COLLECTIONS_FILE })
  const folder = newFolder(t)
  cpSync('test/clients/use', folder, { recursive: true })
  mkdirSync(`${folder}/generated`)
  symlinkSync(resolve('test/clients/node_modules'), `${folder}/node_modules`)
  writeFileSync(`${folder}/package.json`, '{"type":"module"}')
  writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({
    compilerOptions: {
      strict: true,
      noUncheckedIndexedAccess: true,
      skipLibCheck: true, // the generated code is no library
      noEmit: true,
      allowImportingTsExtensions: true,
      module: 'esnext',
      moduleResolution: 'bundler',
      target: 'es2022',
      lib: ['es2023', 'dom', 'dom.iterable'],
      types: []
    },
    files: ['main.ts']
  }))
  await Promise.all([
    run(process.execPath, [resolve('test/clients/generate.js'), `${url}/openapi.json`], { env, cwd: `${folder}/generated` }),
    run(resolve(`${types}/node_modules/.bin/openapi-typescript`), [`${url}/openapi.json`, '--default-non-nullable=false', '--output', 'openapi-typescript.ts'], { env, cwd: `${folder}/generated` })
  ])

  const bundle = ['main.ts', '--bundle', '--platform=node', '--format=esm', '--outdir=out', '--out-extension:.js=.mjs', '--log-level=error']
  const [{ stdout: faults, stderr }] = await Promise.all([
    run(process.execPath, [resolve('node_modules/typescript/lib/tsc.js')], { env, cwd: folder }).catch(error => error),
    run(resolve(types, 'node_modules/.bin/esbuild'), bundle, { env, cwd: folder })
  ])
  t.equal(faults + stderr, '')

  const { stdout } = await run(process.execPath, ['out/main.mjs'], { env, cwd: folder })
  const outcomes = stdout.trim().split('\n').map(line => JSON.parse(line))
  t.equal(outcomes.length, 7)
  for (const [n, { name, ...outcome }] of outcomes.entries()) {
    const item = { id: 100 + n, name: `${name} 🫖`, price: 24.5 }
    t.match(outcome, {
      created: 3,
      matching: { loans: [{ title: `${name} & 1`, price: 2.5, status: 'open', returned: null }, { title: `${name} & 2`, price: 0.5, status: 'late' }], total: '2' },
      repeated: item,
      found: [item],
      got: item,
      deleted: 204,
      problems: [{ in: 'body', path: '/id', message: 'must be an integer' }],
      detail: 'Not found'
    }, name)
  }
})

test('Postman imports the document, and all its requests succeed', { skip: problem }, async t => {
  const { stdout } = await run(process.execPath, ['test/clients/postman.js', `${await serve(t)}/openapi.json`], { env })
  const answers = stdout.trim().split('\n')
  t.equal(answers.length, 9)
  for (const answer of answers) t.match(answer, / 20[014]$/)
})

async function serve (t: Test, settings?: NodeJS.ProcessEnv) {
  const app = build(t, settings)
  await app.listen({ port: 0, host: '127.0.0.1' })
  return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
}
