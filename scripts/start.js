// Starts the service, and builds it first if its sources have changed: npm start. Without TypeScript, as after
// npm ci --omit=dev, it starts the existing build.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { isUpToDate, root } from './build-stamp.js'

if (!isUpToDate() && existsSync(join(root, 'node_modules/typescript-7'))) {
  console.error('Building the service...')
  const { status } = spawnSync(process.execPath, ['scripts/build.js', '--no-types'], { cwd: root, stdio: ['ignore', 2, 2] }) // standard output is left to the log
  if (status !== 0) process.exit(1)
}

if (existsSync(join(root, 'dist/src/server.js'))) await import('../dist/src/server.js')
else fail('There is no build, and TypeScript is not installed. Run: npm ci && npm run build')

function fail (message) {
  console.error(message)
  process.exitCode = 1
}
