import { mock } from 'node:test'
import { Type } from '@sinclair/typebox'
import { openEngine } from '../../plugins/stores.js'
import { item, onDatabases, onPostgres, things } from '../support/databases.js'
import { opened, patient } from '../support/engines.js'
import { build, invalidBody } from '../support/helper.js'
import { until } from '../support/until.js'

onDatabases('simultaneous writes share transactions, and a rejected record fails alone', async (t, { url, sql, transactions, refuseNegative }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  const before = await transactions()
  const post = (payload: object) => app.inject({ method: 'POST', url: '/api/items', payload })
  const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => post(item(n))))
  t.ok(answers.every(({ statusCode }) => statusCode === 201))
  const shared = await transactions() - before
  t.ok(shared <= 20, `${shared} transactions for 200 writes`)

  await sql(refuseNegative)
  const mixed = Array.from({ length: 50 }, (_, n) => item(1000 + n, n % 9 === 4 ? -1 : 1))
  const statuses = (await Promise.all(mixed.map(post))).map(({ statusCode, body }) => ({ statusCode, body }))
  t.same(statuses, mixed.map(record => record.price > 0
    ? { statusCode: 201, body: JSON.stringify(record) }
    : { statusCode: 400, body: JSON.stringify(invalidBody('request', ['', 'is rejected by the database'])) }))
  t.same((await app.inject('/api/items')).json().slice(201), mixed.filter(({ price }) => price > 0))
})

onDatabases('a change that another program prevents fails alone, and the log has the constraint', async (t, { url, sql }) => {
  const reasons: string[] = []
  const app = build(t, { DATABASE_URL: url, LOG_LEVEL: 'info' }, { write: line => reasons.push(JSON.parse(line).reason) })
  const post = async (id: number, name = `user ${id}`) => (await app.inject({ method: 'POST', url: '/api/users', payload: { id, name } })).statusCode
  for (let id = 2; id <= 20; id++) await post(id)
  await sql('create unique index one_name on users (lower(name))')
  t.same(await Promise.all([post(21), post(22, 'Ada'), post(23)]), [201, 400, 201])
  await until(() => reasons.some(reason => /^The database rejects it: (one_name|index 'one_name')$/.test(reason)))
  await sql(url.startsWith('sqlite')
    ? "create trigger keep before delete on users when old.id = 7 begin select raise(abort, 'is used'); end"
    : 'create table cars (owner bigint references users); insert into cars select position from users where id = 7')
  const status = url.startsWith('sqlite') ? 400 : 409
  const remove = async (id: number, headers = {}) => (await app.inject({ method: 'DELETE', url: `/api/users/${id}`, headers })).statusCode
  t.same(await Promise.all([5, 6, 7, 8, 9].map(id => remove(id))), [204, 204, status, 204, 204])
  t.equal(await remove(7, { 'if-match': '*' }), status)
  t.same((await app.inject('/api/users')).json().map(({ id }: { id: number }) => id).slice(3, 6), [4, 7, 10])
})

onDatabases('a retry waits for the first request with its key, on every instance, and a rejected request does not use up its key', async (t, { url, sql, hold, refuseNegative }) => {
  const apps = [1, 2].map(() => build(t, { DATABASE_URL: url }))
  const post = (app = apps[0], payload = item(7)) =>
    app?.inject({ method: 'POST', url: '/api/items', payload, headers: { 'idempotency-key': 'a' } })
  await Promise.all(apps.map(app => app.ready()))
  await sql(refuseNegative)
  t.equal((await post(apps[0], item(7, -1)))?.statusCode, 400)

  const release = await hold()
  const first = post()
  await apps[0]?.inject('/api/items/1') // until that waits
  const retries = [post(), post(apps[1]), post(apps[0], item(8))]
  await Promise.all(apps.map(app => app.inject('/livez')))
  await release()
  t.same((await Promise.all([first, ...retries])).map(response => response?.statusCode), [201, 201, 201, 422])
  t.equal((await post(apps[1]))?.statusCode, 201)
  t.equal((await apps[0]?.inject('/api/items'))?.json().length, 2)
})

onDatabases('simultaneous large records are written in batches of limited size', async (t, { url, transactions }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  const before = await transactions()
  const name = 'é"x'.repeat(100_000)
  const answers = await Promise.all(Array.from({ length: 8 }, (_, id) =>
    app.inject({ method: 'POST', url: '/api/items', payload: { id, name, price: 1 } })))
  t.ok(answers.every(({ statusCode }) => statusCode === 201))
  const groups = await transactions() - before
  t.ok(groups >= 3, `${groups} groups of 8 records of 300,000 characters`)
})

