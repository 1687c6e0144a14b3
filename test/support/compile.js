// Compiles all source files before the tests, so that their processes do not load TypeScript.
import { readdirSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { load } from './typescript-hooks.js'

for (const folder of ['src', 'plugins', 'schemas', 'test']) {
  const names = readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.ts') && !name.includes('node_modules'))
  for (const name of names) await load(pathToFileURL(`${folder}/${name}`).href, {})
}
