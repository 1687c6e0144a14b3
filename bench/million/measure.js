// Measures a million records: latency next to four readers, memory of idle readers, cost of a change, total memory.
import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

const here = name => new URL(name, import.meta.url).pathname

export async function measureMillion () {
  const server = fork(here('server.js'), { execArgv: ['--expose-gc'] })
  const [port] = await once(server, 'message')
  const url = `http://127.0.0.1:${port}/api`

  const list = await fetch(`${url}/items`).then(response => response.json())
  if (list.length !== 1_000_000 || !list.every(({ id }, n) => id === n + 1)) throw new Error('the list is not the list')

  const readers = fork(here('readers.js'), [`${url}/items`])
  await sleep(1000)
  const times = []
  for (let n = 0; n < 1000; n++) times.push(await timed(() => fetch(`${url}/items/1`).then(response => response.text())))
  readers.kill()
  const p99 = times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)]

  const before = await memory()
  const idle = Array.from({ length: 10 }, () => {
    const socket = connect(port, '127.0.0.1').pause()
    socket.write('GET /api/items HTTP/1.1\r\nHost: x\r\n\r\n')
    return socket
  })
  await sleep(500)
  const held = await memory() - before
  idle.forEach(socket => socket.destroy())

  const changes = []
  const lists = []
  const user = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"id":5,"name":"Again"}' }
  for (let n = 0; n < 10; n++) {
    changes.push(await timed(async () => {
      await fetch(`${url}/users/5`, { method: 'DELETE' })
      await fetch(`${url}/users`, user)
    }))
    lists.push(await timed(() => fetch(`${url}/users`, { headers: { 'accept-encoding': 'identity' } }).then(response => response.arrayBuffer())))
  }
  server.kill()

  const [store, objects] = [await rss('store'), await rss('objects')]
  return { p99, held, change: Math.min(...changes), list: Math.min(...lists), memory: store / objects }

  async function memory () {
    server.send('memory')
    const [{ arrayBuffers, heapUsed }] = await once(server, 'message')
    return arrayBuffers + heapUsed
  }
}

async function rss (kind) {
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', here('memory.js'), kind])
  return Number(stdout)
}

async function timed (work) {
  const start = performance.now()
  await work()
  return performance.now() - start
}
