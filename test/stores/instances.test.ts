import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { test, type Test } from 'tap'
import { definitions } from '../../plugins/definitions.js'
import { checkDefinition, type Definition } from '../../plugins/definition/definition.js'
import { onPostgres } from '../support/databases.js'
import { newFolder } from '../support/folder.js'
import { postgresqlSql } from '../support/postgresql-sql.js'
import { all, define, openStores, outcomes, textOf, type Any, type AnyDefinition } from '../support/stores.js'

const string = { type: 'string' }
const integer = { type: 'integer' }
const members = define('members', { email: string }, [], { unique: ['email'] })
const loans = define('loans', { member: integer, note: string }, ['member'], { references: { member: 'members' } })
const record = (fields: object) => fields as Any
const times = <R>(count: number, make: (n: number) => R) => Array.from({ length: count }, (_, n) => make(n))

async function instances (t: Test, url: string, count: number, definitions: AnyDefinition[], options = {}) {
  const opened = []
  for (let n = 0; n < count; n++) opened.push(await openStores(t, url, definitions, options))
  return opened
}

/** Locks a table on another connection until the returned function is called. */
async function hold (t: Test, url: string, sql: string) {
  const client = new pg.Client(url)
  await client.connect()
  t.teardown(() => client.end())
  await client.query(`begin; ${sql}`)
  return () => client.query('commit')
}

/** Repeats a call for as long as it is unavailable: a write that may have been stored has a key. */
async function repeat<R> (call: () => Promise<R>): Promise<R> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ERR_STORE_UNAVAILABLE') throw error
      await sleep(5)
    }
  }
}

test('deploy/postgresql.sql has what the service creates', async t => {
  if (process.env.UPDATE) writeFileSync('deploy/postgresql.sql', postgresqlSql())
  t.equal(readFileSync('deploy/postgresql.sql', 'utf8'), postgresqlSql(), 'UPDATE=true writes it')
})

onPostgres('a reader that follows the pages misses nothing while four instances write', async (t, server) => {
  const writers = await instances(t, server.database(), 4, [loans, members])
  await writers[0]?.store('members').append(record({}))
  const end = Date.now() + 1500
  const written: number[] = []
  const seen: number[] = []
  const write = async ({ store }: typeof writers[0]) => {
    while (Date.now() < end) {
      const json = await store('loans').append(record({ member: 1 }))
      written.push(JSON.parse(json).id)
    }
  }
  const follow = async ({ store }: typeof writers[0]) => {
    let after: string | undefined
    for (let isLast = false; !isLast;) {
      isLast = Date.now() > end + 500
      const page = await store('loans').select({ limit: 100, after })
      const found: Any[] = JSON.parse(await textOf(page))
      seen.push(...found.map(({ id }) => id))
      after = page.next ?? (found.length > 0 ? Buffer.from(String(found.at(-1)?.id)).toString('base64url') : after)
    }
  }
  await Promise.all([
    ...writers.flatMap(writer => times(4, () => write(writer))), follow(writers[0] as typeof writers[0])
  ])
  t.ok(written.length > 100, `${written.length} records`)
  t.equal(new Set(written).size, written.length, 'no two records have one id')
  t.same(seen, [...written].sort((one, other) => one - other))
})

