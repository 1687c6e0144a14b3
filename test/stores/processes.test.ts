import { equal } from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { onDatabases, onPostgres } from '../support/databases.js'
import { checkedFetch as fetch } from '../support/document.js'
import { build } from '../support/helper.js'
import { start } from '../support/process.js'
import { until } from '../support/until.js'

const json = { 'content-type': 'application/json' }

onDatabases('after kills, all requests are retried with their keys and each record exists once', async (t, { url, crash }) => {
  const asked = new Map<number, string>()
  let next = 2
  let created = 0
  const request = (id: number) => ({ headers: { ...json, 'idempotency-key': String(asked.get(id)) }, body: JSON.stringify({ id, name: `number ${id}` }) })

  for (let round = 1; round <= 2; round++) {
    const server = start(t, { DATABASE_URL: url }, { built: true })
    const api = `${await server.url}/api/users`
    const clients = Array.from({ length: 8 }, async () => {
      while (!server.process.killed) {
        const id = next++
        asked.set(id, `key-${id}`)
        const { status } = await fetch(api, { method: 'POST', ...request(id) }).catch(() => ({ status: 0 }))
        if (status === 201) created++
        else await sleep(20)
      }
    })
    const enough = created + 20
    await until(async () => created >= enough)
    await sleep(Math.random() * 100)
    if (round % 2 === 0) await crash()
    server.process.kill('SIGKILL')
    await Promise.all([...clients, server.exit])
  }

  const app = build(t, { DATABASE_URL: url })
  const idsOf = async () => (await app.inject('/api/users')).json().map(({ id }: { id: number }) => id)
  const found = (await idsOf()).length - 1
  for (const id of asked.keys()) equal((await app.inject({ method: 'POST', url: '/api/users', ...request(id) })).statusCode, 201)
  t.ok(found >= 40, `${found} of ${asked.size} were there before they were sent again`)
  t.same((await idsOf()).sort((a: number, b: number) => a - b), [1, ...asked.keys()])
})

onPostgres('four instances that start at the same time create the tables once, and what one acknowledges, the others return at once', async (t, server) => {
  const url = server.database()
  const servers = Array.from({ length: 4 }, (_, n) =>
    start(t, { DATABASE_URL: n % 2 ? url : `${url}%20-cdefault_transaction_isolation%3Dserializable` }, { built: true }))
  const urls = await Promise.all(servers.map(server => server.url))
  t.same(await fetch(`${urls[0]}/api/users`).then(response => response.json()), [{ id: 1, name: 'Ada' }])
  t.same(await server.query("select name, version from collections where name in ('items', 'users') order by name", url), [{ name: 'items', version: 1 }, { name: 'users', version: 1 }])

  for (let id = 100; id < 120; id++) {
    const [one, ...others] = [0, 1, 2, 3].map(n => `${urls[(id + n) % 4]}/api/users`)
    t.equal((await fetch(String(one), { method: 'POST', headers: json, body: `{"id":${id},"name":"x"}` })).status, 201)
    for (const other of others) {
      t.equal((await fetch(`${other}/${id}`)).status, 200)
      t.equal((await fetch(other).then(response => response.json()) as { id: number }[]).at(-1)?.id, id)
    }
    if (id % 2) {
      t.equal((await fetch(`${others[0]}/${id}`, { method: 'DELETE' })).status, 204)
      t.equal((await fetch(`${one}/${id}`)).status, 404)
    }
  }
  const twins = Array.from({ length: 30 }, (_, n) => fetch(`${urls[n % 4]}/api/users`, { method: 'POST', headers: json, body: '{"id":7,"name":"twin"}' }))
  await Promise.all(twins)
  const removals = await Promise.all(Array.from({ length: 40 }, (_, n) => fetch(`${urls[n % 4]}/api/users/7`, { method: 'DELETE' })))
  t.equal(removals.filter(({ status }) => status === 204).length, 30, 'each removal removes one')
  t.equal(removals.filter(({ status }) => status === 404).length, 10)

  t.equal((await fetch(`${urls[0]}/api/users/1`, { method: 'DELETE' })).status, 204)
  for (const server of servers) server.process.kill('SIGTERM')
  for (const server of servers) t.same(await server.exit, [0, null])
  const app = build(t, { DATABASE_URL: url })
  const left = Array.from({ length: 10 }, (_, n) => ({ id: 100 + 2 * n, name: 'x' }))
  t.same((await app.inject('/api/users')).json(), left, 'what was deleted is not created again')
  t.same((await app.inject('/api/items')).json(), [{ id: 1, name: 'Lamp', price: 42.5 }])
})
