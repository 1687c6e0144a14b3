import { execFileSync } from 'node:child_process'

/** The client as one minified ES module. */
export function bundledClient () {
  return execFileSync('node_modules/.bin/esbuild', ['src/client.ts', '--bundle', '--minify', '--format=esm', '--log-level=error'])
}