onPostgres('four instances write two collections without a deadlock or a dangling reference', async (t, server) => {
  const four = await instances(t, server.database(), 4, [loans, members])
  const end = Date.now() + 2000
  const codes = new Map<string, number>()
  let seed = 1
  const random = (below: number) => (seed = seed * 48271 % 2147483647) % below
  const calls = ({ store }: typeof four[0]) => [
    () => store('members').append(record({ email: String(random(50)) })),
    () => store('loans').append(record({ member: random(30) })),
    () => store('loans').append(times(3, () => record({ member: random(30) }))),
    () => store('members').change(random(30), current => record({ ...current, email: String(random(50)) })),
    () => store('loans').change(random(60), current => record({ ...current, member: random(30) })),
    () => store('members').change(random(30), () => undefined),
    () => store('loans').change(random(60), () => undefined)
  ]
  await Promise.all(four.flatMap(instance => times(8, async () => {
    while (Date.now() < end) {
      const [outcome] = await outcomes([calls(instance)[random(7)] as () => unknown])
      const code = typeof outcome === 'string' ? outcome.replace(/ .*/, '') : 'ok'
      codes.set(code, (codes.get(code) ?? 0) + 1)
    }
  })))
  t.comment(JSON.stringify([...codes]))
  t.same([...codes.keys()].filter(code => code !== 'ok' && code !== 'ERR_CONFLICT'), [])
  t.ok(Number(codes.get('ok')) > 100)
  const [first] = four as [typeof four[0]]
  const ids = new Set((await all(first.store('members'))).map(({ id }) => id))
  t.ok((await all(first.store('loans'))).every(({ member }) => ids.has(Number(member))))
  const emails = (await all(first.store('members'))).map(({ email }) => email)
  t.equal(new Set(emails).size, emails.length)
})

onPostgres('a lock of another program makes one collection unavailable, and others go on', async (t, server) => {
  const url = server.database()
  const { store, engine } = await openStores(t, url, [members, define('notes', { text: string })],
    { timeout: 1000, poolSize: 4 })
  await store('notes').append(record({ text: 'a' }))
  const release = await hold(t, url, 'lock table members in access exclusive mode')
  const calls = [
    () => store('members').first(1),
    () => store('members').append(record({})),
    () => store('members').select({})
  ]
  const blocked = outcomes(times(4, () => calls).flat())
  await sleep(100)
  t.equal(JSON.parse(await store('notes').append(record({ text: 'b' }))).id, 2)
  t.equal(await store('notes').first(1), '{"id":1,"text":"a"}')
  await engine.check()
  t.same(new Set(await blocked), new Set(['ERR_STORE_UNAVAILABLE']))
  await release()
  for (let n = 0; n < 50 && (await outcomes([() =>
    store('members').append(record({}))]))[0] === 'ERR_STORE_UNAVAILABLE'; n++) {
    await sleep(50)
  }
  t.ok(await store('members').append(record({})))
})

onPostgres('an older release writes nothing any more, also what waited during the change', async (t, server) => {
  const url = server.database()
  const older = await openStores(t, url, [members])
  await older.store('members').append(record({ email: 'a' }))
  const newMembers = define('members', { email: string, level: { ...integer, default: 1 } }, ['level'],
    { unique: ['email'] })

  // The writes of the older release wait for the row, and so does the change of the schema.
  const release = await hold(t, url,
    "select from collections where name = 'members' for update; select from members for update")
  const waiting = outcomes([
    () => older.store('members').append(record({ email: 'b' })),
    () => older.store('members').change(1, () => record({ id: 1, email: 'c' }))
  ])
  await sleep(200)
  const newer = openStores(t, url, [newMembers])
  await sleep(300)
  await release()
  const { store } = await newer
  const late = await outcomes(times(5,
    n =>
      () =>
        n % 2
          ? older.store('members').append(record({ email: `late ${n}` }))
          : older.store('members').change(1, () => undefined)))
  t.comment(JSON.stringify([await waiting, late]))
  t.same(new Set(late), new Set(['ERR_STORE_UNAVAILABLE']))
  await t.rejects(async () => older.engine.check(), { code: 'ERR_STORE_UNAVAILABLE' })
  const stored = await all(store('members'))
  t.ok(stored.every(({ level }) => level === 1), JSON.stringify(stored))
  t.same(await all(older.store('members')), stored, 'reads go on')
  await store('members').append(record({ email: 'new', level: 2 }))
})

onPostgres('an older release is unavailable for a filter that the newer one has removed', async (t, server) => {
  const url = server.database()
  const older = await openStores(t, url, [define('members', { email: string }, [], { filters: ['email'] })])
  await older.store('members').append(record({ email: 'a' }))
  await openStores(t, url, [define('members', { email: string })])
  const read = async () => older.store('members').select({ where: { email: 'a' } } as object)
  await t.rejects(read, { code: 'ERR_STORE_UNAVAILABLE' })
  await t.rejects(async () => older.store('members').change(1, () => undefined), { code: 'ERR_STORE_UNAVAILABLE' })
  t.same(await all(older.store('members')), [{ id: 1, email: 'a' }])
})

