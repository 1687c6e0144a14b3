// Compares the service with other servers. Every figure is a ratio within one round of one run.
import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { arch, platform, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { measureCaching } from './caching.js'
import { measureEngines } from './engines.js'
import { fill, has, item, measure, pinned } from './load.js'
import { measureMillion } from './million/measure.js'
import { measureQueries } from './queries.js'
import { report } from './report.js'
import { timeToAnswer } from './startup.js'

process.chdir(import.meta.dirname)
const rounds = Number(process.env.ROUNDS ?? 9)
const folder = mkdtempSync(join(tmpdir(), 'bench-'))
chmodSync(folder, 0o755) // nginx reads it as another user
const list = join(folder, 'items')

const service = ['node', '../dist/src/server.js']
const node26 = `node_modules/node-${platform()}-${arch()}/bin/node`
const bun = `node_modules/@oven/bun-${platform()}-${arch().replace('arm64', 'aarch64')}/bin/bun`
const go = join(folder, 'go')
if (has('go')) execFileSync('go', ['build', '-o', go, 'servers/go.go'])

const servers = [
  { name: 'fastify-items-users', command: service, env: { LOG_LEVEL: 'silent' } },
  { name: 'with its log', command: service, output: join(folder, 'log') },
  { name: 'on Node 26', command: [node26, service[1]], env: { LOG_LEVEL: 'silent' } },
  { name: 'node:http', command: ['node', 'servers/node-http.js'] },
  { name: 'Fastify', command: ['node', 'servers/fastify.js'] },
  { name: 'Fastify with its log', command: ['node', 'servers/fastify.js'], env: { LOG: 'true' }, output: join(folder, 'fastify-log') },
  { name: 'Hono', command: ['node', 'servers/hono.js'] },
  { name: 'Hono on Bun', command: [bun, 'servers/hono.js'] },
  { name: 'Elysia on Bun', command: [bun, 'servers/elysia.js'] },
  { name: 'Express', command: ['node', 'servers/express.js'] },
  { name: 'json-server', command: ['node', 'servers/json-server.js'], readOnly: true },
  {
    name: 'FastAPI',
    command: ['uvicorn', '--log-level', 'critical', '--no-access-log', '--app-dir', 'servers', 'fastapi_app:app', '--port'],
    takesPort: true
  },
  { name: 'Go net/http', command: [go] }
].filter(({ command: [program] }) => has(program))
const [ours] = servers

const programs = { wrk: 'wrk', nginx: 'nginx-light', uvicorn: 'python3-fastapi uvicorn', go: 'golang-go', pgbench: 'postgresql' }
const absent = Object.keys(programs).filter(program => !has(program))
if (absent.length > 0) {
  console.error(`Without ${absent.join(', ')} (Debian: ${absent.map(program => programs[program]).join(' ')}): autocannon replaces wrk, pg replaces pgbench, and nginx, FastAPI and Go are left out.`)
}

const workloads = [
  { name: 'GET one, 1 record', path: '/api/items/1' },
  { name: 'GET list of 1', path: '/api/items' },
  { name: 'POST invalid', method: 'POST', path: '/api/items', body: '{"id":"1","name":5}' },
  { name: 'GET list of 10,000', path: '/api/items', size: 10_000, against: 'nginx' },
  { name: 'GET the last of 50,000', path: '/api/items/50000', size: 50_000 },
  { name: 'POST valid', method: 'POST', path: '/api/items', body: item(2) }
]

const running = []
process.on('exit', () => running.forEach(child => child.kill()))
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))

for (const [n, server] of servers.entries()) await start(server, 4000 + n)
const results = []
for (const workload of workloads) {
  for (const server of servers) await grow(server, workload.size)
  const peers = await agreeing(workload)
  if (workload.against === 'nginx') peers.push(...await fileServers())
  const figures = Object.fromEntries(peers.map(({ name }) => [name, []]))
  for (let round = 0; round <= rounds; round++) {
    for (const { name, port } of peers) {
      progress(`${workload.name}: round ${round} of ${rounds}, ${name}`)
      const figure = await measure(port, workload, 1)
      if (round > 0) figures[name].push(figure) // the first one warms up
    }
  }
  results.push({ ...workload, figures })
}
running.forEach(child => child.kill())

