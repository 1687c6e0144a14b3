import { execFile } from 'node:child_process'
import { cpSync, writeFileSync } from 'node:fs'
import { arch, platform } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { test, type Test } from 'tap'
import { uncovered } from '../support/environment.js'
import { newFolder } from '../support/folder.js'
import { collections } from '../support/helper.js'
import { hostFolder, tarball } from '../support/host-folder.js'
import { examplesIn } from '../support/markdown.js'
import { start } from '../support/process.js'
import { install } from '../support/install.js'

const tools = 'test/package/tools'
const skip = await install(tools)
const bun = tool(`@oven/bun-${platform()}-${arch().replace('arm64', 'aarch64')}/bin/bun`)

const json = { 'content-type': 'application/json' }
const requests: [path: string, options?: RequestInit][] = [
  ...['/livez', '/readyz', '/docs', '/docs/static/swagger-ui.css', '/redoc', '/redoc/redoc.standalone.js', '/openapi.json?relative', '/api/nope'].map((path): [string] => [path]),
  ...collections.flatMap(({ path, initial, record }): typeof requests => [
    [path],
    [path, { method: 'HEAD' }],
    [path, { method: 'PUT', headers: json, body: '{}' }],
    ...[JSON.stringify(record), '{}', '{', ''].map((body): [string, RequestInit] => [path, { method: 'POST', headers: json, body }]),
    [`${path}?limit=1`],
    [`${path}?limit=0`],
    ...[initial.id, record.id, 99, 'x'].map((id): [string] => [`${path}/${id}`]),
    ...[record.id, record.id].map((id): [string, RequestInit] => [`${path}/${id}`, { method: 'DELETE' }])
  ])
]

for (const [name, entry] of [['service', 'node_modules/fastify-items-users/dist/src/server.js'], ['plugin', 'listening.js']] as const) {
  test(`the ${name} answers on Bun as on Node`, { skip, timeout: 120_000 }, async t => {
    const folder = await hostFolder('5')
    const [onBun, onNode] = await Promise.all([answers(t, folder, entry, bun), answers(t, folder, entry)])
    for (const [n, [path, options]] of requests.entries()) t.same(onBun[n], onNode[n], `${options?.method ?? 'GET'} ${path}`)
  })
}

async function answers (t: Test, folder: string, entry: string, runtime?: string) {
  const url = await start(t, { DOCS: 'true' }, { folder, entry, ...runtime && { runtime } }).url
  const answers = []
  for (const [path, options] of requests) {
    const response = await fetch(url + path, options)
    const headers = ['allow', 'cache-control', 'content-type', 'link', 'location'].map(name => response.headers.get(name))
    answers.push({ status: response.status, headers, body: await response.text() })
  }
  return answers
}

const managers = {
  'npm with engine-strict': ['npm', 'install', '--engine-strict', '--ignore-scripts', '--no-audit', '--no-fund'],
  'pnpm with engine-strict': [tool('pnpm/bin/pnpm.cjs'), 'install', '--ignore-scripts', '--config.engine-strict=true'],
  'Yarn 1': [tool('yarn/bin/yarn.js'), 'install', '--ignore-scripts', '--non-interactive'],
  'Yarn 4': [tool('@yarnpkg/cli-dist/bin/yarn.js'), 'install']
}

for (const [name, [command = '', ...args]] of Object.entries(managers)) {
  test(`${name} installs the package with the documented versions`, { skip, timeout: 240_000 }, async t => {
    const host = await hostFolder('5')
    const folder = newFolder(t)
    for (const file of [tarball, 'listening.js']) cpSync(join(host, file), join(folder, file))
    const versions = examplesIn('docs/plugin.md').find(({ code }) => code.includes('"resolutions"'))?.code
    writeFileSync(join(folder, 'package.json'), JSON.stringify({
      name: 'host', version: '1.0.0', type: 'module', dependencies: { fastify: '5', 'fastify-items-users': `file:./${tarball}` }, ...JSON.parse(String(versions))
    }))
    const env = { ...uncovered, YARN_ENABLE_IMMUTABLE_INSTALLS: 'false', YARN_NODE_LINKER: 'node-modules' }
    await promisify(execFile)(command, args, { env, cwd: folder })
    const { url } = start(t, {}, { folder, entry: 'listening.js' })
    t.equal((await fetch(`${await url}/docs/static/swagger-ui.css`)).status, 200)
    t.equal((await fetch(`${await url}/api/items`)).status, 200)
  })
}

function tool (path: string) {
  return resolve(tools, 'node_modules', path)
}
