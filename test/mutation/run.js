// Changes the code in one place at a time and runs the tests that should notice: npm run test:mutation
// Only some of the files: npm run test:mutation -- pagination idempotency
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { mutants } from './mutants.js'

const words = process.argv.slice(2)
const wanted = mutants.filter(({ file }) => words.length === 0 || words.some(word => file.includes(word)))
const folder = mkdtempSync(join(tmpdir(), 'mutation-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
process.on('SIGINT', () => process.exit(1))

const { stdout } = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' })
for (const file of stdout.trim().split('\n')) cpSync(file, join(folder, file))
cpSync('dist', join(folder, 'dist'), { recursive: true })
symlinkSync(join(process.cwd(), 'node_modules'), join(folder, 'node_modules'))

const survivors = []
for (const [n, { file, engines, tests, before, after }] of wanted.entries()) {
  const path = join(folder, file)
  const code = readFileSync(path, 'utf8')
  if (code.split(before).length !== 2) throw new Error(`${file} must contain once: ${before}`)
  writeFileSync(path, code.replace(before, () => after))
  const isKilled = tests.some(test => spawnSync('npx', ['tap', '--disable-coverage', '--bail', '--reporter=silent', '--timeout=60', test], {
    cwd: folder, env: { ...process.env, ENGINES: engines }
  }).status !== 0)
  writeFileSync(path, code)
  const change = `${file}: ${oneLine(before)} -> ${oneLine(after) || '(nothing)'}`
  console.log(`${n + 1}/${wanted.length} ${isKilled ? 'killed' : 'SURVIVED'} ${change}`)
  if (!isKilled) survivors.push(change)
}
console.log(`\n${wanted.length - survivors.length} of ${wanted.length} mutants were killed.\n${survivors.join('\n')}`)
process.exitCode = survivors.length > 0 ? 1 : 0

function oneLine (text) {
  return text.replaceAll(/\s+/g, ' ').trim()
}
