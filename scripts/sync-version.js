// Writes the version in package.json to the source, which does not read files. `npm version` runs it.
import { readFileSync, writeFileSync } from 'node:fs'

const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
const file = 'plugins/docs/version.ts'
writeFileSync(file, readFileSync(file, 'utf8').replace(/'.+'/, `'${version}'`))
