// Runs the tests on every supported Node, and with the oldest and the newest Fastify that the service supports. (The plugin
// supports older ones, see test/package/hosts.test.ts.) Some of them: npm run test:nodes -- 'Node 24' 'Fastify 5'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { arch, platform, tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const wanted = process.argv.slice(2)
const runs = [
  ...['20', '22', '24', '26'].map(node => ({ name: `Node ${node}`, node })),
  ...['5.10.0', '5'].map(fastify => ({ name: `Fastify ${fastify}`, fastify }))
].filter(({ name }) => wanted.length === 0 || wanted.includes(name))

const outcomes = []
for (const { name, node, fastify } of runs) {
  const folder = mkdtempSync(join(tmpdir(), 'versions-'))
  const env = { ...process.env, CI: 'true' }
  spawnSync('git', ['clone', '--quiet', '.', folder], { stdio: 'inherit' })
  if (node) {
    // The package that `node` installs on this machine with an install script.
    const binary = `node-${platform()}-${arch()}`
    run('npm', 'install', '--silent', '--no-save', '--prefix', join(folder, 'node'), `${binary}@${node}`)
    env.PATH = join(folder, 'node/node_modules', binary, 'bin') + delimiter + env.PATH
  }
  run('npm', 'ci', '--silent')
  if (fastify) run('npm', 'install', '--silent', '--no-save', `fastify@${fastify}`)
  const versions = run('node', '-p', 'process.version + ", Fastify " + require("fastify/package.json").version').stdout.trim()
  console.log(`\n# ${name}: ${versions}`)
  const passed = run('npm', 'run', '--silent', 'test:all').status === 0
  outcomes.push(`${passed ? 'passed' : 'failed'}: ${name} (${versions})`)
  await sleep(3000) // the process that stops the shared PostgreSQL writes into the folder when it ends
  rmSync(folder, { recursive: true, force: true })

  function run (command, ...args) {
    const stdout = command === 'node' ? 'pipe' : 'inherit'
    return spawnSync(command, args, { cwd: folder, env, stdio: ['ignore', stdout, 'inherit'], encoding: 'utf8' })
  }
}

console.log(`\n${outcomes.join('\n')}`)
process.exitCode = outcomes.some(outcome => outcome.startsWith('failed')) ? 1 : 0
