import { randomInt } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { test } from 'tap'
import { onPostgres } from '../support/databases.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { without } from '../support/programs.js'
import { randomCollections } from './collections.js'
import { failover, kills, trouble, troubles } from './faults.js'
import { generated } from './generated.js'
import { rollingRestart } from './rolling.js'
import { seedOf, serve } from './service.js'
import { growth, mangled, neverReads } from './wire.js'

// The other files in this folder do the same for a shorter time.

onEveryEngine((t, address) => {
  t.test('for ten minutes, random requests get the responses that the document describes', async t => {
    const { url } = await serve(t, { DATABASE_URL: address(), DOCS: 'true' })
    t.comment(await generated(url, { requests: 100_000_000, minutes: 10 }))
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
      return { status: response.status, body: await response.json() }
    }, 40)
    t.same(problems, [], `TEST_SEED=${seed}`)
  })

  t.test('memory, handles and timers do not grow in three minutes under load', async t => {
    const { heap, rss, handles, timers } = await growth(t, address(), 180)
    t.ok(heap <= 1.1 && rss <= 1.2, `the heap is ${heap} times as large, and all memory ${rss} times`)
    t.ok(handles <= 0 && timers <= 0, `${handles} handles and ${timers} timers more`)
  })
})

test('20,000 connections with requests in pieces, and corrupted ones, do not affect others', async t => {
  const { url } = await serve(t)
  await mangled(url, 20_000)
})

test('next to clients that do not read a list of a million records, others are served', async t => {
  await neverReads(t, 1_000_000, 'somebody')
})

test('on SQLite, acknowledged writes survive thirty kills of the service, exactly once', async t => {
  await kills(t, `sqlite:${newFolder(t)}/notes.db`, 30)
})

onPostgres('acknowledged writes survive thirty kills of service and server, exactly once', async (t, server) => {
  await kills(t, server.database(), 30, server.crash)
})

for (const what of Object.keys(troubles) as (keyof typeof troubles)[]) {
  onPostgres(`while the server ${what}, nothing is lost, and the service recovers`, async (t, server) => {
    await trouble(t, server, what)
  })
}

onPostgres('in ten failovers to a standby, nothing is lost or doubled', async t => {
  for (let n = 0; n < 10; n++) await failover(t)
})

onPostgres('five rolling restarts behind the nginx of compose.yaml fail no request', async (t, server) => {
  const absent = without('nginx')
  if (absent) t.plan(0, absent)
  else await rollingRestart(t, server, 5)
})
