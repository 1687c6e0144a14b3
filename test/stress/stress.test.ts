import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import tap, { test, type Test } from 'tap'
import { onEveryEngine } from '../support/engines.js'
import { fullDisk, kills, redisGone, trouble, troubles } from './faults.js'
import { generated } from './generated.js'
import { history } from './history.js'
import { violationOf } from './linearizable.js'
import { previousRelease, rollingRestart } from './rolling.js'
import { serve, without } from './service.js'
import { soak } from './soak.js'
import { mangled, neverReads, slowClients } from './wire.js'
import { newFolder } from '../support/folder.js'
import { startPostgres, type Postgres } from '../support/postgres.js'

// The short form of what `npm run test:stress` does for long.

const postgres = await startPostgres(tap)

onEveryEngine((t, address, engine) => {
  t.test('generated requests get the responses of the document and of a model', async t => {
    const { url } = await serve(t, { DATABASE_URL: address() })
    const { requests, statuses } = await generated(url, { requests: 1000, holdsNul: engine === 'memory' })
    t.match(Object.keys(statuses), ['200', '201', '204', '400', '403', '404', '405'], `${requests} requests`)
  })

  t.test('memory, handles and timers do not grow under load', async t => {
    const { requests, heap, rss, handles, timers } = await soak(t, address(), { seconds: 1.5, looks: 6 })
    t.ok(requests > 100, `${requests} requests`)
    t.ok(heap < 1.2, `the heap is ${heap} times as large`)
    t.ok(rss < 1.3, `all memory is ${rss} times as large`)
    t.ok(handles <= 2 && timers <= 2, `${handles} handles and ${timers} timers more`)
  })
})

test('requests that arrive in pieces are answered in order, and corrupted ones do not affect others', async t => {
  const { url } = await serve(t)
  t.match(await mangled(url, { runs: 200 }), { connections: 200 })
})

test('a thousand slow clients do not slow down another one', async t => {
  t.match(await slowClients(t, { clients: 1000, seconds: 1 }), { clients: 1000 })
})

test('clients that do not read a long list use no memory for it, and others are served', async t => {
  t.match(await neverReads(t, { records: 2000, name: 'x'.repeat(10_000), readers: 10, seconds: 1 }), { readers: 10 })
})

test('on SQLite, acknowledged writes survive two kills of the service, exactly once', async t => {
  t.match(await kills(t, `sqlite:${newFolder(t)}/items.db`, { rounds: 2 }), { rounds: 2 })
})

onPostgres('acknowledged writes survive two kills of the service and one of the server, exactly once', async (t, server) => {
  t.match(await kills(t, server.database(), { rounds: 2, crash: server.crash }), { rounds: 2 })
})

for (const [what, happen] of Object.entries(troubles)) {
  onPostgres(`when the server ${what} under load, responses are 503 in time, nothing is lost, and the service recovers`, async (t, server) => {
    t.ok((await trouble(t, server, happen)).unavailable > 0)
  })
}

const mountable = spawnSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', tmpdir()]).status === 0

test('while the disk is full, writes get 503 and reads work; nothing is lost, and writes work again afterwards', { skip: !mountable && 'no file system can be mounted' }, async t => {
  t.ok((await fullDisk(t)).refused > 0)
})

test('while Redis is down or hangs, all requests are served', { skip: without('redis-server') }, async t => {
  t.ok((await redisGone(t)).created > 0)
})

onPostgres('a rolling upgrade of three instances behind nginx and haproxy fails no request and loses no record', async (t, server) => {
  const proxies = ['nginx', 'haproxy'] as const
  for (const proxy of proxies.filter(without)) t.pass(`behind ${proxy}`, { skip: without(proxy) })
  t.match(await rollingRestart(t, server, { behind: proxies.filter(proxy => !without(proxy)), rounds: 1, pause: 50, previous: previousRelease(t) }), { restarts: 3 })
}, without('nginx') && without('haproxy') && 'there is neither nginx nor haproxy')

test('what clients see during kills and a failover is possible with one list', { skip: !postgres && 'PostgreSQL does not start' }, async t => {
  t.match(await history(t, { operations: 60, clients: 5, kills: 1 }), { kills: 1 })
})

test('a history that is not possible with one list is found, and shortened', async t => {
  const append = { kind: 'append', id: 1, name: 'a', sent: 1, answered: 2 } as const
  const read = { kind: 'first', id: 1, sent: 3, answered: 4, result: 'a' } as const
  const lost = { kind: 'first', id: 1, sent: 5, answered: 6, result: undefined } as const
  const removal = { kind: 'removeFirst', id: 1, sent: 2, answered: Infinity } as const
  t.equal(violationOf([append, read]), undefined)
  t.equal(violationOf([append, read, lost, removal]), undefined, 'a removal without a response may take effect later')
  t.same(violationOf([append, read, lost, { ...read, sent: 7, answered: 8 }]), [append, lost])
  t.ok(violationOf([append, { ...append, name: 'b', sent: 3, answered: 4 }, { kind: 'all', id: 1, sent: 5, answered: 6, result: ['b', 'a'] }]))
})

/** Runs a test on the PostgreSQL server, if there is one. */
function onPostgres (name: string, run: (t: Test, server: Postgres) => Promise<void>, skip: string | false = false) {
  test(`on PostgreSQL, ${name}`, { skip: postgres ? skip : 'PostgreSQL does not start' }, async t => {
    if (postgres) await run(t, postgres)
  })
}
