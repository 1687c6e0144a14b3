// Compares 1, 2 and 4 instances on one database, each with the same load, alternately in one run:
// node --import ./test/support/typescript.js bench/scaling.js
// It prints the ratios of requests per second to one instance, and the CPU time per request of the service and of PostgreSQL.
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { startPostgres } from '../test/support/postgres.ts'
import { connections, item, measure } from './load.js'

const rounds = Number(process.env.ROUNDS ?? 9)
const ports = [4700, 4701, 4702, 4703]
const ends = []
const postgres = await startPostgres({ teardown: end => ends.push(end), comment: console.error })
const url = postgres.database()
const instances = ports.map(port => spawn('node', ['dist/src/server.js'], {
  env: { ...process.env, DATABASE_URL: url, LOG_LEVEL: 'silent', DOCS: 'false', PORT: String(port) }, stdio: ['ignore', 'ignore', 'inherit']
}))
for (const port of ports) while (!await fetch(`http://127.0.0.1:${port}/readyz`).then(({ ok }) => ok, () => false)) await sleep(50)
process.chdir(import.meta.dirname)

const get = { path: '/api/items/1' }
const post = { method: 'POST', path: '/api/items', body: item(2) }
const slowly = `
  create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(0.005); return null; end';
  create trigger wait after insert on items for each statement execute function wait();
  create trigger wait after insert on users for each statement execute function wait()`

console.log('| workload | instances | requests per second, to one instance | CPU time per request, service | PostgreSQL |\n|---|---|---|---|---|')
await compare('GET one', [get])
await compare('POST', [post])
await postgres.query(slowly, url)
await compare('POST, 5 ms a commit', [post])
await compare('POST to two collections, 5 ms a commit', [post, { ...post, path: '/api/users' }])
for (const instance of instances) instance.kill()
for (const end of ends) await end()

async function compare (name, workloads) {
  const results = [1, 2, 4].map(count => ({ count, rates: [], ratios: [], service: [], database: [] }))
  for (let round = 0; round <= rounds; round++) {
    for (const { count, rates, ratios, service, database } of results) {
      const before = cpuTimes()
      const clients = ports.slice(0, count).flatMap(port => workloads.map(work => measure(port, work, 2, connections / workloads.length)))
      const rate = (await Promise.all(clients)).reduce((sum, one) => sum + one)
      if (round === 0) continue
      const after = cpuTimes()
      rates.push(rate)
      ratios.push(rate / results[0].rates.at(-1))
      service.push((after.service - before.service) / rate / 2)
      database.push((after.database - before.database) / rate / 2)
    }
  }
  for (const { count, rates, ratios, service, database } of results) {
    console.log(`| ${name} | ${count} | ${median(ratios).toFixed(2)} (${Math.round(median(rates))}) | ${median(service).toFixed(0)} µs | ${median(database).toFixed(0)} µs |`)
  }
}

/** The CPU times of all instances and of all processes of the server, in microseconds. */
function cpuTimes () {
  const postmaster = readFileSync(`${postgres.data}/postmaster.pid`, 'utf8').split('\n')[0]
  const stats = readdirSync('/proc').filter(name => /^\d+$/.test(name)).flatMap(pid => {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
      const ofEnded = pid === postmaster ? Number(fields[13]) + Number(fields[14]) : 0
      return { pid, parent: fields[1], time: (Number(fields[11]) + Number(fields[12]) + ofEnded) * 10_000 }
    } catch {
      return []
    }
  })
  const sum = test => stats.filter(test).reduce((sum, { time }) => sum + time, 0)
  return { service: sum(({ pid }) => instances.some(instance => String(instance.pid) === pid)), database: sum(({ pid, parent }) => pid === postmaster || parent === postmaster) }
}

function median (values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]
}
