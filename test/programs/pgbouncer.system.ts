import { spawnSync } from 'node:child_process'
import { test } from 'tap'
import { Item } from '../../schemas/item.js'
import { build, followed } from '../support/helper.js'
import { startPgBouncer, startPostgres } from '../support/postgres.js'
import { without } from '../support/programs.js'
import { openStore } from '../support/stores.js'

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
      const apps = [1, 2].map(() => build(t, { DATABASE_URL: bouncer.url(`bounced_${ID_SOURCE}`), ID_SOURCE, DATABASE_POOL_SIZE: '4' }))
      const send = (n: number, headers = {}, payload: object = item(n)) =>
        (apps[n % 2] ?? build(t)).inject({ method: 'POST', url: '/api/items', payload, headers })
      const created = await Promise.all(Array.from({ length: 200 }, (_, n) => send(n)))
      t.ok(created.every(({ statusCode }) => statusCode === 201))
      const first = await send(1, { 'idempotency-key': ID_SOURCE })
      t.equal((await send(2, { 'idempotency-key': ID_SOURCE }, item(1))).body, first.body)
      t.equal((await send(3, { 'idempotency-key': ID_SOURCE })).statusCode, 422)
      const [app] = apps as [ReturnType<typeof build>]
      for (const url of ['/api/items/1', '/readyz', '/api/items']) t.equal((await app.inject(url)).statusCode, 200)
      t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name: 'Grace' } })).statusCode, 201)
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
