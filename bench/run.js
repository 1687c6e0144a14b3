// Compares the service with other servers, and its databases with those of another build: BASE=FOLDER npm run bench
// ROUNDS=1 SECONDS=1 makes it short. It needs Linux, two cores and wrk.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { compareDatabases } from './databases.js'
import { compare, folder, ratio, start } from './measure.js'
import { report } from './report.js'

process.chdir(import.meta.dirname)
const { BASE, ROUNDS } = process.env
const rounds = Number(ROUNDS ?? 5)
const service = '../dist/src/server.js'
const silent = { LOG_LEVEL: 'silent' }

const programs = {
  Bun: 'node_modules/@oven/bun-linux-x64/bin/bun',
  Go: join(folder, 'go'),
  'Node 26': 'node_modules/.bin/node'
}
spawnSync('go', ['build', '-o', programs.Go, 'servers/go.go'])
const missing = Object.keys(programs).filter(name => !existsSync(programs[name]))

const onNode = node => [
  { name: 'the service', command: [node, service], env: silent },
  { name: 'the service with its log', command: [node, service] },
  { name: 'Fastify', command: [node, 'servers/fastify.js'] },
  { name: 'Fastify with its log', command: [node, 'servers/fastify.js'], env: { LOG: 'true' } },
  { name: 'careful Fastify', command: [node, 'servers/careful-fastify.js'] },
  { name: 'node:http', command: [node, 'servers/node-http.js'] }
]
const others = [
  { name: 'Hono', command: ['node', 'servers/hono.js'] },
  { name: 'Express', command: ['node', 'servers/express.js'] },
  { name: 'Elysia on Bun', command: [programs.Bun, 'servers/elysia.js'] },
  { name: 'Go', command: [programs.Go] }
].filter(({ command: [program] }) => program === 'node' || existsSync(program))

const workloads = [
  { name: 'GET one', path: '/api/items/1' },
  { name: 'GET list of one', path: '/api/items' },
  { name: 'POST', method: 'POST', path: '/api/items', body: '{"id":2,"name":"Teapot","price":24.5}' },
  { name: 'invalid POST', method: 'POST', path: '/api/items', body: '{"id":"1","name":5}', refused: true },
  { name: 'GET list of 10,000', path: '/api/items', records: 10_000 }
]

const nodes = [await measureNode('node', others)]
if (!missing.includes('Node 26')) nodes.push(await measureNode(programs['Node 26']))
const databases = BASE && await compareDatabases(BASE, Number(ROUNDS ?? 3))
report({ nodes, databases, missing, rounds })
process.exit()

/** All figures of the servers on a version of Node, and of other servers. */
async function measureNode (node, others = []) {
  const version = String(execFileSync(node, ['--version'])).trim()
  const servers = [...onNode(node), ...others]
  const rows = []
  for (const workload of workloads) {
    console.error(version, workload.name)
    rows.push({ name: workload.name, rates: await measureWorkload(workload, servers) })
  }
  return { version, servers, rows, last: await measureLast(node), startup: await measureStartup(node) }
}

async function measureWorkload ({ records = 1, ...workload }, servers) {
  const SEED_FILE = seedFile(records)
  const started = []
  for (const server of servers) started.push(await start({ ...server, env: { ...server.env, SEED_FILE } }))
  const agreeing = await sameAnswers(started, workload)
  const rates = await compare(agreeing.map(server => ({ ...server, workload })), rounds)
  for (const { stop } of started) stop()
  return rates
}

/** The servers whose response has the status and the bytes of the first one. */
async function sameAnswers (servers, { path, method, body }) {
  const headers = body && { 'content-type': 'application/json' }
  const answers = []
  for (const { url } of servers) {
    const response = await fetch(url + path, { method, body, headers })
    answers.push(`${response.status} ${await response.text()}`)
  }
  return servers.filter((_, n) => answers[n] === answers[0])
}

/** The rate of GET for the last of 1,000,000 items, as a ratio to that for the first one. */
async function measureLast (node) {
  const env = { ...silent, SEED_FILE: seedFile(1_000_000) }
  const server = await start({ name: 'the service', command: [node, service], env })
  const contenders = [1, 1_000_000].map(id => ({ ...server, name: id, workload: { path: `/api/items/${id}` } }))
  const rates = await compare(contenders, rounds)
  server.stop()
  return ratio(rates[1_000_000], rates[1])
}

/** The time to the first response of the service, as a ratio to that of Fastify with its documentation page. */
async function measureStartup (node) {
  const times = { [service]: [], 'servers/swagger-ui.js': [] }
  for (let round = 0; round < rounds; round++) {
    for (const file in times) {
      const { milliseconds, stop } = await start({ name: file, command: [node, file], env: silent })
      times[file].push(milliseconds)
      stop()
    }
  }
  return ratio(...Object.values(times))
}

/** A file with so many items, which every server reads. */
function seedFile (records) {
  const file = join(folder, `${records}.json`)
  const items = Array.from({ length: records }, (_, n) => ({ id: n + 1, name: `Number ${n + 1}`, price: n + 1.25 }))
  writeFileSync(file, JSON.stringify({ items, users: [] }))
  return file
}