onDatabases('expired keys are removed without another request with a key', async (t, { url, sql }) => {
  process.removeAllListeners('warning') // the timers of node:test are experimental in Node 20
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const app = build(t, { DATABASE_URL: url })
  for (const key of ['old', 'new']) await app.inject({ method: 'POST', url: '/api/items', payload: item(7), headers: { 'idempotency-key': key } })
  await sql("update idempotency_keys set at = at - 86400001 where key = 'old'")
  mock.timers.tick(60_000)
  await until(async () => (await sql('select key from idempotency_keys')).length === 1)
  t.match(await sql('select key from idempotency_keys'), [{ key: 'new' }])
  if (url.startsWith('postgres')) await sql('drop table idempotency_keys')
  mock.timers.tick(60_000)
  t.equal((await app.inject('/api/items/7')).statusCode, 200)
})

onDatabases('the columns of the tables have the types of the fields', async (t, { url, sql }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.inject({ method: 'POST', url: '/api/items', payload: { id: 7, name: 'Kettle', price: 0.1 } })
  const rows = await sql('select position, id, name, price from items where price < 1 and name like \'K%\' and id > 5')
  t.same(rows.map(Object.values).map(values => values.map(String)), [['2', '7', 'Kettle', '0.1']])
})

onDatabases('tables of an older version are upgraded, and those of a newer version are rejected', async (t, { url, sql }) => {
  const upgrades = ["alter table things add column colour text not null default 'red'", "update things set colour = 'blue' where id = 2"]
  for (const version of [1, 2, 3, 3]) {
    const engine = await openEngine(url, patient)
    const store = await opened(engine, { ...things, upgrades: upgrades.slice(0, version - 1) })
    await store.append(item(version))
    await engine.close()
    t.same(await sql("select version from collections where name = 'things'"), [{ version }])
  }
  t.same((await sql('select id, colour from things order by position')).map(({ id, colour }) => `${id} ${colour}`),
    ['1 red', '1 red', '2 blue', '3 red', '3 red'])
  const older = await openEngine(url, patient)
  await t.rejects(opened(older, things), {
    message: 'The table things in the option store has version 3, but this release supports only up to version 1. Use a newer release.'
  })
  await older.close()

  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  await app.close()
  await sql("update collections set version = 9 where name = 'users'")
  await t.rejects(async () => build(t, { DATABASE_URL: url }).ready(), {
    code: 'ERR_STARTUP', message: 'The table users in the option store has version 9, but this release supports only up to version 1. Use a newer release.'
  })
})

onDatabases('an existing table of another application is left unchanged', async (t, { url, sql }) => {
  await sql('create table users (name text)')
  await t.rejects(async () => build(t, { DATABASE_URL: url }).ready(), {
    code: 'ERR_STARTUP', message: /^Cannot (open the database|create the tables) in the option store: .*"?users"? already exists/
  })
  await t.rejects(sql('select * from items'), 'no other table was created')
  t.same(await sql('select * from users'), [])
})

onDatabases('a missing table is answered with 500, and the service is not ready', async (t, { url, sql }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  await sql('alter table collection_changes rename to renamed')
  t.equal((await app.inject('/readyz')).statusCode, 503)
  await sql('alter table renamed rename to collection_changes')
  t.equal((await app.inject('/readyz')).statusCode, 200)
  await sql('drop table items')
  for (const request of ['/api/items', '/api/items/1', { method: 'POST', url: '/api/items', payload: item(1) } as const]) {
    const response = await app.inject(request)
    t.equal(response.statusCode, 500)
    t.equal(response.body, '{"detail":"Internal server error"}')
  }
  t.equal((await app.inject('/readyz')).body, '{"detail":"The database is unavailable"}')
})

onDatabases('a column that another program has added without a default value is answered with 500', async (t, { url, sql }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  const position = url.startsWith('sqlite') ? 'integer primary key autoincrement' : 'bigint generated always as identity primary key'
  await sql('drop table users')
  await sql(`create table users (position ${position}, id bigint not null, name text not null, team text not null)`)
  t.equal((await app.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name: 'Ada' } })).statusCode, 500)
})

