// Measures compressed lists and conditional requests with 10,000 records.
import { once } from 'node:events'
import { connect } from 'node:net'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { fill, has, item, measure } from './load.js'

const size = 10_000
const gzip = { 'accept-encoding': 'gzip' }

/** Returns the ratios of all rounds, and times in milliseconds. `start` starts a server at a port. */
export async function measureCaching ({ rounds, progress, start, service, folder }) {
  const port = 4700
  const url = `http://127.0.0.1:${port}/api/items`
  const child = await start({ name: 'fastify-items-users', command: service, env: { LOG_LEVEL: 'silent' } }, port)
  await fill(port, 2, size)
  const plain = Buffer.from(await fetch(url, { headers: { 'accept-encoding': 'identity' } }).then(response => response.arrayBuffer()))
  const { headers } = await fetch(url, { headers: gzip })
  const list = join(folder, 'list')
  writeFileSync(list, plain)
  writeFileSync(`${list}.gz`, gzipSync(plain))
  const node = { name: 'node:http', command: ['node', 'servers/node-buffer.js'] }
  const peers = [
    await start({ ...node, env: { LIST: list } }, port + 1),
    await start({ ...node, env: { LIST: `${list}.gz`, CODING: 'gzip' } }, port + 2),
    ...has('nginx') ? [await start({ name: 'nginx', command: ['nginx', '-c', nginxConfiguration(folder, list, port + 3)] }, port + 3)] : []
  ]

  const get = { path: '/api/items' }
  const compressed = { ...get, headers: gzip }
  const one = { path: '/api/items/1' }
  const known = { ...get, headers: { 'if-none-match': headers.get('etag'), ...gzip } }
  const workloads = [
    ['the list, to node:http with a constant Buffer', [port, get], [port + 1, get]],
    ['the list with gzip, to node:http with a constant Buffer of the same list with gzip', [port, compressed], [port + 2, compressed]],
    ...has('nginx') ? [['the list with gzip, to nginx with `gzip on`', [port, compressed], [port + 3, compressed]]] : [],
    ['304 for the list, to GET one', [port, known], [port, one]]
  ]
  const ratios = []
  for (const [name, ours, theirs] of workloads) {
    const values = []
    for (let round = 0; round <= rounds; round++) {
      progress(`${name}: round ${round} of ${rounds}`)
      const value = await measure(...ours, 1) / await measure(...theirs, 1)
      if (round > 0) values.push(value)
    }
    ratios.push({ name, ratios: values })
  }

  progress('a list that changes before every request')
  const times = { plain: [], gzip: [] }
  for (let n = 0; n < 300; n++) {
    await create(url, size + n)
    times.plain.push(await timeToFirstByte(port, {}))
    await create(url, size + n)
    times.gzip.push(await timeToFirstByte(port, gzip))
  }
  ratios.push({ name: 'time to the first byte of a list that has just changed, with gzip to without', ratios: times.gzip.map((time, n) => time / times.plain[n]) })

  const stop = new AbortController()
  const writing = write(url, stop.signal)
  const latencies = []
  for (let n = 0; n < 2000; n++) latencies.push(await timed(() => fetch(`${url}/1`).then(response => response.text())))
  stop.abort()
  await writing
  for (const { child: process } of [child, ...peers]) process.kill()
  return { ratios, p99: latencies.sort((a, b) => a - b)[Math.floor(latencies.length * 0.99)] }
}

function nginxConfiguration (folder, list, port) {
  const file = join(folder, 'nginx-gzip.conf')
  writeFileSync(file, `
    daemon off; worker_processes 1; pid ${folder}/gzip.pid; error_log stderr crit;
    events { worker_connections 1024; }
    http {
      access_log off; keepalive_requests 1000000; default_type application/json; gzip on; gzip_types application/json;
      server { listen 127.0.0.1:${port}; location = /api/items { alias ${list}; } }
    }`)
  return file
}

/** Changes the list and reads it, again and again. */
async function write (url, signal) {
  for (let n = 0; !signal.aborted; n++) {
    await create(url, n)
    await fetch(url, { headers: gzip }).then(response => response.arrayBuffer())
  }
}

async function create (url, id) {
  await fetch(url, { method: 'POST', body: item(id) })
}

async function timeToFirstByte (port, headers) {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  const lines = Object.entries({ host: 'x', connection: 'close', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
  const time = await timed(async () => {
    socket.write(`GET /api/items HTTP/1.1\r\n${lines.join('')}\r\n`)
    await once(socket, 'data')
  })
  socket.resume()
  await once(socket, 'close')
  return time
}

async function timed (work) {
  const start = performance.now()
  await work()
  return performance.now() - start
}
