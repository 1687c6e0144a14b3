import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import { uncovered as env } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { install } from '../support/install.js'
import { examplesIn } from '../support/markdown.js'

const run = promisify(execFile)
const skip = await install('test/clients')

test('clients of hey-api and orval compile in strict mode and can use every operation', { skip }, async t => {
  const app = build(t, { COLLECTIONS_FILE: 'test/clients/collections.json' })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const folder = newFolder(t)
  cpSync('test/clients/use', folder, { recursive: true })
  mkdirSync(`${folder}/generated`)
  symlinkSync(resolve('test/clients/node_modules'), `${folder}/node_modules`)
  const generate = resolve('test/clients/generate.js')
  await run(process.execPath, [generate, `${url}/openapi.json`], { env, cwd: `${folder}/generated` })
  const options = { noEmit: true, noUncheckedIndexedAccess: true, allowImportingTsExtensions: true }
  t.equal(await compile(folder, 'main.ts', { ...options, module: 'esnext', moduleResolution: 'bundler' }), '')

  const tsx = import.meta.resolve('tsx')
  const { stdout } = await run(process.execPath, ['--import', tsx, 'main.ts'], { env, cwd: folder })
  const outcomes = stdout.trim().split('\n').map(line => JSON.parse(line))
  t.equal(outcomes.length, 2)
  for (const [n, { name, ...outcome }] of outcomes.entries()) {
    const item = { id: 100 + n, name: `${name} 🫖`, price: 24.5 }
    const [dear, cheap] = [{ title: `${name} & 1`, price: 2.5, status: 'open' }, { title: `${name} & 2`, price: 0.5 }]
    t.match(outcome, {
      created: 3,
      matching: { loans: [dear, cheap], total: '2' },
      repeated: item,
      found: [item],
      got: item,
      deleted: 204,
      problems: [{ in: 'body', path: '/id', message: 'must be an integer' }],
      detail: 'Not found'
    }, name)
  }
})

test('the client with openapi-fetch in docs/api.md compiles with the types of openapi.json, and runs', async t => {
  const url = await build(t).listen({ port: 0, host: '127.0.0.1' })
  const folder = await clientFolder(t, resolve('openapi.json'), exampleIn('docs/api.md', url))
  const { stdout } = await run(process.execPath, ['out/example.js'], { env, cwd: folder })
  t.equal(stdout, "{ id: 2, name: 'Teapot', price: 24.5 }\nLamp\nTeapot\n204 Not found\n")
})

test('the client with openapi-fetch in docs/collections.md has the types of the collections', async t => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, String(examplesIn('docs/collections.md').find(({ language }) => language === 'json')?.code))
  const app = build(t, { COLLECTIONS_FILE: file })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const change = "{ params: { path: { id: 2 } }, body: { status: 'lost' } }"
  const wrong = `// @ts-expect-error\nawait PATCH('/api/orders/{id}', ${change})`
  const code = `${exampleIn('docs/collections.md', url)}\n${wrong}`
  const folder = await clientFolder(t, `${url}/openapi.json`, code)
  await run(process.execPath, ['out/example.js'], { env, cwd: folder })
  t.match((await app.inject('/api/orders/2')).json(), { id: 2, quantity: 3, status: 'paid' })
})

/** The first example with openapi-fetch of a page, for the service at this URL. */
function exampleIn (page: string, url: string) {
  const example = examplesIn(page).find(({ code }) => code.includes('openapi-fetch'))
  return String(example?.code).replace('http://127.0.0.1:3000', url)
}

/** A folder with an example that is compiled with the types of a document. */
async function clientFolder (t: Test, document: string, example: string) {
  const folder = newFolder(t)
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)
  writeFileSync(`${folder}/example.ts`, example)
  const options = ['--default-non-nullable=false', '--output', 'api.ts']
  await run(resolve('node_modules/.bin/openapi-typescript'), [document, ...options], { env, cwd: folder })
  const more = { module: 'nodenext', rewriteRelativeImportExtensions: true, outDir: 'out' }
  t.equal(await compile(folder, 'example.ts', more), '')
  return folder
}

/** Compiles a file, and returns the errors. */
async function compile (folder: string, file: string, more: object) {
  const lib = ['es2023', 'dom', 'dom.iterable']
  const compilerOptions = { strict: true, skipLibCheck: true, target: 'es2022', lib, types: [], ...more }
  writeFileSync(`${folder}/package.json`, '{"type":"module"}')
  writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions, files: [file] }))
  const { stdout } = await run(resolve('node_modules/.bin/tsc'), [], { env, cwd: folder }).catch(error => error)
  return stdout
}
