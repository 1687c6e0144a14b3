import { execFile } from 'node:child_process'
import { cpSync, realpathSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { test } from 'tap'
import { newFolder } from '../support/folder.js'
import { uncovered as env } from '../support/environment.js'
import { hostFolder } from '../support/host-folder.js'
import { installTools } from '../support/tools.js'

const run = promisify(execFile)
const bundlers = 'test/package/bundlers'
const skip = await installTools(bundlers)

/** The bundles of test/package/bundlers/build.js. */
const bundles = {
  esbuild: 'host.mjs',
  'esbuild-cjs': 'host.cjs',
  rollup: 'host.mjs',
  webpack: 'host.cjs',
  ncc: 'host.mjs'
}

for (const [bundler, file] of Object.entries(bundles)) {
  test(`a host bundled with ${bundler} runs without node_modules, with the files of the documentation pages beside it`, { skip, timeout: 240_000 }, async t => {
    const host = await hostFolder('5')
    const folder = newFolder(t)
    await run(process.execPath, [resolve(bundlers, 'build.js'), bundler], { env, cwd: host })
    cpSync(join(host, bundler), folder, { recursive: true })
    t.equal((await run(process.execPath, [file], { env, cwd: folder })).stdout, '/api/items 200\n')
    if (bundler === 'esbuild-cjs') {
      const failed = await run(process.execPath, [file, 'docs'], { env, cwd: folder }).then(() => '', ({ stderr }) => stderr)
      t.match(failed, `Copy node_modules/@fastify/swagger-ui/static to ${realpathSync(folder)}/swagger-ui, or set the option swaggerUi of docs to false.`)
      const { stderr } = await run(process.execPath, ['--require', join(host, 'record-reads.cjs'), file], { env, cwd: folder })
      const reads = stderr.trim().split('\n').filter(path => !path.includes('/node_modules/')) // those of tap
      t.ok(reads.length > 0)
      t.same(reads.filter(path => !path.endsWith(`/${file}`)), [], 'importing and registering the plugin reads no files')
    }

    cpSync(join(host, 'node_modules/fastify-items-users/dist/redoc'), join(folder, 'redoc'), { recursive: true })
    cpSync(join(host, 'node_modules/@fastify/swagger-ui/static'), join(folder, 'swagger-ui'), { recursive: true })
    const { stdout } = await run(process.execPath, [file, 'docs'], { env, cwd: folder })
    t.same(stdout.trim().split('\n').map(line => line.split(' ')[1]), Array(6).fill('200'), stdout)
  })
}
