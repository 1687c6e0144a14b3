// Lists the test files that have not run since `npm test` started, for tap --save, which runs them and keeps the coverage. (tap
// --changed also runs those again that have loaded a module which is not a file.) A file of a group runs in the group.
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'

const contents = folder => readdirSync(folder).map(name => readFileSync(`${folder}/${name}`, 'utf8'))
const hasRun = contents('.tap/processinfo').map(text => /"externalID": "(.+)"/.exec(text)?.[1])
const inGroups = contents('test/groups').flatMap(text => Array.from(text.matchAll(/'\.\.\/(.+)\.js'/g), ([, name]) => `test/${name}.ts`))
const files = execFileSync('tap', ['list'], { encoding: 'utf8' }).split('\n')
writeFileSync('.tap/rest', files.filter(file => ![...hasRun, ...inGroups].includes(file)).join('\n'))
