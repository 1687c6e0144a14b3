import { execFile } from 'node:child_process'
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { Validator } from '@seriousme/openapi-schema-validator'
import { test } from 'tap'
import { newFolder } from './folder.js'
import { build } from './helper.js'

const run = promisify(execFile)
const env = { ...process.env, NODE_OPTIONS: '', _TAPJS_PROCESSINFO_COVERAGE_: '0' }

test('a client is generated from the document, compiles strictly and does every operation', async t => {
  const folder = newFolder(t)
  cpSync('test/client', folder, { recursive: true })
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)
  await run('npx', ['openapi-typescript', 'openapi.json', '--output', `${folder}/schema.d.ts`], { env })
  writeFileSync(`${folder}/package.json`, '{"type":"module"}')
  writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({
    compilerOptions: { strict: true, noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true, module: 'nodenext', target: 'es2022', types: ['node'] },
    files: ['client.ts']
  }))
  const { stdout: faults } = await run('npx', ['tsc', '--project', folder], { env }).catch(error => error)
  t.equal(faults, '')

  const app = build(t)
  await app.listen({ port: 0 })
  const { stdout } = await run(process.execPath, ['client.js', `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`], { env, cwd: folder })
  t.same(stdout.trim().split('\n'), [
    'ok',
    'ok',
    '201 Teapot',
    '422 This Idempotency-Key stands for another request',
    '/price is required',
    '42.50,24.50',
    '1 true',
    'Teapot',
    '404 Not found',
    'Grace',
    '2',
    'Grace',
    '204',
    'Not found'
  ])
})

test('the document is valid by the schema of OpenAPI 3.1', async t => {
  t.same(await new Validator().validate(JSON.parse(readFileSync('openapi.json', 'utf8'))), { valid: true })
})
