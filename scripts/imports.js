// Prints the imports between folders, without those of types, as a Mermaid diagram: node scripts/imports.js
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const imports = /^import (?!type ).*from '(\.[^']+)'/gm
const arrows = new Set()
const listed = execFileSync('git', ['ls-files', 'src/*.ts', 'plugins/*.ts', 'schemas/*.ts'], { encoding: 'utf8' })
for (const file of listed.trim().split('\n')) {
  for (const [, path] of readFileSync(file, 'utf8').matchAll(imports)) {
    const [from, to] = [dirname(file), dirname(join(dirname(file), path))]
    if (from !== to) arrows.add(`  ${from} --> ${to}`)
  }
}
console.log(['graph TD', ...[...arrows].sort()].join('\n'))