onDatabases('a record that another program has made unreadable does not affect others', async (t, { url, sql }) => {
  const engine = await openEngine(url, patient)
  t.teardown(engine.close)
  const at = Type.Optional(Type.String({ readOnly: true, format: 'date-time' }))
  const schema = Type.Object({ ...things.schema.properties, tags: Type.Array(Type.String()), at })
  const store = await opened(engine, { ...things, schema, idSource: 'server', seed: [1, 2, 3].map(id => ({ ...item(id), tags: [] })) })
  const create = async (key?: string) => store.append({ name: 'x', price: 1, tags: [] }, key)
  await create('used')
  await sql("update things set tags = 'oops' where id in (2, 4)")
  const records = await Promise.allSettled([1, 2, 3].map(async id => store.first(id)))
  t.same(records.map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled'])
  const created = await Promise.allSettled([create(), create('used'), create('new')])
  t.same(created.map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled'])
})

onDatabases('other programs cannot store what a list cannot return', async (t, { url, sql }) => {
  const engine = await openEngine(url, patient)
  t.teardown(engine.close)
  const schema = Type.Object({ ...things.schema.properties, colour: Type.Union([Type.Literal('red'), Type.Literal("it's")]), size: Type.Optional(Type.Integer()) })
  const store = await opened(engine, { ...things, schema, seed: [] })
  const isSqlite = url.startsWith('sqlite')
  const good = { id: '1', name: "'x'", price: '1', colour: "'red'", size: '1' }
  for (const bad of [
    { id: 'null' }, { id: '9007199254740992' }, { name: 'null' }, { price: 'null' }, { colour: 'null' }, { size: '-9007199254740992' },
    ...isSqlite
      ? [{ price: '1e999' }, { price: '-1e999' }, { id: "'x'" }, { id: '1.5' }, { name: "x'ff'" }, { price: "'x'" }, { size: "'x'" }]
      : [{ price: "'Infinity'" }, { price: "'-Infinity'" }, { price: "'NaN'" }]
  ]) await t.rejects(insert({ ...good, ...bad }), { message: /constraint/i }, JSON.stringify(bad))
  await insert({ ...good, colour: "'it''s'", size: 'null' })
  t.same(JSON.parse(String((await store.select({})).list)), [{ id: 1, name: 'x', price: 1, colour: "it's" }])

  async function insert (values: object) {
    await sql(`insert into things (${Object.keys(values)}) values (${Object.values(values)})`)
  }
})

onPostgres('a record that a trigger rejects fails alone, and its connection is kept', async (t, server) => {
  const url = server.database()
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  await server.query(`
    create function refuse() returns trigger as $$ begin raise exception 'negative' using errcode = new.name; end $$ language plpgsql;
    create trigger refuse before insert on items for each row when (new.price < 0) execute function refuse()`, url)
  const post = (id: number, price: number, name = 'P0001') => app.inject({ method: 'POST', url: '/api/items', payload: { id, name, price } })
  for (const [code, status] of [['P0001', 400], ['MY001', 400], ['21000', 500], ['42501', 500]] as const) {
    const answers = await Promise.all(Array.from({ length: 30 }, (_, n) => post(n, n % 10 ? 1 : -1, code)))
    t.same(answers.map(({ statusCode }) => statusCode), Array.from({ length: 30 }, (_, n) => n % 10 ? 201 : status), code)
  }
  const sessions = () => server.query("select max(pid) from pg_stat_activity where application_name = 'fastify-items-users'", url)
  const before = await sessions()
  for (let n = 0; n < 20; n++) t.equal((await post(n, -1)).statusCode, 400)
  t.same(await sessions(), before)
})

onDatabases('many requests with one idempotency key at once get the same record, and other bodies get 422', async (t, { url, sql }) => {
  const app = build(t, { DATABASE_URL: url, ID_SOURCE: 'server' })
  await app.ready()
  const responses = await Promise.all(Array.from({ length: 1500 }, (_, n) => app.inject({
    method: 'POST', url: '/api/items', payload: { name: n % 100 === 99 ? 'other' : 'x', price: 1 }, headers: { 'idempotency-key': 'a' }
  })))
  t.same(responses.map(({ statusCode }) => statusCode), Array.from({ length: 1500 }, (_, n) => n % 100 === 99 ? 422 : 201))
  t.equal(new Set(responses.map(({ body }) => body)).size, 2)
  t.match(await sql("select id from items where name = 'x'"), [{}])
  t.equal((await sql('select id from items')).length, 2)
})
