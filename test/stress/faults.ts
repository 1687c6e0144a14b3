import { equal } from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { smallDisk } from '../support/disk.js'
import { startPostgres, type Postgres } from '../support/postgres.js'
import { startRedis } from '../support/redis.js'
import { until } from '../support/until.js'
import { ledger, notesIn } from './ledger.js'
import { isReady, serve, type Scope } from './service.js'

// Each of these functions causes faults while clients write, and fails if an acknowledged write is lost or doubled.

/** Kills the service and starts it again; in every second round also the database server. */
export async function kills (scope: Scope, url: string, rounds: number, crash?: () => Promise<void>) {
  const env = { ...notesIn(scope), DATABASE_URL: url, DATABASE_TIMEOUT: '1000' }
  const account = ledger(scope, { tolerated: [503, 'dropped'] })
  for (let round = 1; round <= rounds; round++) {
    scope.comment(`round ${round} of ${rounds}`)
    const service = await serve(scope, env)
    const { stop } = account.write([service.url])
    await account.more(201, 80)
    await sleep(Math.random() * 300)
    if (round % 2 === 0) await crash?.()
    await Promise.all([service.kill(), stop()])
  }
  await account.compare((await serve(scope, env)).url)
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
    const ours = "application_name = 'fastify-items-users'"
    for (let n = 0; n < 20; n++) {
      await server.query(`select pg_terminate_backend(pid) from pg_stat_activity where ${ours}`)
      await sleep(50)
    }
  }
}

/** Causes a fault of the database server. Responses are 503, and then the service recovers. */
export async function trouble (scope: Scope, server: Postgres, what: keyof typeof troubles) {
  const account = ledger(scope, { tolerated: [503] })
  const env = { ...notesIn(scope), DATABASE_URL: server.database(), DATABASE_TIMEOUT: '1000' }
  const { url } = await serve(scope, env)
  const { stop } = account.write([url])
  await account.more(201, 20)
  const isNoticed = account.more(503, 20)
  await troubles[what](server, () => isNoticed)
  await isNoticed
  await until(() => isReady(url))
  await account.more(201, 100)
  await stop()
  await account.compare(url)
}

/** Three instances are used while one of them is killed, and the primary server fails over to its standby. */
export async function failover (scope: Scope) {
  const primary = await startPostgres(scope)
  if (!primary) throw new Error('PostgreSQL does not start')
  const standby = await primary.startStandby(scope)
  await primary.query("alter system set synchronous_standby_names = '*'")
  await primary.query('select pg_reload_conf()')
  const { port, switchTo } = await startSwitch(scope, primary.port)
  const DATABASE_URL = primary.url.replace(`:${primary.port}/`, `:${port}/`)
  const env = { ...notesIn(scope), DATABASE_URL, DATABASE_TIMEOUT: '5000' }
  const instances = await Promise.all([1, 2, 3].map(() => serve(scope, env)))
  const urls = instances.map(({ url }) => url)
  const account = ledger(scope, { tolerated: [503, 'dropped'] })
  const { stop } = account.write(urls)
  await account.more(201, 100)
  await instances[0]?.kill()
  await account.more(201, 50)
  await serve(scope, { ...env, PORT: instances[0]?.port })
  await account.more(201, 100)
  switchTo(standby.port)
  await primary.stop('SIGQUIT')
  await sleep(200)
  await standby.promote()
  for (const url of urls) await until(() => isReady(url))
  await account.more(201, 100)
  await stop()
  for (const url of urls) await account.compare(url)
}

/** A TCP proxy whose new connections can be switched to another port. */
async function startSwitch (scope: Scope, first: number) {
  let target = first
  const sockets = new Set<Socket>()
  const server = createServer(client => {
    const upstream = connect(target, '127.0.0.1')
    for (const [from, to] of [[client, upstream], [upstream, client]] as const) {
      sockets.add(from)
      from.on('error', () => {}).on('close', () => to.destroy()).pipe(to)
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  scope.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { port, switchTo (next: number) { target = next } }
}

/** An instance with a newer schema starts next to one with an older schema, which then does not write. */
export async function newerSchema (scope: Scope, server: Postgres) {
  const env = { DATABASE_URL: server.database() }
  const account = ledger(scope, { tolerated: [503] })
  const older = await serve(scope, { ...env, ...notesIn(scope) })
  const first = account.write([older.url])
  await account.more(201, 100)
  const newer = await serve(scope, { ...env, ...notesIn(scope, { due: { type: 'string' } }) })
  const second = account.write([older.url, newer.url])
  await account.more(503, 20)
  await account.more(201, 100)
  await Promise.all([first.stop(), second.stop()])
  await account.compare(newer.url)
}

/** Fills the disk of a SQLite file: reads work, and writes work again when there is space. */
export async function fullDisk (scope: Scope) {
  const { folder, fill, free } = smallDisk(scope, 8)
  const env = { ...notesIn(scope), DATABASE_URL: `sqlite:${folder}/notes.db`, DATABASE_TIMEOUT: '1000' }
  const account = ledger(scope, { tolerated: [503, 'dropped'], filler: 'x'.repeat(1000) })
  const service = await serve(scope, env)
  const { url } = service
  const { stop } = account.write([url])
  await account.more(201, 100)
  fill()
  await account.more(503, 100)
  for (const path of ['/api/users/1', '/api/users', '/api/notes?limit=1', '/livez']) {
    equal((await fetch(url + path)).status, 200, path)
  }
  await until(async () => (await fetch(`${url}/readyz`)).status === 503) // it is checked once a second
  free()
  await account.more(201, 100)
  await Promise.all([service.kill(), stop()])
  await account.compare((await serve(scope, env)).url)
}

/** Stops and pauses Redis: all requests are served. */
export async function redisGone (scope: Scope) {
  const redis = await startRedis(scope)
  const account = ledger(scope)
  const limit = 1_000_000
  const { url } = await serve(scope, { ...notesIn(scope), RATE_LIMIT_MAX: String(limit), REDIS_URL: redis.url })
  const { stop } = account.write([url])
  const remaining = async () => Number((await fetch(`${url}/api/items`)).headers.get('x-ratelimit-remaining'))
  const isCounted = () => until(async () => await remaining() < limit - 100)
  await isCounted()
  await redis.stop()
  await account.more(201, 20)
  await redis.run()
  await isCounted()
  redis.signal('SIGSTOP')
  await account.more(201, 20)
  redis.signal('SIGCONT')
  await account.more(201, 100)
  await stop()
  await account.compare(url)
}
