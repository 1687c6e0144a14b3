// Compares this build with the build of another checkout, alternately in one run: node bench/compare.js FOLDER
// DATABASE_URL selects the engine; {n} in it is another text for each build, such as sqlite:/tmp/{n}.db.
// It prints the ratios of requests per second, and of CPU time per request, which other processes disturb less. Two processes of the
// same build differ by up to 5 %, as long as they live, so each workload has several processes of each build.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fill, measure, pinned } from './load.js'

const folders = [resolve(import.meta.dirname, '..'), resolve(process.argv[2])]
const starts = Number(process.env.STARTS ?? 6)
const rounds = 4 // of each process
const database = process.env.DATABASE_URL ?? 'memory'
process.chdir(import.meta.dirname)

const list = { path: '/api/items' }
const longList = { ...list, size: 10_000 }
const workloads = [
  { name: 'GET one', path: '/api/items/1' },
  { name: 'GET list of 1', ...list },
  { name: 'POST valid', method: 'POST', path: '/api/users', body: '{"id":2,"name":"Grace"}' },
  { name: 'POST invalid', method: 'POST', path: '/api/items', body: '{"id":"1","name":5}' },
  { name: 'GET list of 10,000', ...longList },
  { name: 'GET list of 10,000 with gzip', ...longList, headers: { 'accept-encoding': 'gzip' } }
].filter(({ name }) => name.includes(process.env.ONLY ?? ''))

let servers = []
process.on('exit', stop)
console.log(`| workload | requests per second (median of ${starts * rounds}) | quartiles | CPU time per request | quartiles |\n|---|---|---|---|---|`)

for (const { name, size, ...workload } of workloads) {
  const rates = []
  const costs = []
  for (let processes = 0; processes < starts; processes++) {
    await start()
    if (size) for (const { port } of servers) await fill(port, 2, size)
    for (let round = 0; round <= rounds; round++) {
      const [one, other] = [[], []]
      // The order changes, so that neither is always the second one.
      for (const n of round % 2 ? [0, 1] : [1, 0]) {
        const before = cpuTime(servers[n])
        const rate = await measure(servers[n].port, workload, 1)
        ;[one, other][n].push(rate, (cpuTime(servers[n]) - before) / rate)
      }
      if (round === 0) continue // it warms up
      rates.push(one[0] / other[0])
      costs.push(one[1] / other[1])
    }
    stop()
  }
  console.log(`| ${name} | ${[rates, costs].map(values => `${at(values, 0.5)} | ${at(values, 0.25)} to ${at(values, 0.75)}`).join(' | ')} |`)
}
process.exit()

async function start () {
  servers = folders.map((folder, n) => {
    const [command, ...args] = pinned(0, [process.execPath, `${folder}/dist/src/server.js`])
    return { port: 4800 + n, child: spawn(command, args, { env: { ...process.env, DATABASE_URL: database.replaceAll('{n}', `build${n}`), PORT: String(4800 + n), LOG_LEVEL: 'silent' }, stdio: 'inherit' }) }
  })
  for (const { port } of servers) while (!await fetch(`http://127.0.0.1:${port}/readyz`).then(({ ok }) => ok, () => false)) await sleep(50)
}

function stop () {
  for (const { child } of servers) child.kill('SIGKILL')
}

function at (values, share) {
  return values.sort((a, b) => a - b)[Math.floor(values.length * share)].toFixed(3)
}

/** The CPU time that a process has used, in clock ticks. */
function cpuTime ({ child }) {
  const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ')
  return Number(fields[11]) + Number(fields[12])
}
