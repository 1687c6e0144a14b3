import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { claim } from './run.js'

const sources = ['src', 'plugins', 'schemas', 'package.json', 'tsconfig.json', 'tsconfig.build.json', 'scripts/build-redoc.js']

/** What the build writes last. */
const last = 'dist/redoc/LICENSE'

/** Builds the service if that was not done since its source has changed. Test files that need it at once build it once. */
export function ensureBuilt () {
  if (isFresh()) return
  if (claim('build')) execFileSync('npm', ['run', 'build'], { stdio: ['ignore', 'ignore', 'inherit'], env: { ...process.env, NODE_OPTIONS: '' } })
  else while (!isFresh()) pause()
}

/** Redoc, which apps serve from the source too, does not depend on it. */
export function ensureRedoc () {
  if (!existsSync(last)) ensureBuilt()
}

function isFresh () {
  return existsSync(last) && statSync(last).mtimeMs >= Math.max(...sources.map(newest))
}

function newest (path: string): number {
  const stat = statSync(path)
  return stat.isDirectory() ? Math.max(...readdirSync(path).map(name => newest(join(path, name)))) : stat.mtimeMs
}

function pause () {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
}
