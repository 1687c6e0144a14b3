import { execFile } from 'node:child_process'
import { symlinkSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import { uncovered as env } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { examplesIn } from '../support/markdown.js'

const run = promisify(execFile)

test('the typed client in docs/api.md compiles with the types of openapi.json, and runs', async t => {
  const app = build(t)
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const folder = await clientFolder(t, resolve('openapi.json'), exampleIn('docs/api.md', url))
  t.equal(await compile(folder), '')
  const { stdout } = await run(process.execPath, ['out/example.js'], { env, cwd: folder })
  t.equal(stdout, "{ id: 2, name: 'Teapot', price: 24.5 }\nLamp\nTeapot\n204 Not found\n")
})

test('the typed client in docs/collections.md has the types of the collections in the file', async t => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, String(examplesIn('docs/collections.md').find(({ language }) => language === 'json')?.code))
  const app = build(t, { COLLECTIONS_FILE: file })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const code = exampleIn('docs/collections.md', url)
  const change = "{ params: { path: { id: 2 } }, body: { status: 'lost' } }"
  const wrong = `// @ts-expect-error\nawait PATCH('/api/orders/{id}', ${change})`
  const folder = await clientFolder(t, `${url}/openapi.json`, `${code}\n${wrong}`)
  t.equal(await compile(folder), '')
  await run(process.execPath, ['out/example.js'], { env, cwd: folder })
  t.match((await app.inject('/api/orders/2')).json(), { id: 2, quantity: 3, status: 'paid' })
})

/** The first example with openapi-fetch of a page, for the service at this URL. */
function exampleIn (page: string, url: string) {
  const example = examplesIn(page).find(({ code }) => code.includes('openapi-fetch'))
  return String(example?.code).replace('http://127.0.0.1:3000', url)
}

/** A folder with an example and the types of a document. */
async function clientFolder (t: Test, document: string, example: string) {
  const folder = newFolder(t)
  symlinkSync(resolve('node_modules'), `${folder}/node_modules`)
  writeFileSync(`${folder}/package.json`, '{"type":"module"}')
  writeFileSync(`${folder}/example.ts`, example)
  const options = ['--default-non-nullable=false', '--output', 'api.ts']
  await run(resolve('node_modules/.bin/openapi-typescript'), [document, ...options], { env, cwd: folder })
  return folder
}

/** Compiles the example, and returns the errors. */
async function compile (folder: string) {
  const compilerOptions = {
    strict: true,
    skipLibCheck: true,
    module: 'nodenext',
    target: 'es2022',
    lib: ['es2023', 'dom', 'dom.iterable'],
    types: [],
    rewriteRelativeImportExtensions: true,
    outDir: 'out'
  }
  writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions, files: ['example.ts'] }))
  const { stdout } = await run(resolve('node_modules/.bin/tsc'), [], { env, cwd: folder }).catch(error => error)
  return stdout
}
