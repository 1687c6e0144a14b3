import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { uncovered } from './environment.js'
import { claim, isClaimed } from './run.js'

const sources = ['src', 'plugins', 'schemas', 'package.json', 'tsconfig.json', 'tsconfig.build.json', 'scripts/build.js', 'scripts/build-redoc.js']

/** The last file that the build writes. */
const last = 'dist/.stamp'

/** Builds the service if the build is older than the source. Test files that need it at the same time build it once. */
export function ensureBuilt () {
  if (isFresh()) return
  if (claim('build')) {
    try {
      execFileSync('npm', ['run', 'build'], { stdio: ['ignore', 'ignore', 'inherit'], env: uncovered })
    } finally {
      claim('build has ended')
    }
  }
  while (!isFresh() && !isClaimed('build has ended')) pause()
  if (!isFresh()) throw new Error('The build has failed, or a source file has changed since')
}

/** Builds the files of Redoc, which apps that run from source serve too. */
export function ensureRedoc () {
  if (!existsSync(last)) ensureBuilt()
}

function isFresh () {
  return existsSync(last) && existsSync('dist/src/index.d.ts') && statSync(last).mtimeMs >= Math.max(...sources.map(newest))
}

function newest (path: string): number {
  const stat = statSync(path)
  return stat.isDirectory() ? Math.max(...readdirSync(path).map(name => newest(join(path, name)))) : stat.mtimeMs
}

function pause () {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
}
