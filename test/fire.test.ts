import { spawnSync } from 'node:child_process'
import tap, { test } from 'tap'
import { onEveryEngine } from './engines.js'
import { fullDisk, kills, redisGone, trouble, troubles } from './fire/faults.js'
import { generated } from './fire/generated.js'
import { rollingRestart } from './fire/rolling.js'
import { serve } from './fire/service.js'
import { soak } from './fire/soak.js'
import { mangled, neverReads, slowClients } from './fire/wire.js'
import { newFolder } from './folder.js'
import { startPostgres } from './postgres.js'

// The short form of what `npm run fire` does for long.

const postgres = await startPostgres(tap)
const withoutPostgres = { skip: !postgres && 'PostgreSQL does not start' }

onEveryEngine((t, address, engine) => {
  t.test('generated requests are answered as the document says, and leave what a model has', async t => {
    const { url } = await serve(t, { DATABASE_URL: address() })
    const { requests, statuses } = await generated(url, { requests: 1500, holdsNul: engine === 'memory' })
    t.match(Object.keys(statuses), ['200', '201', '204', '400', '404', '405'], `${requests} requests`)
  })

  t.test('under load, neither memory nor handles nor timers grow', async t => {
    const { requests, heap, rss, handles, timers } = await soak(t, address(), { seconds: 3, looks: 6 })
    t.ok(requests > 100, `${requests} requests`)
    t.ok(heap < 1.2, `the heap is ${heap} times as large`)
    t.ok(rss < 1.3, `all memory is ${rss} times as large`)
    t.ok(handles <= 2 && timers <= 2, `${handles} handles and ${timers} timers more`)
  })
})

test('requests that come in pieces are answered in order, and harm that they come to on their way is theirs alone', async t => {
  const { url } = await serve(t)
  t.match(await mangled(url, { runs: 500 }), { connections: 500 })
})

test('a thousand slow clients do not slow down another one', async t => {
  const { alone, beside } = await slowClients(t, { clients: 1000, seconds: 2 })
  t.ok(beside < 50 + 3 * alone, `99 of 100 requests take ${beside} ms, and ${alone} ms without them`)
})

test('clients that do not read a long list hold no copy of it, and others are served', async t => {
  const { megabytes, alone, beside } = await neverReads(t, { records: 20_000, name: 'x'.repeat(1000), readers: 10 })
  t.ok(megabytes < 20, `${megabytes} MB more`)
  t.ok(beside < 50 + 3 * alone, `99 of 100 requests take ${beside} ms, and ${alone} ms without them`)
})

test('on SQLite, what is acknowledged outlives ten kills of the service, once', async t => {
  const { created } = await kills(t, `sqlite:${newFolder(t)}/items.db`, { rounds: 10 })
  t.ok(created > 100, `${created} users`)
})

test('on PostgreSQL, what is acknowledged outlives ten kills of the service and five of the server, once', withoutPostgres, async t => {
  if (!postgres) return
  const { created } = await kills(t, postgres.database(), { rounds: 10, crash: postgres.crash })
  t.ok(created > 100, `${created} users`)
})

for (const [name, happen] of Object.entries(troubles)) {
  test(`when PostgreSQL ${name} under load, answers are 503 in time, nothing is lost, and all is well again`, withoutPostgres, async t => {
    if (!postgres) return
    const { unavailable } = await trouble(t, postgres, happen)
    t.ok(unavailable > 0, `${unavailable} answers were 503`)
  })
}

const mounts = spawnSync('unshare', ['--mount', 'true']).status === 0

test('while the disk is full, writes are 503 and reads go on; nothing is lost, and with room again, writes go on', { skip: !mounts && 'no file system can be mounted' }, async t => {
  const { refused } = await fullDisk(t)
  t.ok(refused > 0, `${refused} writes were refused`)
})

const has = (program: string) => spawnSync(program, ['-v']).error === undefined || `there is no ${program}`

test('while Redis is gone or hangs, everybody is served', { skip: has('redis-server') !== true && has('redis-server') }, async t => {
  const { created } = await redisGone(t)
  t.ok(created > 100, `${created} users`)
})

test('three instances behind nginx are restarted in turn, and not one request fails', { skip: postgres ? has('nginx') !== true && has('nginx') : 'PostgreSQL does not start' }, async t => {
  if (!postgres) return
  const { requests, restarts } = await rollingRestart(t, postgres, { rounds: 1 })
  t.ok(requests > 1000, `${requests} requests during ${restarts} restarts`)
})
