import { Redis } from 'ioredis'
import { test } from 'tap'
import { countingTests } from '../guards/counting.js'
import { startRedis } from '../support/redis.js'
import { until } from '../support/until.js'
import { spawnSync } from 'node:child_process'
import { Item } from '../../schemas/item.js'
import { build, followed } from '../support/helper.js'
import { startPgBouncer, startPostgres } from '../support/postgres.js'
import { openStore } from '../support/stores.js'
import { without } from '../support/programs.js'

const skip = without('redis-server')

// A busy machine takes longer than the timeouts of the service.
const timeouts = { connectTimeout: 60_000, commandTimeout: 60_000, socketTimeout: 60_000 }
const clients: Redis[] = []
const { connect } = Redis.prototype
Redis.prototype.connect = function (callback) {
  clients.push(Object.assign(this, { options: { ...this.options, ...timeouts } }))
  return connect.call(this, callback)
}

test('in Redis', { skip }, async t => {
  const { url } = await startRedis(t)
  let database = 0
  countingTests(t, () => `${url}/${database++}`, [{ instances: 1, connections: 1 }, { instances: 2, connections: 20 }])
})

test('with Redis, all instances share the limit; without it, they keep serving', { skip }, async t => {
  const redis = await startRedis(t)
  const lines: string[] = []
  const limit = { RATE_LIMIT_MAX: '4', RATE_LIMIT_WINDOW: '3600000', REDIS_URL: redis.url }
  const env = { AUTH_TOKENS: 'one', LOG_LEVEL: 'info', ...limit }
  const apps = [1, 2].map(() => build(t, env, { write: line => lines.push(line) }))
  const statuses = async (times: number) => {
    const answers = []
    for (let n = 0; n < times; n++) {
      const headers = { authorization: 'Bearer one' }
      answers.push((await apps[n % 2]?.inject({ url: '/api/items', headers }))?.statusCode)
    }
    return answers
  }
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  await redis.stop()
  t.same(await statuses(6), Array(6).fill(200))
  await until(() => lines.join().split('Redis is disconnected').length >= 3)
  await redis.run()
  await until(() => lines.join().split('Redis is connected').length >= 5)
  t.same(await statuses(6), [200, 200, 200, 200, 429, 429])
  for (const client of clients) Object.assign(client.options, { commandTimeout: 500, socketTimeout: 500 })
  redis.signal('SIGSTOP')
  t.same(await statuses(4), Array(4).fill(200))
  await until(() => lines.join().split('Redis is disconnected').length >= 5)
  redis.signal('SIGCONT')
  t.notMatch(lines.join(), 'Bearer')
})

const item = (id: number) => ({ id, name: `number ${id}`, price: 1.5 })

/** Older versions forget prepared statements in transaction mode. */
const oldest = 21

for (const mode of ['session', 'transaction']) {
  const isTooOld = mode === 'transaction' && minorVersion() < oldest && `PgBouncer is older than 1.${oldest}`
  test(`PgBouncer in ${mode} mode works`, { skip: without('pgbouncer') || isTooOld }, async t => {
    const server = await startPostgres(t)
    if (!server) return t.plan(0, 'PostgreSQL does not start')
    const bouncer = await startPgBouncer(t, server, mode)
    for (const ID_SOURCE of ['client', 'server']) {
      await server.query(`create database bounced_${ID_SOURCE}`)
      const env = { DATABASE_URL: bouncer.url(`bounced_${ID_SOURCE}`), ID_SOURCE, DATABASE_POOL_SIZE: '4' }
      const apps = [1, 2].map(() => build(t, env))
      const send = (n: number, headers = {}, payload: object = item(n)) =>
        (apps[n % 2] ?? build(t)).inject({ method: 'POST', url: '/api/items', payload, headers })
      const created = await Promise.all(Array.from({ length: 200 }, (_, n) => send(n)))
      t.ok(created.every(({ statusCode }) => statusCode === 201))
      const first = await send(1, { 'idempotency-key': ID_SOURCE })
      t.equal((await send(2, { 'idempotency-key': ID_SOURCE }, item(1))).body, first.body)
      t.equal((await send(3, { 'idempotency-key': ID_SOURCE })).statusCode, 422)
      const [app] = apps as [ReturnType<typeof build>]
      for (const url of ['/api/items/1', '/readyz', '/api/items']) t.equal((await app.inject(url)).statusCode, 200)
      const user = { id: 7, name: 'Grace' }
      t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: user })).statusCode, 201)
      t.equal((await app.inject({ method: 'DELETE', url: '/api/users/1' })).statusCode, 204)
      let pages = 0
      for (let url: string | undefined = '/api/items?limit=50'; url; pages++) {
        const page: Awaited<ReturnType<typeof app.inject>> = await app.inject(url)
        t.equal(page.statusCode, 200)
        const [, next] = /<(.+)>/.exec(String(page.headers.link)) ?? []
        url = next && followed(next, '/api/items')
      }
      t.ok(pages >= 4)
    }
    const store = await openStore<Item>(t, bouncer.url('bounced_client'), { name: 'things', schema: Item, seed: [] })
    await Promise.all(Array.from({ length: 3000 }, (_, n) => store.append(item(n))))
    t.equal((await store.select({})).records.length, 3000)
  })
}

/** The second number of the version, such as 18 in "PgBouncer 1.18.0". */
function minorVersion () {
  const { stdout = '' } = spawnSync('pgbouncer', ['--version'], { encoding: 'utf8' })
  return Number(/ \d+\.(\d+)/.exec(String(stdout))?.[1])
}
