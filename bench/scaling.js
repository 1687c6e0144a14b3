// Compares 1, 2 and 4 instances on one database, each with the same load, alternately in one run:
// node --import=tsx bench/scaling.js
// It prints the ratios to one instance: of requests per second, and of requests per second of CPU time of the service and of
// PostgreSQL, which other processes disturb less.
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { startPostgres } from '../test/support/postgres.ts'
import { item, measure } from './load.js'

const rounds = Number(process.env.ROUNDS ?? 9)
const seconds = 2
const ports = [4700, 4701, 4702, 4703]
const ends = []
const postgres = await startPostgres({ teardown: end => ends.push(end), comment: console.error })
const url = postgres.database()
const instances = ports.map(port => spawn('node', ['dist/src/server.js'], {
  env: { ...process.env, DATABASE_URL: url, LOG_LEVEL: 'silent', DOCS: 'false', PORT: String(port) }, stdio: ['ignore', 'ignore', 'inherit']
}))
for (const port of ports) while (!await fetch(`http://127.0.0.1:${port}/readyz`).then(({ ok }) => ok, () => false)) await sleep(50)
process.chdir(import.meta.dirname)

console.log('| workload | instances | requests per second | requests per second of CPU time | CPU time per request, service | PostgreSQL |\n|---|---|---|---|---|---|')
await compare('GET one', { path: '/api/items/1' })
await compare('POST', { method: 'POST', path: '/api/items', body: item(2) })
for (const instance of instances) instance.kill()
for (const end of ends) await end()

async function compare (name, workload) {
  const results = [1, 2, 4].map(count => ({ count, rounds: [] }))
  for (let round = 0; round <= rounds; round++) {
    for (const { count, rounds } of results) rounds.push(await measureInstances(count, workload))
  }
  const [one] = results
  for (const { count, rounds } of results) {
    const figure = pick => median(rounds.slice(1).map((measured, n) => pick(measured, one.rounds[n + 1])))
    const cost = ({ service, database }) => service + database
    console.log(`| ${[
      name,
      count,
      `${figure(({ rate }, one) => rate / one.rate).toFixed(2)} (${figure(({ rate }) => rate).toFixed(0)})`,
      figure((measured, one) => cost(one) / cost(measured)).toFixed(2),
      `${figure(({ service }) => service).toFixed(0)} µs`,
      `${figure(({ database }) => database).toFixed(0)} µs`
    ].join(' | ')} |`)
  }
}

/** The requests per second of some instances, and the CPU times per request in microseconds. */
async function measureInstances (count, workload) {
  const before = cpuTimes()
  const rate = sumOf(await Promise.all(ports.slice(0, count).map(port => measure(port, workload, seconds))))
  const after = cpuTimes()
  const [service, database] = ['service', 'database'].map(name => (after[name] - before[name]) * 10_000 / rate / seconds)
  return { rate, service, database }
}

/** The CPU times of all instances and of all processes of the server, also of those that have ended, in ticks. */
function cpuTimes () {
  const postmaster = readFileSync(`${postgres.data}/postmaster.pid`, 'utf8').split('\n')[0]
  const processes = readdirSync('/proc').filter(name => /^\d+$/.test(name)).flatMap(pid => {
    try {
      const [, parent, ...fields] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
      return { pid, parent, time: sumOf(fields.slice(9, pid === postmaster ? 13 : 11)) }
    } catch {
      return []
    }
  })
  const timeOf = test => sumOf(processes.filter(test).map(({ time }) => time))
  return {
    service: timeOf(({ pid }) => instances.some(instance => String(instance.pid) === pid)),
    database: timeOf(({ pid, parent }) => pid === postmaster || parent === postmaster)
  }
}

function sumOf (values) {
  return values.reduce((sum, value) => sum + Number(value), 0)
}

function median (values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]
}
