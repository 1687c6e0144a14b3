import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import { until } from '../support/until.js'
import { freePort, type Postgres } from '../support/postgres.js'
import { ledger, type Other } from './ledger.js'
import { proxies, type Proxy } from './proxies.js'
import { serve, type Scope } from './service.js'

interface Options {
  behind: (keyof typeof proxies)[]
  rounds: number
  /** Pause of a client between two users, in milliseconds. */
  pause?: number
  /** `SHUTDOWN_DELAY` in milliseconds; by default it lasts until the proxies have noticed, however slow the machine is. */
  delay?: number
}

const headers = { authorization: 'Bearer a-token' }

const untilSignal = 600_000

/** Makes `SHUTDOWN_DELAY` end with a signal. */
const script = `
  import { once } from 'node:events'
  import { syncBuiltinESMExports } from 'node:module'
  import timers from 'node:timers/promises'
  const { setTimeout } = timers
  timers.setTimeout = (ms, ...more) => ms === ${untilSignal} ? once(process, 'SIGCONT') : setTimeout(ms, ...more)
  syncBuiltinESMExports()`

/**
 * Restarts three instances in turn under a load with all status codes: every request gets its response, and what is
 * acknowledged is stored. Then the database is stopped: behind nginx, as compose.yaml configures it, that is 503.
 */
export async function rollingRestart (scope: Scope, server: Postgres, { behind, rounds, pause, delay = untilSignal }: Options) {
  const url = server.database()
  const env = { DATABASE_URL: url, DATABASE_TIMEOUT: '60000', SHUTDOWN_DELAY: String(delay), AUTH_TOKENS: 'a-token', BODY_LIMIT: '10000' }
  const ports = [await freePort(), await freePort(), await freePort()] as const
  const instances = await Promise.all(ports.map(port => start(port)))
  const account = ledger(scope, [], { headers })
  const loads = await Promise.all(behind.map(load))
  for (let round = 0; round < rounds; round++) {
    for (const [n, port] of ports.entries()) {
      scope.comment(`round ${round + 1} of ${rounds}, instance ${n + 1}`)
      for (const port of ports) await Promise.all(loads.map(({ proxy }) => until(() => isUsed(proxy, port))))
      await restart(n, port)
    }
  }
  await until(() => (account.answers[201] ?? 0) > 150)
  await Promise.all(loads.map(({ stop }) => stop()))
  for (const { proxy } of loads) {
    await account.compare(proxy.url)
    equal(proxy.unready(), 0, 'it was ready all the time')
  }
  const nginx = loads.find(({ name }) => name === 'nginx')
  if (nginx) await loseDatabase(server, nginx.proxy.url)
  return { restarts: rounds * ports.length, answers: account.answers, slowest: account.slowest() }

  function start (port: number) {
    return serve(scope, { ...env, PORT: String(port) }, delay === untilSignal ? { script } : {})
  }

  async function load (name: keyof typeof proxies) {
    const proxy = await proxies[name](scope, ports.map(addressOf))
    scope.comment(`${name} is at ${proxy.url}`)
    return { name, proxy, ...account.write(proxy.url, { clients: 8, pause, others: others(proxy.statusOfExpectation) }) }
  }

  async function restart (n: number, port: number) {
    const noticed = loads.map(async function notice ({ proxy, turn }) {
      const removals = proxy.removals(addressOf(port))
      await until(() => proxy.removals(addressOf(port)) > removals)
      await turn() // so that no request to the instance is in progress
    })
    instances[n]?.process.kill('SIGTERM')
    await Promise.all(noticed)
    if (delay === untilSignal) instances[n]?.process.kill('SIGCONT')
    deepStrictEqual(await instances[n]?.exit, [0, null])
    instances[n] = await start(port)
  }
}

/** Whether a proxy sends requests to an instance. */
async function isUsed ({ url }: Proxy, port: number) {
  return (await fetch(`${url}/readyz`)).headers.get('x-instance') === addressOf(port)
}

/** Requests that change nothing. The large bodies do not arrive at once. */
function others (statusOfExpectation: number): Other[] {
  const target = '/api/users'
  const large = ' '.repeat(100_000)
  return [
    { status: 400, method: 'POST', target, body: '{"id":"1"}' },
    { status: 400, method: 'POST', target, body: 'no JSON' },
    { status: 400, method: 'GET', target: `${target}/x` },
    { status: 401, method: 'POST', target, body: large, headers: { authorization: 'Bearer another' } },
    { status: 404, method: 'GET', target: `${target}/0` },
    { status: 404, method: 'DELETE', target: `${target}/0` },
    { status: 404, method: 'POST', target: '/nowhere', body: large },
    { status: 405, method: 'PUT', target, body: '{}' },
    { status: 413, method: 'POST', target, body: large.repeat(10) },
    { status: statusOfExpectation, method: 'GET', target: `${target}/1`, headers: { expect: 'the-impossible' } }
  ]
}

async function loseDatabase (server: Postgres, url: string) {
  const ask = () => fetch(`${url}/api/users`, { headers })
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
