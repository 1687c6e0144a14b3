import { equal, ok } from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { smallDisk } from '../support/disk.js'
import { until } from '../support/until.js'
import type { Postgres } from '../support/postgres.js'
import { startRedis } from '../support/redis.js'
import { ledger } from './ledger.js'
import { serve, type Scope } from './service.js'

/** `DATABASE_TIMEOUT` of the service, in milliseconds. */
const patience = 1000

/** Kills the service under load and starts it again; in every second round also the database server. */
export async function kills (scope: Scope, url: string, { rounds, crash }: { rounds: number, crash? (): Promise<void> }) {
  const account = ledger(scope, [503, 'dropped'])
  for (let round = 1; round <= rounds; round++) {
    scope.comment(`round ${round} of ${rounds}`)
    const service = await serveOn(scope, url)
    const enough = (account.answers[201] ?? 0) + 80
    const { stop } = account.write(service.url)
    await until(async () => (account.answers[201] ?? 0) >= enough)
    await sleep(Math.random() * 300)
    if (round % 2 === 0) await crash?.()
    service.process.kill('SIGKILL')
    await Promise.all([stop(), service.exit])
  }
  return { ...await account.compare((await serveOn(scope, url)).url), rounds }
}

/** Faults of a PostgreSQL server. */
export const troubles = {
  async 'is stopped' (server: Postgres, isNoticed: () => Promise<void>) {
    await server.stop()
    await isNoticed()
    await server.run()
  },
  async 'is killed' (server: Postgres, isNoticed: () => Promise<void>) {
    await server.stop('SIGKILL')
    await isNoticed()
    await server.run()
  },
  async 'is paused' (server: Postgres, isNoticed: () => Promise<void>) {
    server.signal('SIGSTOP')
    await isNoticed()
    server.signal('SIGCONT')
  },
  async 'cuts its connections' (server: Postgres) {
    for (let n = 0; n < 20; n++) {
      await server.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fastify-items-users'")
      await sleep(50)
    }
  }
}

/** Causes a fault of the database server under load. Responses are 503 in time, and then the service recovers. */
export async function trouble (scope: Scope, server: Postgres, happen: typeof troubles[keyof typeof troubles]) {
  const account = ledger(scope, [503])
  const { url } = await serveOn(scope, server.database())
  const { stop } = account.write(url)
  await until(async () => (account.answers[201] ?? 0) > 20)
  await happen(server, () => until(async () => (account.answers[503] ?? 0) > 20))
  const back = performance.now()
  await until(async () => (await fetch(`${url}/readyz`)).status === 200)
  const recovery = Math.round(performance.now() - back)
  const before = account.answers[201] ?? 0
  await until(async () => (account.answers[201] ?? 0) > before + 100)
  await stop()
  ok((account.answers[503] ?? 0) > 0, 'somebody has noticed')
  return { ...await account.compare(url), unavailable: account.answers[503] ?? 0, slowest: account.slowest(), recovery }
}

/** Fills the disk of a SQLite file: reads work, and writes work again when there is space. */
export async function fullDisk (scope: Scope) {
  const { folder, fill, free } = smallDisk(scope, 8)
  const account = ledger(scope, [503, 'dropped'], { name: 'x'.repeat(1000) })
  const service = await serveOn(scope, `sqlite:${folder}/items.db`)
  const { url } = service
  const { stop } = account.write(url)
  await until(async () => (account.answers[201] ?? 0) > 100)
  fill()
  await until(async () => (account.answers[503] ?? 0) > 100)
  for (const path of ['/api/users/1', '/api/users', '/api/items?limit=1', '/livez']) equal((await fetch(url + path)).status, 200, path)
  equal((await fetch(`${url}/readyz`)).status, 503)
  free()
  const before = account.answers[201] ?? 0
  await until(async () => (account.answers[201] ?? 0) > before + 100)
  service.process.kill('SIGKILL')
  await Promise.all([stop(), service.exit])
  const { url: again } = await serveOn(scope, `sqlite:${folder}/items.db`)
  return { ...await account.compare(again), refused: account.answers[503] ?? 0 }
}

/** Stops and pauses Redis: all requests are served. */
export async function redisGone (scope: Scope) {
  const redis = await startRedis(scope)
  const account = ledger(scope, [])
  const limit = 1_000_000
  const { url } = await serveOn(scope, 'memory', { RATE_LIMIT_MAX: String(limit), REDIS_URL: redis.url })
  const { stop } = account.write(url)
  const counted = async () => limit - Number((await fetch(`${url}/api/items`)).headers.get('x-ratelimit-remaining'))
  await until(async () => await counted() > 100)
  await redis.stop()
  await serves()
  await redis.run()
  await until(async () => await counted() > 100)
  redis.signal('SIGSTOP')
  await serves()
  redis.signal('SIGCONT')
  const before = await counted()
  await until(async () => await counted() > before + 100)
  await stop()
  return { ...await account.compare(url), slowest: account.slowest() }

  async function serves () {
    const before = account.answers[201] ?? 0
    await until(async () => (account.answers[201] ?? 0) > before + 20)
  }
}

function serveOn (scope: Scope, url: string, env: NodeJS.ProcessEnv = {}) {
  return serve(scope, { DATABASE_URL: url, DATABASE_TIMEOUT: String(patience), ...env })
}
