import { randomInt } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { test } from 'tap'
import { onPostgres } from '../support/databases.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { without } from '../support/programs.js'
import { clusterFault, clusterFaults } from './cluster.js'
import { randomCollections } from './collections.js'
import { kills, trouble, troubles } from './faults.js'
import { generated } from './generated.js'
import { history } from './history.js'
import { withoutCluster } from './patroni.js'
import { rollingRestart } from './rolling.js'
import { seedOf } from './seed.js'
import { serve } from './service.js'
import { soak } from './soak.js'
import { mangled, neverReads, slowClients } from './wire.js'

// The other files in this folder do the same for a shorter time.

onEveryEngine((t, address) => {
  t.test('100,000 generated requests get the responses of the document and of a model', async t => {
    const { url } = await serve(t, { DATABASE_URL: address(), DOCS: 'true' })
    const { statuses, seed } = await generated(url, { requests: 100_000 })
    t.comment(`TEST_SEED=${seed}`, statuses)
  })

  t.test('records of 400 random schemas are accepted and rejected as by Ajv', async t => {
    const { seed = randomInt(2 ** 31) } = seedOf()
    const random = randomCollections(400, seed)
    const file = `${newFolder(t)}/collections.json`
    writeFileSync(file, random.file)
    const { url } = await serve(t, { DATABASE_URL: address(), COLLECTIONS_FILE: file })
    const { problems } = await random.check(async (method, path, body) => {
      const headers = { 'content-type': 'application/json' }
      const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) })
      const text = await response.text()
      return { status: response.status, body: text && JSON.parse(text) }
    }, 40)
    t.same(problems, [], `TEST_SEED=${seed}`)
  })

  t.test('memory, latency, handles and timers do not grow in three minutes under load', async t => {
    const { share, heap, rss, median, p99, handles, timers } = await soak(t, address(), { seconds: 180, looks: 18 })
    t.comment({ share, heap, rss, median, p99, handles, timers })
    t.ok(share >= 0.95, 'the load was served')
    t.ok(heap <= 1.1 && rss <= 1.1, 'memory')
    t.ok(median <= 1.5 && p99 <= 3, 'latency')
    t.ok(handles <= 0 && timers <= 0, 'handles and timers')
  })
})

test('20,000 connections with requests in pieces, and corrupted ones, do not affect others', async t => {
  const { url } = await serve(t)
  t.match(await mangled(url, { runs: 20_000 }), { connections: 20_000 })
})

test('next to a thousand clients with slow headers and bodies, others are served', async t => {
  const { slowdown } = await slowClients(t, { clients: 1000, requests: 5000, toTheEnd: true })
  t.ok(slowdown < 5, `another client is served ${slowdown} times as slowly`)
})

test('next to clients that do not read a list of a million records, others are served', async t => {
  const { slowdown } = await neverReads(t, { records: 1_000_000, name: 'somebody', readers: 10, requests: 1000 })
  t.ok(slowdown < 5, `another client is served ${slowdown} times as slowly`)
})

test('on SQLite, acknowledged writes survive thirty kills of the service, exactly once', async t => {
  t.match(await kills(t, `sqlite:${newFolder(t)}/items.db`, { rounds: 30 }), { rounds: 30 })
})

onPostgres('acknowledged writes survive thirty kills of the service and of the server, exactly once', async (t, server) => {
  t.match(await kills(t, server.database(), { rounds: 30, crash: server.crash }), { rounds: 30 })
})

for (const [what, happen] of Object.entries(troubles)) {
  onPostgres(`when the server ${what} under load, nothing is lost, and the service recovers`, async (t, server) => {
    t.ok((await trouble(t, server, happen)).unavailable > 0)
  })
}

for (const proxy of ['nginx', 'haproxy'] as const) {
  onPostgres(`five rolling restarts behind ${proxy} fail no request and lose no record`, async (t, server) => {
    const absent = without(proxy)
    if (absent) return t.plan(0, absent)
    t.match(await rollingRestart(t, server, { behind: [proxy], rounds: 5, delay: 3000 }), { restarts: 15 })
  })
}

onPostgres('what clients see during ten kills and a failover is possible with one list', async t => {
  t.match(await history(t, { operations: 300, clients: 6, kills: 10 }), { kills: 10 })
})

for (const [what, happen] of Object.entries(clusterFaults)) {
  test(`while the primary of a Patroni cluster ${what}, no acknowledged write is lost`, { skip: withoutCluster() }, async t => {
    t.ok((await clusterFault(t, happen)).created > 0)
  })
}
