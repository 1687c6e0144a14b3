import { deepStrictEqual, equal } from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { newFolder } from '../folder.js'
import { freePort, type Postgres } from '../postgres.js'
import { ledger } from './ledger.js'
import { serve, until, type Scope } from './service.js'

/** How long an instance serves on after a signal, and how long nginx leaves it alone when it says that it is not ready. */
const delay = 1000
const rest = 2000

/** Three instances behind nginx are restarted in turn under load, and nobody notices. */
export async function rollingRestart (scope: Scope, server: Postgres, { rounds }: { rounds: number }) {
  const env = { DATABASE_URL: server.database(), SHUTDOWN_DELAY: String(delay), DOCS: 'false' }
  const ports = [await freePort(), await freePort(), await freePort()]
  const instances = await Promise.all(ports.map(port => serve(scope, { ...env, PORT: String(port) })))
  const proxy = await startNginx(scope, ports)

  const probing = new AbortController()
  const probes = probe()
  const account = ledger()
  const stop = account.write(proxy)
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
  probing.abort()
  await probes
  const { 201: created = 0, 204: deleted = 0, ...failed } = account.answers
  deepStrictEqual(failed, {}, 'no request fails')
  await account.compare(proxy)
  return { restarts: rounds * ports.length, requests: created + deleted, failed: 0, slowest: account.slowest() }

  /** Asks for each instance in its turn whether it is ready, as the health check in compose.yaml does. */
  async function probe () {
    while (!probing.signal.aborted) {
      for (let n = 0; n < 9; n++) equal((await fetch(`${proxy}/readyz`)).status, 200)
      await sleep(100)
    }
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
