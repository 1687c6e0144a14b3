import { test } from 'tap'
import { onPostgres } from '../support/databases.js'
import { noSmallDisk } from '../support/disk.js'
import { newFolder } from '../support/folder.js'
import { fullDisk, kills, trouble, troubles } from './faults.js'

test('on SQLite, acknowledged writes survive two kills of the service, exactly once', async t => {
  t.match(await kills(t, `sqlite:${newFolder(t)}/items.db`, { rounds: 2 }), { rounds: 2 })
})

onPostgres('acknowledged writes survive two kills of the service and one of the server, exactly once', async (t, server) => {
  t.match(await kills(t, server.database(), { rounds: 2, crash: server.crash }), { rounds: 2 })
})

for (const what of ['is killed', 'is paused'] as const) {
  onPostgres(`when the server ${what} under load, responses are 503 in time, nothing is lost, and the service recovers`, async (t, server) => {
    t.ok((await trouble(t, server, troubles[what])).unavailable > 0)
  })
}

test('while the disk is full, writes get 503 and reads work; nothing is lost, and writes work again afterwards', { skip: noSmallDisk }, async t => {
  t.ok((await fullDisk(t)).refused > 0)
})