const caching = await measureCaching({ rounds, progress, start, service, folder })
const growth = await measureGrowth()
progress('a million records')
const million = await measureMillion()
const engines = await measureEngines(rounds, progress)
const queries = await measureQueries(rounds, progress)
const startup = []
for (let round = 1; round <= rounds; round++) {
  progress(`start: round ${round} of ${rounds}`)
  startup.push(await timeToAnswer(service[1], 4200 + round) / await timeToAnswer('servers/swagger-ui.js', 4300 + round))
}
progress('')
report({ results, caching, growth, million, engines, queries, startup, rounds })
process.exit()

async function start (server, port) {
  const [command, ...args] = pinned(0, server.takesPort ? [...server.command, String(port)] : server.command)
  const output = server.output ? openSync(server.output, 'w') : 'ignore'
  const child = spawn(command, args, {
    env: { ...process.env, LIST: list, ...server.env, PORT: String(port) },
    stdio: ['ignore', output, 'inherit']
  })
  running.push(child)
  Object.assign(server, { port, child, size: 1 })
  const deadline = Date.now() + 30_000
  child.once('exit', code => { if (code) throw new Error(`${server.name} ended with ${code}`) })
  while (!await fetch(`http://127.0.0.1:${port}/api/items`).then(({ ok }) => ok, () => false)) {
    if (Date.now() > deadline) throw new Error(`${server.name} does not start`)
    await sleep(50)
  }
  return server
}

/** Servers that send the bytes of our list: nginx from a file, and node:http from memory. */
async function fileServers () {
  writeFileSync(list, Buffer.from(await fetch(`http://127.0.0.1:${ours.port}/api/items`).then(response => response.arrayBuffer())))
  const nginx = join(folder, 'nginx.conf')
  writeFileSync(nginx, `
    daemon off; worker_processes 1; pid ${folder}/pid; error_log stderr crit;
    events { worker_connections 1024; }
    http {
      access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type application/json;
      server { listen 127.0.0.1:4500; location = /api/items { alias ${list}; } }
    }`)
  return Promise.all([
    start({ name: 'node:http, a Buffer', command: ['node', 'servers/node-buffer.js'] }, 4501),
    ...has('nginx') ? [start({ name: 'nginx', command: ['nginx', '-c', nginx] }, 4500)] : []
  ])
}

async function grow (server, size = 1) {
  if (server.size >= size) return
  // json-server is too slow for this number of records.
  if (server.readOnly) server.left = true
  if (server.left) return
  progress(`filling ${server.name} up to ${size}`)
  try {
    await fill(server.port, server.size + 1, size)
    server.size = size
  } catch (error) {
    process.stderr.write(`\r\x1b[K${server.name} cannot be filled: ${error.message}\n`)
    server.left = true
  }
}

/** The servers whose response has the same bytes as that of the first one. */
async function agreeing ({ name, path, method, body }) {
  const request = { method, body, headers: body && { 'content-type': 'application/json' } }
  const able = servers.filter(({ readOnly, left }) => !left && !(readOnly && method))
  const answers = await Promise.all(able.map(async server => {
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, request)
    return { server, answer: `${response.status} ${await response.text()}` }
  }))
  return answers.filter(({ server, answer }) => {
    const same = answer === answers[0].answer
    if (!same) process.stderr.write(`\r\x1b[K${server.name} answers ${name} otherwise, and is left out of it\n`)
    return same
  }).map(({ server }) => server)
}

/** Time and memory of the service by the size of its collection. */
async function measureGrowth () {
  const port = 4100
  const server = await start({ name: 'fastify-items-users', command: service, env: ours.env }, port)
  const rows = []
  for (const size of [1, 1e3, 1e5, 1e6]) {
    await grow(server, size)
    progress(`growth: ${size} records`)
    const last = { path: `/api/items/${size}` }
    await measure(port, last, 1)
    const one = await measure(port, last, 3)
    const began = performance.now()
    const { byteLength } = await fetch(`http://127.0.0.1:${port}/api/items`, { headers: { 'accept-encoding': 'identity' } }).then(response => response.arrayBuffer())
    const ms = performance.now() - began
    const [, rss] = readFileSync(`/proc/${server.child.pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)
    rows.push({ size, one, bytes: byteLength, ms, rss: Number(rss) / 1024 })
  }
  server.child.kill()
  return rows
}

function progress (text) {
  process.stderr.write(`\r\x1b[K${text}`)
}
