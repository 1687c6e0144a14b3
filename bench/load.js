// Measures a server with wrk if it is installed, otherwise with autocannon.
import { execFile, execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
export const connections = 64

export const has = command => {
  try {
    return execFileSync('sh', ['-c', `command -v ${command}`]).length > 0
  } catch {
    return false
  }
}

/** Runs a command on one core, so that a server and its load do not share a core. */
export const pinned = (core, command) => has('taskset') ? ['taskset', '-c', String(core), ...command] : command

const scripts = mkdtempSync(join(tmpdir(), 'bench-'))

/** Requests per second, measured for some seconds. `UNIQUE` in the body is another text in each request. */
export async function measure (port, { method = 'GET', path, body, uniqueHeader, headers = {} }, seconds) {
  const url = `http://127.0.0.1:${port}${path}`
  if (!has('wrk')) {
    const request = { method, body, headers: { ...headers, ...body && { 'content-type': 'application/json' } } }
    const [command, ...rest] = pinned(1, ['node', 'autocannon.js', JSON.stringify({ url, connections, duration: seconds, request, uniqueHeader })])
    return Number((await run(command, rest)).stdout)
  }
  const script = join(scripts, 'request.lua')
  writeFileSync(script, `wrk.method = '${method}'\n` +
    Object.entries(headers).map(([name, value]) => `wrk.headers['${name}'] = '${value}'\n`).join('') +
    (body ? `wrk.body = '${body}'\nwrk.headers['content-type'] = 'application/json'\n` : '') +
    (uniqueHeader || body?.includes('UNIQUE')
      ? `local n = 0\nrequest = function () n = n + 1; local unique = '${randomUUID()}-' .. n;${
        uniqueHeader ? ` wrk.headers['${uniqueHeader}'] = unique` : ` wrk.body = '${body.replace('UNIQUE', "' .. unique .. '")}'`}; return wrk.format() end\n`
      : ''))
  const [command, ...rest] = pinned(1, ['wrk', '-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, url])
  const { stdout } = await run(command, rest)
  return Number(stdout.match(/Requests\/sec:\s+([\d.]+)/)[1])
}

/** Creates the items with these ids over one connection, many at once. */
export async function fill (port, from, to) {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  let answered = 0
  let received = ''
  let wake
  socket.on('data', chunk => {
    received += chunk.toString('latin1')
    const statusLines = received.match(/HTTP\/1\.1 \d{3}/g) ?? []
    const failed = statusLines.find(line => !line.endsWith('201'))
    if (failed) throw new Error(`not created: ${failed}`)
    answered += statusLines.length
    // The rest may be the start of a status line.
    received = received.slice(-11)
    wake?.()
  })
  for (let id = from; id <= to;) {
    let batch = ''
    for (let n = 0; n < 200 && id <= to; n++, id++) {
      const body = item(id)
      batch += `POST /api/items HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    }
    socket.write(batch)
    const sent = id - from
    await new Promise((resolve, reject) => {
      wake = () => answered === sent && resolve()
      socket.once('close', () => reject(new Error('it closed the connection')))
    })
    socket.removeAllListeners('close')
  }
  socket.destroy()
}

export const item = id => JSON.stringify({ id, name: `Item number ${id}`, price: id + 0.25 })
