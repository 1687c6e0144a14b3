import { test } from 'tap'
import { onPostgres } from '../support/databases.js'
import { noSmallDisk } from '../support/disk.js'
import { newFolder } from '../support/folder.js'
import { without } from '../support/programs.js'
import { failover, fullDisk, kills, newerSchema, redisGone, trouble } from './faults.js'
import { rollingRestart } from './rolling.js'

test('on SQLite, acknowledged writes survive two kills of the service, exactly once', async t => {
  await kills(t, `sqlite:${newFolder(t)}/notes.db`, 2)
})

onPostgres('acknowledged writes survive kills of the service and the server, exactly once', async (t, server) => {
  await kills(t, server.database(), 2, server.crash)
})

for (const what of ['is killed', 'is paused'] as const) {
  onPostgres(`while the server ${what}, responses are 503, and nothing is lost`, async (t, server) => {
    await trouble(t, server, what)
  })
}

onPostgres('a killed instance and a failover to a standby lose and double nothing', async t => {
  await failover(t)
})

onPostgres('next to an instance with a newer schema, an older one does not write', async (t, server) => {
  await newerSchema(t, server)
})

test('while the disk is full, writes get 503 and reads work', { skip: noSmallDisk }, async t => {
  await fullDisk(t)
})

test('while Redis is down or hangs, all requests are served', { skip: without('redis-server') }, async t => {
  await redisGone(t)
})

onPostgres('a rolling restart behind the nginx of compose.yaml fails no request', async (t, server) => {
  const absent = without('nginx')
  if (absent) t.plan(0, absent)
  else await rollingRestart(t, server, 1)
})
