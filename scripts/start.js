// Starts the service, and builds it first if its sources have changed: npm start. Without TypeScript, as after
// npm ci --omit=dev, it starts the existing build.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { isUpToDate, root } from './build-stamp.js'

if (!isUpToDate() && existsSync(join(root, 'node_modules/typescript-7'))) {
  // The previous build may not know the current variables, so this runs the sources.
  run('--import=tsx', 'scripts/check-configuration.ts', ...process.argv.slice(2))
  console.error('Building the service...')
  run('scripts/build.js')
}

if (existsSync(join(root, 'dist/src/server.js'))) await import('../dist/src/server.js')
else fail('There is no build, and TypeScript is not installed. Run: npm ci && npm run build')

/** Runs a script, and exits if it fails. Standard output is left to the log of the service. */
function run (...args) {
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: ['ignore', 2, 2] })
  if (status !== 0) process.exit(1)
}

function fail (message) {
  console.error(message)
  process.exitCode = 1
}
