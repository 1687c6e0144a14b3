import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { newFolder } from '../support/folder.js'
import { until } from '../support/until.js'
import { freePort, type Postgres } from '../support/postgres.js'
import { ledger } from './ledger.js'
import { serve, type Scope } from './service.js'

/** How long an instance serves on after a signal, and how long nginx leaves it alone when it says that it is not ready. */
const delay = 1000
const rest = 2000

/**
 * Three instances behind nginx are restarted in turn under load, and nobody notices. Then their database is lost: that is
 * 503, as it is without nginx, and when it is back, all is well again.
 */
export async function rollingRestart (scope: Scope, server: Postgres, { rounds, pause }: { rounds: number, pause?: number }) {
  const env = { DATABASE_URL: server.database(), SHUTDOWN_DELAY: String(delay), DOCS: 'false' }
  const ports = [await lastingPort(), await lastingPort(), await lastingPort()]
  const instances = await Promise.all(ports.map(port => serve(scope, { ...env, PORT: String(port) })))
  const proxy = await startNginx(scope, ports)
  const account = ledger(scope, [200, 201, 204])

  const probing = new AbortController()
  scope.teardown(() => probing.abort())
  let unready = 0
  const probes = probe()
  const stop = account.write(proxy, { pause })
  for (let round = 0; round < rounds; round++) {
    for (const [n, port] of ports.entries()) {
      scope.comment(`round ${round + 1} of ${rounds}, instance ${n + 1}`)
      await sleep(500)
      instances[n]?.process.kill('SIGTERM')
      deepStrictEqual(await instances[n]?.exit, [0, null])
      instances[n] = await serve(scope, { ...env, PORT: String(port) })
      await sleep(rest)
    }
  }
  await stop()
  const { created, deleted } = await account.compare(proxy)
  equal(unready, 0, 'it was ready all the time')

  await server.stop()
  await sleep(1000)
  for (let n = 0; n < 10; n++) {
    const response = await fetch(`${proxy}/api/users`)
    equal(response.status, 503)
    ok(Number(response.headers.get('retry-after')) > 0)
    equal(typeof (await response.json() as { detail: string }).detail, 'string')
  }
  await server.run()
  await until(async () => (await fetch(`${proxy}/api/users`)).ok)
  probing.abort()
  await probes
  return { restarts: rounds * ports.length, requests: created + deleted, slowest: account.slowest() }

  /** Asks for each instance in its turn whether it is ready, as the health check in compose.yaml does. */
  async function probe () {
    while (!probing.signal.aborted) {
      for (let n = 0; n < 9; n++) if (!(await fetch(`${proxy}/readyz`)).ok) unready++
      await sleep(100)
    }
  }
}

/** A port that no connection gets while nobody listens on it: one below those that the system gives away. */
async function lastingPort () {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const server = createServer().listen(port, '127.0.0.1')
    const free = await once(server, 'listening').then(() => true, () => false)
    server.close()
    if (free) return port
  }
}

/** Starts nginx as compose.yaml configures it, but for the addresses and the time. */
async function startNginx (scope: Scope, ports: number[]) {
  const folder = newFolder(scope)
  const port = await freePort()
  const configured = /content: \|\n([^]+)$/.exec(readFileSync('compose.yaml', 'utf8'))?.[1] ?? ''
  const servers = ports.map(port => `server 127.0.0.1:${port} max_fails=1 fail_timeout=${rest / 1000}s;`)
  const config = configured.replaceAll('$$', '$')
    .replace(/resolver .*/, `access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;`)
    .replace(/server service:3000.*/, servers.join('\n'))
    .replace('listen 80', `listen 127.0.0.1:${port}`)
  writeFileSync(`${folder}/nginx.conf`, config)
  const nginx = spawn('nginx', ['-p', folder, '-c', `${folder}/nginx.conf`, '-g', `daemon off; pid ${folder}/pid; error_log ${folder}/errors;`], { stdio: 'ignore' })
  scope.teardown(() => nginx.kill('SIGTERM'))
  const url = `http://127.0.0.1:${port}`
  await until(async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.ok === true)
  return url
}
