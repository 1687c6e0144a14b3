// Compiles all source files before the tests, so that their processes do not load TypeScript. TypeScript 7 takes a quarter of the
// time of TypeScript 5.9, and its output is the same.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { isCached, store } from './typescript-hooks.js'

const { exclude } = JSON.parse(readFileSync('tsconfig.json', 'utf8'))
const folder = mkdtempSync(join(tmpdir(), 'items-users-compile-'))
const sources = ['src', 'plugins', 'schemas', 'test'].flatMap(parent => readdirSync(parent, { recursive: true }).map(name => join(parent, name)))
  .filter(name => name.endsWith('.ts') && !name.includes('node_modules') && !exclude.some(excluded => name.startsWith(excluded)))
if (!sources.every(isCached)) {
  const emit = ['--noEmit', 'false', '--noCheck', '--inlineSourceMap', '--inlineSources', '--outDir', folder]
  execFileSync(process.execPath, ['node_modules/typescript-7/lib/tsc.js', ...emit], { stdio: 'inherit' })
  for (const name of sources) {
    const output = readFileSync(join(folder, name.replace(/ts$/, 'js')), 'utf8')
    store(name, output.replace(/(?<=;base64,)\S+/, map => withSource(map, name)))
  }
}
rmSync(folder, { recursive: true })

/** A source map that names its source by its path from the module that Node loads, which is the source itself. */
function withSource (map, name) {
  return Buffer.from(JSON.stringify({ ...JSON.parse(Buffer.from(map, 'base64')), sources: [basename(name)] })).toString('base64')
}
