import { Redis } from 'ioredis'
import { test } from 'tap'
import { countingTests } from '../guards/counting.js'
import { build } from '../support/helper.js'
import { without } from '../support/programs.js'
import { startRedis } from '../support/redis.js'
import { until } from '../support/until.js'
import { redisGone } from '../stress/faults.js'

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
  const env = { AUTH_TOKENS: 'one', RATE_LIMIT_MAX: '4', RATE_LIMIT_WINDOW: '3600000', REDIS_URL: redis.url, LOG_LEVEL: 'info' }
  const apps = [1, 2].map(() => build(t, env, { write: line => lines.push(line) }))
  const statuses = async (times: number) => {
    const answers = []
    for (let n = 0; n < times; n++) answers.push((await apps[n % 2]?.inject({ url: '/api/items', headers: { authorization: 'Bearer one' } }))?.statusCode)
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

test('while Redis is down or hangs, all requests are served', { skip }, async t => {
  t.ok((await redisGone(t)).created > 0)
})
