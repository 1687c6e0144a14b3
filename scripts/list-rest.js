// Lists the test files that have not run since `npm test` started, for tap --save, which runs them and keeps the coverage. (tap
// --changed also runs those again that have loaded a module which is not a file.)
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'

const folder = '.tap/processinfo'
const hasRun = new Set(readdirSync(folder).map(name => /"externalID": "(.+)"/.exec(readFileSync(`${folder}/${name}`, 'utf8'))?.[1]))
const files = execFileSync('npx', ['tap', 'list'], { encoding: 'utf8' }).split('\n')
writeFileSync('.tap/rest', files.filter(file => !hasRun.has(file)).join('\n'))
