import { execFile } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { test } from 'tap'
import { newFolder } from '../support/folder.js'
import { uncovered as env } from '../support/environment.js'
import { hostFolder } from '../support/host-folder.js'
import { install } from '../support/install.js'

const run = promisify(execFile)
const bundlers = 'test/package/bundlers'
const skip = await install(bundlers)

/** The bundles of test/package/bundlers/build.js. */
const bundles = {
  esbuild: 'host.mjs',
  'esbuild-cjs': 'host.cjs',
  rollup: 'host.mjs',
  webpack: 'host.cjs',
  ncc: 'host.mjs'
}

for (const [bundler, file] of Object.entries(bundles)) {
  test(`a host bundled with ${bundler} runs without node_modules`, { skip, timeout: 240_000 }, async t => {
    const host = await hostFolder('5')
    const folder = newFolder(t)
    await run(process.execPath, [resolve(bundlers, 'build.js'), bundler], { env, cwd: host })
    cpSync(join(host, bundler), folder, { recursive: true })
    t.equal((await run(process.execPath, [file], { env, cwd: folder })).stdout, '/api/items 200\n')
    if (bundler === 'esbuild-cjs') {
      const { stderr } = await run(process.execPath, ['--require', join(host, 'record-reads.cjs'), file], { env, cwd: folder })
      const reads = stderr.trim().split('\n').filter(path => !path.includes('/node_modules/')) // those of tap
      t.ok(reads.length > 0)
      t.same(reads.filter(path => !path.endsWith(`/${file}`)), [], 'importing and registering the plugin reads no files')
    }
  })
}
