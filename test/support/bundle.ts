import { execFileSync } from 'node:child_process'
import { resolve } from 'node:path'

/** The client as one minified ES module. */
export function bundledClient () {
  return execFileSync(resolve('node_modules/.bin/esbuild'), ['src/client/index.ts', '--bundle', '--minify', '--format=esm', '--log-level=error'])
}