test('after the service has closed, a SQLite file can be copied', async t => {
  const file = `${newFolder(t)}/items.db`
  const first = await openStores(t, `sqlite:${file}`, [members])
  await first.store('members').append(times(1000, n => record({ email: `m${n}` })))
  await first.close()
  copyFileSync(file, `${file}.copy`)
  const { store } = await openStores(t, `sqlite:${file}.copy`, [members])
  t.equal(await store('members').count({}), 1000)
})

onPostgres('connections that end do not lose or double acknowledged writes', async (t, server) => {
  const url = server.database()
  const { store } = await openStores(t, url, [members])
  const acknowledged: string[] = []
  const end = new AbortController()
  const writing = Promise.all(times(8, async n => {
    for (let m = 0; !end.signal.aborted; m++) {
      const email = `${n} ${m}`
      await repeat(async () => store('members').append(record({ email }), { key: email, digest: '' }))
      acknowledged.push(email)
    }
  }))
  const ofService = "from pg_stat_activity where application_name = 'fastify-items-users'"
  for (let n = 0; n < 10; n++) {
    await sleep(100)
    await server.query(`select pg_terminate_backend(pid) ${ofService}`, url)
  }
  end.abort()
  await writing
  const stored = await repeat(() => all(store('members')))
  t.same(stored.map(({ email }) => email).sort(), acknowledged.sort())
})

onPostgres('a server that crashes is unavailable, and used again when it is back', async (t, server) => {
  const { store, engine } = await openStores(t, server.database(), [members], { timeout: 3000 })
  await store('members').append(record({ email: 'a' }))
  await server.stop('SIGQUIT')
  t.same(new Set(await outcomes([
    () => store('members').append(record({})), () => store('members').first(1), () => engine.check()
  ])), new Set(['ERR_STORE_UNAVAILABLE']))
  await server.run()
  t.equal(await store('members').first(1), '{"id":1,"email":"a"}')
  t.equal(JSON.parse(await store('members').append(record({}))).id, 2)
})

onPostgres('a server that is not there when the service starts is used when it is', async (t, server) => {
  const url = server.database()
  await server.stop()
  const { store } = await openStores(t, url, [members], { timeout: 3000 })
  t.same(await outcomes([() => store('members').append(record({}))]), ['ERR_STORE_UNAVAILABLE'])
  await server.run()
  t.equal(JSON.parse(await store('members').append(record({}))).id, 1)
})

onPostgres('a role with privileges for rows only uses the tables of deploy/postgresql.sql', async (t, server) => {
  const url = server.database()
  await server.query(readFileSync('deploy/postgresql.sql', 'utf8'), url)
  const schema = /search_path%3D(\w+)/.exec(url)?.[1]
  await server.query(`grant usage on schema ${schema} to items_users; alter role items_users login password 'x'`, url)
  const restricted = url.replace('ada:open%20sesame', 'items_users:x')
  const own = definitions.map(definition => checkDefinition(definition as Definition)) as unknown as AnyDefinition[]
  const { store, engine } = await openStores(t, restricted, own)
  await engine.check()
  t.same(await all(store('items')), own[0]?.seed)
  await store('items').append(record({ id: 5, name: 'x', price: 1 }), { key: 'key', digest: '' })
  await store('items').change(5, () => undefined)
  await t.rejects(openStores(t, restricted, [members]),
    { code: 'ERR_STARTUP', message: /The role in the option store lacks a privilege: permission denied/ })
})

onPostgres('two instances that start at the same time create the tables once', async (t, server) => {
  const url = server.database()
  const seeded = { ...members, seed: [{ id: 1, email: 'a' }] }
  const opened = await Promise.all(times(4, () => openStores(t, url, [seeded, loans])))
  for (const { store } of opened) t.same(await all(store('members')), seeded.seed)
})
