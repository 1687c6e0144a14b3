import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ownPaths, startNginx as startNginxWith } from '../support/nginx.js'
import { freePort, type Postgres } from '../support/postgres.js'
import { until } from '../support/until.js'
import { ledger, notesIn, type Sent } from './ledger.js'
import { isReady, serve, type Scope } from './service.js'

type Nginx = Awaited<ReturnType<typeof startNginx>>

const headers = { authorization: 'Bearer a-token' }
const untilSignal = '600000'

/** Makes `SHUTDOWN_DELAY` end with a signal, when the load balancers have noticed, however slow the machine is. */
const script = `
  import { once } from 'node:events'
  import { syncBuiltinESMExports } from 'node:module'
  import timers from 'node:timers/promises'
  const { setTimeout } = timers
  timers.setTimeout = (ms, ...more) => ms === ${untilSignal} ? once(process, 'SIGCONT') : setTimeout(ms, ...more)
  syncBuiltinESMExports()`

/**
 * Restarts three instances in turn behind the nginx of compose.yaml, under a load with all status codes: every request
 * gets its response, and what is acknowledged is stored. Then the database is stopped: that is 503.
 */
export async function rollingRestart (scope: Scope, server: Postgres, rounds: number) {
  const ports = [await freePort(), await freePort(), await freePort()]
  const env = {
    ...notesIn(scope),
    DATABASE_URL: server.database(),
    DATABASE_TIMEOUT: '60000',
    SHUTDOWN_DELAY: untilSignal,
    AUTH_TOKENS: 'a-token',
    BODY_LIMIT: '10000'
  }
  const instances = await Promise.all(ports.map(startInstance))
  const nginx = await startNginx(scope, ports.map(addressOf))
  const account = ledger(scope, { headers })
  const { stop, turn } = account.write([nginx.url], { clients: 8, pause: 300, others })
  for (let round = 1; round <= rounds; round++) {
    for (const [n, port] of ports.entries()) {
      scope.comment(`round ${round} of ${rounds}, instance ${n + 1}`)
      for (const port of ports) await until(() => isUsed(nginx, port))
      await restart(n, port)
    }
  }
  await account.more(201, 50)
  await stop()
  await account.compare(nginx.url)
  equal(nginx.unready(), 0, 'it was ready all the time')
  await loseDatabase(server, nginx.url)

  function startInstance (port: number) {
    return serve(scope, { ...env, PORT: String(port) }, { script })
  }

  async function restart (n: number, port: number) {
    const removals = nginx.removals(addressOf(port))
    instances[n]?.process.kill('SIGTERM')
    await until(() => nginx.removals(addressOf(port)) > removals)
    await turn() // so that no request to the instance is in progress
    instances[n]?.process.kill('SIGCONT')
    deepStrictEqual(await instances[n]?.exit, [0, null])
    instances[n] = await startInstance(port)
  }
}

/** Whether nginx sends requests to an instance. */
async function isUsed ({ url }: Nginx, port: number) {
  return (await fetch(`${url}/readyz`)).headers.get('x-instance') === addressOf(port)
}

const target = '/api/notes'
const large = ' '.repeat(100_000)

/** Requests that change nothing. The large bodies do not arrive at once. */
const others: Sent[] = [
  { status: 400, method: 'POST', target, body: '{"id":"1"}' },
  { status: 400, method: 'POST', target, body: 'no JSON' },
  { status: 400, method: 'GET', target: `${target}/x` },
  { status: 401, method: 'POST', target, body: large, headers: { authorization: 'Bearer another' } },
  { status: 404, method: 'GET', target: `${target}/0` },
  { status: 404, method: 'DELETE', target: `${target}/0` },
  { status: 404, method: 'POST', target: '/nowhere', body: large },
  { status: 405, method: 'PUT', target, body: large },
  { status: 413, method: 'POST', target, body: large.repeat(10) }
]

async function loseDatabase (server: Postgres, url: string) {
  const ask = () => fetch(`${url}/api/notes`, { headers })
  await server.stop()
  for (let n = 0; n < 10; n++) {
    const response = await ask()
    equal(response.status, 503)
    ok(Number(response.headers.get('retry-after')) > 0)
    equal(typeof (await response.json() as { detail: string }).detail, 'string')
  }
  await server.run()
  await until(async () => (await ask()).ok)
}

function addressOf (port: number) {
  return `127.0.0.1:${port}`
}

/** Starts nginx with the configuration in compose.yaml, with other addresses, and its health check. */
async function startNginx (scope: Scope, instances: string[]) {
  const configured = /content: \|\n([^]+)$/.exec(readFileSync('compose.yaml', 'utf8'))?.[1] ?? ''
  const { nginx, port, log } = await startNginxWith(scope, (port, folder) => configured
    .replaceAll('$$', '$')
    .replace(/resolver .*/, `${ownPaths(folder)} add_header X-Instance $upstream_addr always;`)
    .replace(/server service:3000 resolve(.*)/, (_, more) => instances.map(at => `server ${at}${more}`).join('\n'))
    .replace('listen 80', `listen 127.0.0.1:${port}`))
  const url = `http://127.0.0.1:${port}`
  await until(() => {
    if (nginx.exitCode !== null) throw new Error(`nginx ended with ${nginx.exitCode}`)
    return isReady(url)
  })
  const stopping = new AbortController()
  scope.teardown(() => stopping.abort())
  let unready = 0
  checkHealth()
  return { url, removals, unready: () => unready }

  /** Requests the readiness of each instance. */
  async function checkHealth () {
    while (!stopping.signal.aborted) {
      for (let n = 0; n < 9; n++) if (!await isReady(url)) unready++
      await sleep(500)
    }
  }

  /** How often nginx has stopped sending requests to an instance. */
  function removals (instance: string) {
    const lines = readFileSync(log, 'utf8').split('\n')
    return lines.filter(line => line.includes('temporarily disabled') && line.includes(`//${instance}/readyz`)).length
  }
}
