import { chownSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { Type } from '@sinclair/typebox'
import { test, type Test } from 'tap'
import { openEngine } from '../../plugins/stores.js'
import { checkDefinition } from '../../plugins/collection/definition.js'
import { definitions } from '../../plugins/definitions.js'
import type { Stores } from '../../plugins/host-stores.js'
import { postgresTable } from '../../plugins/stores/postgres/statements.js'
import type { HasId, List } from '../../plugins/stores/store.js'
import type { Item } from '../../schemas/item.js'
import { schemaSql } from '../../scripts/schema-sql.js'
import { item, onPostgres, things, unavailable } from '../support/databases.js'
import { cert, key } from '../support/certificate.js'
import { opened, patient } from '../support/engines.js'
import { build } from '../support/helper.js'
import { startPostgres, type Postgres } from '../support/postgres.js'
import { start } from '../support/process.js'
import { startProxy } from '../support/proxy.js'
import { until } from '../support/until.js'
import { startSwitch } from '../stress/history.js'

const { seed: _, ...collection } = things

onPostgres('no record appears before one that was visible, and a reader that follows the cursor gets every record once', async (t, server) => {
  const url = server.database()
  const engines = await Promise.all([1, 2, 3].map(async () => {
    const engine = await openEngine(url, patient)
    t.teardown(engine.close)
    return opened<Item>(engine, { ...collection, seed: [] })
  }))
  // Transactions take different times, so that they would not commit in the order in which they have inserted.
  await server.query(`
    create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(random() * 0.02); return null; end';
    create trigger wait after insert on things for each statement execute function wait()`, url)
  const total = 1500
  let isWriting = true
  const writes = Promise.all(engines.flatMap((store, n) => Array.from({ length: 10 }, async (_, client) => {
    for (let k = 0; k < total / 30; k++) await store.append(item(n * 1e6 + client * 1e3 + k), k % 2 ? `${n}-${client}-${k}` : undefined)
  }))).finally(() => { isWriting = false })

  const [reader] = engines as [typeof engines[0]]
  const followed: number[] = []
  let position: string | undefined
  let before: number[] = []
  let lists = 0
  const ids = async (list: List) => (JSON.parse(await text(Readable.from(list))) as Item[]).map(({ id }) => id)
  while (followed.length < total) {
    // A page has a next position only if there are more records.
    const wasWriting = isWriting
    const { list, next } = await reader.select({ limit: 20, after: position })
    const page = await ids(list)
    if (next !== undefined) {
      position = next
      followed.push(...page)
    } else if (!wasWriting) {
      followed.push(...page)
      break
    }
    const now = await ids((await reader.select({ limit: 10_000 })).list)
    t.same(now.slice(0, before.length), before)
    before = now
    lists++
  }
  await writes
  t.ok(lists > 10, `${lists} lists`)
  t.equal(new Set(followed).size, total)
  t.equal(followed.length, total)
  t.same(followed, await ids((await reader.select({ limit: 10_000 })).list))
})

onPostgres('if the server is not reachable yet, the service starts, is not ready, and serves as soon as it is', async t => {
  const server = await startPostgres(t)
  if (!server) return
  const url = server.database()
  await server.stop()
  const lines: string[] = []
  const app = build(t, { DATABASE_URL: url, LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  t.equal((await app.inject('/livez')).statusCode, 200)
  for (const path of ['/readyz', '/api/items']) t.equal((await app.inject(path)).statusCode, 503)
  await server.run()
  await until(async () => (await app.inject('/readyz')).statusCode === 200)
  t.same((await app.inject('/api/items')).json(), [{ id: 1, name: 'Lamp', price: 42.5 }])
  await until(() => lines.join().includes('The database is available again'))
  t.equal(lines.join().split('The database is unavailable').length, 2)
})

onPostgres('after a failover, connections to the read-only standby are not used, and the service recovers', async t => {
  const server = await startPostgres(t)
  if (!server) return
  const standby = await server.startStandby(t)
  const proxy = await startSwitch(t, server.port)
  const app = build(t, { DATABASE_URL: proxy.url })
  const statuses = async (id: number) => Promise.all([
    '/readyz', '/api/items', '/api/items/1', { method: 'POST', url: '/api/items', payload: item(id) } as const
  ].map(async request => (await app.inject(request)).statusCode))
  t.same(await statuses(2), [200, 200, 200, 201])
  await until(async () => (await standby.query('select id from items where id = 2')).length === 1)

  proxy.switchTo(standby.port)
  await server.stop('SIGQUIT')
  for (let n = 0; n < 5; n++) t.same(await statuses(3), [503, 503, 503, 503])
  const started = build(t, { DATABASE_URL: proxy.url })
  t.equal((await started.inject('/livez')).statusCode, 200)
  t.equal((await started.inject('/readyz')).statusCode, 503)
  await standby.promote()
  t.same(await statuses(4), [200, 200, 200, 201])
  t.same((await app.inject('/api/items')).json().map(({ id }: Item) => id), [1, 2, 4])

  // A server that becomes read-only while connections are open.
  await standby.query('alter system set default_transaction_read_only = on')
  await standby.query('select pg_reload_conf()')
  await until(async () => (await app.inject('/readyz')).statusCode === 503)
  t.same(await statuses(5), [503, 503, 503, 503])
  await standby.query('alter system reset default_transaction_read_only')
  await standby.query('select pg_reload_conf()')
  await until(async () => (await app.inject('/readyz')).statusCode === 200)
  t.same(await statuses(6), [200, 200, 200, 201])
})

onPostgres('without its synchronous standby, nothing is acknowledged and the service is not ready; then a retry creates exactly one record', async t => {
  const server = await startPostgres(t)
  if (!server) return
  const lines: string[] = []
  const app = build(t, { DATABASE_URL: server.url, DATABASE_TIMEOUT: '5000', LOG_LEVEL: 'info' }, { write: line => lines.push(JSON.parse(line).msg) })
  const post = async (to = app) => (await to.inject({ method: 'POST', url: '/api/items', payload: item(7), headers: { 'idempotency-key': 'a' } })).statusCode
  const isReady = async () => (await app.inject('/readyz')).statusCode === 200
  const other = build(t, { DATABASE_URL: server.url, DATABASE_TIMEOUT: '5000' })
  t.equal((await other.inject('/readyz')).statusCode, 200)
  t.ok(await isReady())
  await server.query("alter system set synchronous_standby_names = '*'")
  await server.query('select pg_reload_conf()')
  await until(async () => !await isReady())
  const warnings: string[] = []
  const local = build(t, { DATABASE_URL: `${server.url}?options=-csynchronous_commit%3Dlocal`, LOG_LEVEL: 'warn' }, { write: line => warnings.push(JSON.parse(line).msg) })
  await local.ready()
  t.match(warnings, [/^synchronous_commit is local: a failover can lose/])
  const probes = () => server.query("select from pg_stat_activity where application_name = 'fastify-items-users' and wait_event = 'SyncRep'")
  t.equal((await probes()).length, 1)
  t.same(await Promise.all([post(), post()]), [503, 503], 'one call for both')
  t.same(await Promise.all([post(), post(other)]), [503, 503], 'a transaction has the key, also on another instance')
  t.equal((await app.inject('/api/items/7')).statusCode, 404, 'the transaction has not ended')
  t.equal((await probes()).length, 2, 'one probe and one POST')
  const started = build(t, { DATABASE_URL: server.database(), DATABASE_TIMEOUT: '5000' })
  t.equal((await started.inject('/livez')).statusCode, 200)
  t.equal((await started.inject('/readyz')).statusCode, 503)

  await server.crash()
  await until(async () => (await app.inject('/api/items/7')).statusCode === 200) // PostgreSQL does not wait after a restart
  t.equal(await post(), 503)
  t.notOk(await isReady())

  const standby = await server.startStandby(t)
  await until(isReady)
  t.equal(await post(), 201)
  await until(async () => (await standby.query('select from items where id = 7')).length === 1)
  t.same((await app.inject('/api/items')).json().slice(1), [item(7)])
  await until(() => lines.includes('The database is available again'))
  t.same(lines.filter(line => line !== 'request completed'), ['The database is unavailable', 'The database is available again'])
})

onPostgres('after the type of a column has changed, reads and writes work; without a table, the service is not ready', async (t, server) => {
  const url = server.database()
  const lines: string[] = []
  const app = build(t, { DATABASE_URL: url, DATABASE_POOL_SIZE: '8', DATABASE_TIMEOUT: '60000', LOG_LEVEL: 'warn' }, { write: line => lines.push(JSON.parse(line).msg) })
  const post = (id: number) => ({ method: 'POST', url: '/api/items', payload: item(id), headers: { 'idempotency-key': String(id) } } as const)
  const requests = (id: number) => ['/api/items', '/api/items/1', '/readyz', post(id)]
  for (const request of requests(2)) t.match((await app.inject(request)).statusCode, /^20[01]$/)
  const { items } = app.getDecorator<Stores>('stores')
  const pagesDuring = async (change: string) => {
    const other = new pg.Client(url)
    await other.connect()
    await other.query(`begin; lock table items; ${change}`)
    const pages = Promise.all(Array.from({ length: 5 }, () => items.select({ limit: 1 })))
    // Both connections of the collection are waiting, and other requests are waiting for a connection.
    await until(async () => (await server.query("select from pg_locks where relation = 'items'::regclass and not granted", url)).length === 2)
    await other.query('commit')
    await other.end()
    return (await pages).length
  }
  t.equal(await pagesDuring('select'), 5)
  t.same(await pagesDuring('alter table items alter column name type varchar(200)'), 5)
  for (const request of requests(3)) t.match((await app.inject(request)).statusCode, /^20[01]$/)
  await server.query('alter table items rename column price to cost', url)
  t.equal((await app.inject('/readyz')).statusCode, 503)
  t.same(lines, ['The database is unavailable'])
  await server.query('alter table items rename column cost to price', url)
  t.equal((await app.inject('/readyz')).statusCode, 200)
  await server.query('drop table idempotency_keys', url)
  t.equal((await app.inject('/readyz')).statusCode, 503)
})

onPostgres('a connection pooler that does not know a prepared statement is used without prepared statements', async (t, server) => {
  const url = server.database()
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  // Forgets all statements of a connection after each insert, as a pooler that assigns another connection does.
  await server.query(`
    create function forget() returns trigger language plpgsql as 'begin execute ''deallocate all''; return null; end';
    create trigger forget after insert on items for each statement execute function forget()`, url)
  for (let n = 2; n < 5; n++) t.equal((await app.inject({ method: 'POST', url: '/api/items', payload: item(n) })).statusCode, 201)
  t.same((await app.inject('/api/items')).json().map(({ id }: HasId) => id), [1, 2, 3, 4])
})

onPostgres('a role without DDL privileges can use the tables of deploy/postgresql.sql, and a missing privilege is reported at startup', async (t, server) => {
  await server.query('create database administered')
  const url = server.url.replace(/postgres$/, 'administered')
  await server.query(readFileSync('deploy/postgresql.sql', 'utf8'), url)
  await server.query("create role clerk login password 'clerk'; grant items_users to clerk", url)
  const clerk = url.replace('ada:open%20sesame', 'clerk:clerk')
  for (const ID_SOURCE of ['client', 'server']) {
    const app = build(t, { DATABASE_URL: clerk, ID_SOURCE })
    for (const request of [
      '/api/items', '/readyz',
      { method: 'POST', url: '/api/items', payload: { id: 2, name: 'x', price: 1 }, headers: { 'idempotency-key': ID_SOURCE } },
      { method: 'POST', url: '/api/users', payload: { id: 2, name: 'x' } },
      { method: 'DELETE', url: '/api/users/2' }
    ] as const) t.match((await app.inject(request as string)).statusCode, /^20[014]$/)
    await app.close()
  }
  await server.query('revoke insert on items from items_users', url)
  await t.rejects(async () => build(t, { DATABASE_URL: clerk }).ready(), {
    message: 'The role in the option store lacks a privilege: permission denied for table items. See docs/persistence.md#privileges.'
  })
  await server.query('grant insert on items to items_users', url)
  const running = await startEngine()
  await running.check()
  for (const [, privileges = '', tables = ''] of readFileSync('deploy/postgresql.sql', 'utf8').matchAll(/^grant (.+) on (.+) to items_users;$/gm)) {
    for (const table of tables.split(', ')) {
      for (const privilege of privileges.split(', ')) {
        await server.query(`revoke ${privilege} on ${table} from items_users`, url)
        await t.rejects(startEngine(), {
          message: `The role in the option store lacks a privilege: permission denied for table ${table.replaceAll('"', '')}. See docs/persistence.md#privileges.`
        }, `${privilege} on ${table}`)
        if (table !== 'collections') await t.rejects(async () => running.check(), { message: /lacks a privilege|permission denied/ }, `${privilege} on ${table}`)
        await server.query(`grant ${privilege} on ${table} to items_users`, url)
      }
    }
  }
  await (await startEngine()).check()

  async function startEngine () {
    const engine = await openEngine(clerk, patient)
    t.teardown(engine.close)
    for (const definition of definitions) engine.open(checkDefinition(definition))
    await engine.start()
    return engine
  }
})

onPostgres('a change that a trigger skips is rejected, and others are made', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, patient)
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: [item(1), item(2)] })
  await server.query(`
    create function skip() returns trigger language plpgsql as 'begin return null; end';
    create trigger redundant before update on things for each row execute function suppress_redundant_updates_trigger();
    create trigger skip before delete on things for each row execute function skip()`, url)
  const [same, other] = await Promise.allSettled([store.change(1, () => item(1)), store.change(2, () => item(2, 5))])
  t.match(same, { reason: { code: 'ERR_NOT_STORABLE' } })
  t.match(other, { value: JSON.stringify(item(2, 5)) })
  await t.rejects(async () => store.change(1, () => undefined), { code: 'ERR_NOT_STORABLE' })
  t.match(await Promise.allSettled([store.change(1, () => undefined), store.change(1, () => item(1, 3))]), [{ status: 'rejected' }, { value: JSON.stringify(item(1, 3)) }])
  const pricesOf = async (...prices: number[]) => (await Promise.allSettled(prices.map(price => store.change(2, () => item(2, price))))).map(({ status }) => status)
  t.same(await pricesOf(6, 5), ['fulfilled', 'fulfilled'], 'only together, they change nothing')
  await server.query('alter table things add check (price < 100)', url)
  t.same(await pricesOf(6, 7, 100), ['fulfilled', 'fulfilled', 'rejected'])
  t.equal(await store.first(2), JSON.stringify(item(2, 7)), 'only the call at fault is rejected')
})

onPostgres('a change that row security does not allow is rejected, and others are made', async (t, server) => {
  await server.query('create database secured')
  await server.query("create role limited login password 'limited'")
  const url = server.url.replace(/postgres$/, 'secured')
  const administrator = await openEngine(url, patient)
  t.teardown(administrator.close)
  await opened<Item>(administrator, { ...collection, seed: [item(1), item(2)] })
  await server.query(`
    grant select, insert, update, delete on all tables in schema public to limited;
    alter table things enable row level security;
    create policy all_rows on things for select using (true);
    create policy some_rows on things for update using (id <> 1)`, url)
  const engine = await openEngine(url.replace('ada:open%20sesame', 'limited:limited'), patient)
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: [] })
  const [hidden, other] = await Promise.allSettled([store.change(1, () => item(1, 5)), store.change(2, () => item(2, 5))])
  t.match(hidden, { reason: { code: 'ERR_NOT_STORABLE' } })
  t.match(other, { value: JSON.stringify(item(2, 5)) })
})

onPostgres('changes of one record at once are one transaction, and each has the result of the previous one', async (t, server) => {
  const url = server.database()
  const engines = await Promise.all([1, 2].map(async () => {
    const engine = await openEngine(url, patient)
    t.teardown(engine.close)
    return opened<Item>(engine, { ...collection, seed: [item(1, 0), item(2, 0), item(1, 100)] })
  }))
  const [store, another] = engines as [typeof engines[0], typeof engines[0]]
  await server.query(`
    create table writes (id bigint);
    create function log_write() returns trigger language plpgsql as 'begin perform pg_sleep(0.1); insert into writes values (new.id); return null; end';
    create trigger log_write after update on things for each row execute function log_write()`, url)
  const add = (json: string): Item => ({ ...JSON.parse(json), price: JSON.parse(json).price + 1 })
  const added = await Promise.all(Array.from({ length: 120 }, async () => JSON.parse(String(await store.change(1, add))).price))
  t.same(new Set(added), new Set(Array.from({ length: 120 }, (_, n) => n + 1)))
  t.ok((await server.query('select from writes', url)).length <= 4, 'at most 64 calls per transaction')
  await Promise.all(Array.from({ length: 30 }, (_, n) => (n % 2 ? store : another).change(2, add)))
  t.equal(await store.first(2), JSON.stringify(item(2, 30)), 'on two instances too')

  const refusal = new Error('refused')
  const outcomes = await Promise.allSettled([
    store.change(1, add), store.change(1, () => { throw refusal }), store.change(1, () => undefined), store.change(1, add), store.change(1, () => undefined), store.change(1, add)
  ])
  t.match(outcomes, [
    { value: JSON.stringify(item(1, 121)) }, { reason: refusal }, { value: JSON.stringify(item(1, 121)) },
    {}, {}, {}
  ])
  t.same(JSON.parse(String((await store.select({})).list)), [item(2, 30)], 'the first record with the id, then the next one')
})

onPostgres('changes whose time is over are dropped before they reach the database', async (t, server) => {
  const { url, store, limit } = await slowStore(t, server, { records: 320, wait: 0.4, forEach: 'statement' })
  limit(1000)
  const outcomes = await Promise.allSettled(Array.from({ length: 320 }, (_, id) => store.change(id, () => item(id, 1))))
  const made = outcomes.filter(({ status }) => status === 'fulfilled').length
  for (const outcome of outcomes) if (outcome.status === 'rejected') t.match(outcome.reason, unavailable)
  limit(undefined)
  await server.query('drop trigger wait on things', url) // waits for the transaction that is in progress
  await store.append(item(999))
  const changed = (await server.query('select from things where price = 1', url)).length
  t.ok(changed - made <= 64, `${made} acknowledged, ${changed - made} of a transaction that was in progress`)
})

onPostgres('changes that triggers make too slow are not made after their 503, and then fewer are made at once', async (t, server) => {
  const { url, store } = await slowStore(t, server, { timeout: 3000, records: 64, wait: 0.4, forEach: 'row' }) // none fits into the time that is left after the first attempt
  const changeAll = async () => (await Promise.allSettled(Array.from({ length: 64 }, (_, id) => store.change(id, () => item(id, 1))))).filter(({ status }) => status === 'fulfilled').length
  t.equal(await changeAll(), 0, 'one transaction of 25.6 seconds')
  await until(async () => (await server.query("select from pg_locks where relation = 'things'::regclass and mode = 'RowExclusiveLock'", url)).length === 0)
  const isEnded = Number((await server.query('show server_version_num'))[0]?.server_version_num) >= 170000
  t.equal((await server.query('select from things where price = 1', url)).length, isEnded ? 0 : 64)
  await until(async () => await changeAll() > 0)
})

/** A store whose updates wait for some seconds in a trigger, and a function that limits the time of its operations. */
async function slowStore (t: Test, server: Postgres, { timeout = 60_000, records, wait, forEach }: { timeout?: number, records: number, wait: number, forEach: 'row' | 'statement' }) {
  const url = server.database()
  let left: number | undefined
  const engine = await openEngine(url, { ...patient, timeout, deadline: () => left && Date.now() + left })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: Array.from({ length: records }, (_, id) => item(id, 0)) })
  await server.query(`
    create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(${wait}); return null; end';
    create trigger wait after update on things for each ${forEach} execute function wait()`, url)
  return { url, store, limit: (milliseconds?: number) => { left = milliseconds } }
}

onPostgres('a row that another program holds delays only its own changes, which are not made after their 503', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, { timeout: 6000, poolSize: 10 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: [item(1), item(2), item(3)] })
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; update things set price = 7 where id = 1')
  const held = Promise.allSettled(Array.from({ length: 70 }, (_, n) => store.change(1, n % 2 ? () => undefined : () => item(1, n))))
  const state = { isOver: false }
  held.finally(() => { state.isOver = true })
  let others = 0
  for (; !state.isOver; others++) {
    t.equal(await store.change(2 + others % 2, () => item(2 + others % 2, others)), JSON.stringify(item(2 + others % 2, others)))
    await sleep(100)
  }
  t.ok(others > 0, `${others} other changes meanwhile`)
  for (const { reason } of (await held) as PromiseRejectedResult[]) t.match(reason, unavailable)
  const version = await store.version()
  await holder.query('commit')
  await holder.end()
  t.not(await store.version(), version)
  t.equal(await store.change(1, json => ({ ...JSON.parse(json), name: 'changed' })), JSON.stringify({ ...item(1, 7), name: 'changed' }), 'nothing else was changed')
})

onPostgres('changes of one record are made in order of arrival, also if another program holds it or one is rejected', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, { timeout: 60_000, poolSize: 10 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: [item(1, 0), item(2), item(1, 500)] })
  const add = (json: string): Item => ({ ...JSON.parse(json), price: JSON.parse(json).price + 1 })
  const addAll = async (count: number) => (await Promise.all(Array.from({ length: count }, () => store.change(1, add)))).map(json => JSON.parse(String(json)).price)
  const changeOther = async () => { for (let n = 0; n < 20; n++) t.ok(await store.change(2, add)) }
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; select from things where id = 1 for update')
  const first = addAll(150)
  await changeOther()
  const next = addAll(50)
  await changeOther()
  await holder.query('commit')
  await holder.end()
  t.same([...await first, ...await next], Array.from({ length: 200 }, (_, n) => n + 1))

  await server.query('alter table things add check (price <> 13)', url)
  t.match(await Promise.allSettled([store.change(1, () => undefined), store.change(1, add), store.change(2, () => item(2, 13)), store.change(1, add)]), [
    { value: JSON.stringify(item(1, 200)) }, { value: JSON.stringify(item(1, 501)) }, { reason: { code: 'ERR_NOT_STORABLE' } }, { value: JSON.stringify(item(1, 502)) }
  ])
})

onPostgres('a change that waits for a table is not made after its 503', async (t, server) => {
  const url = server.database()
  let left: number | undefined
  const engine = await openEngine(url, { ...patient, deadline: () => left && Date.now() + left })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: [item(1)] })
  await store.change(1, () => item(1, 2))
  left = 1000
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; lock table things in exclusive mode') // it can be read
  await t.rejects(async () => store.change(1, () => item(1, 3)), unavailable)
  await holder.query('commit')
  await holder.end()
  left = undefined
  t.equal(await store.change(1, json => ({ ...JSON.parse(json), name: 'next' })), JSON.stringify({ ...item(1, 2), name: 'next' }))
})

onPostgres('a lock on one table does not stop other collections', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, { timeout: 6000, poolSize: 10 })
  t.teardown(engine.close)
  const other = engine.open<Item>({ ...collection, name: 'others', seed: [item(1)] })
  const store = await opened<Item>(engine, { ...collection, seed: [item(1)] })
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; lock table things')
  const state = { isOver: false }
  const waiting = Promise.allSettled(Array.from({ length: 20 }, (_, n) => [
    store.select({}), store.first(1), store.append(item(2), `key-${n}`), store.append({ name: 'x', price: 1 }), store.change(1, () => item(1, n)), store.version(), store.count({})
  ]).flat()).finally(() => { state.isOver = true })
  let rounds = 0
  for (; !state.isOver; rounds++) {
    t.equal(await other.change(1, () => item(1, rounds)), JSON.stringify(item(1, rounds)))
    t.equal(await other.first(1), JSON.stringify(item(1, rounds)))
    t.equal(String((await other.select({})).list), JSON.stringify([item(1, rounds)]))
    await sleep(100)
  }
  t.ok(rounds > 0, `${rounds} rounds meanwhile`)
  t.same(new Set((await waiting).map(({ status }) => status)), new Set(['rejected']))
  await holder.query('commit')
  await holder.end()
  t.equal(await store.first(1), JSON.stringify(item(1)))
})

onPostgres('the counters of changes of an older release are upgraded, and nobody waits for them', async (t, server) => {
  const url = server.database()
  const start = async () => {
    const engine = await openEngine(url, patient)
    t.teardown(engine.close)
    return opened<Item>(engine, { ...collection, seed: [item(1), item(2)] })
  }
  await start()
  await server.query(`
    drop table collection_changes;
    create table collection_changes (collection text primary key, changes bigint not null);
    insert into collection_changes values ('things', 41);
    create or replace function count_change() returns trigger language plpgsql security definer set search_path = '' as $$
    begin
      execute format('update %I.collection_changes set changes = changes + 1 where collection = %L', tg_table_schema, tg_table_name);
      return null;
    end $$;
    delete from things where id = 2`, url)
  const store = await start()
  t.match(await server.query('select * from collection_changes', url), [{ collection: 'things', changes: '42', counter: '1' }])
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; insert into things (id, name, price) values (3, 3, 3); update things set price = 5 where id = 3')
  const versions = [await store.version()]
  for (const price of [1, 2]) {
    await store.change(1, () => item(1, price))
    versions.push(await store.version())
  }
  await holder.query('commit')
  await holder.end()
  versions.push(await store.version())
  t.equal(new Set(versions).size, 4)
  t.equal((await server.query('select from collection_changes', url)).length, 2)
})

onPostgres('without statistics, the plan that generates ids is cheap enough not to be compiled', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, patient)
  t.teardown(engine.close)
  await opened<Item>(engine, { ...collection, seed: [] })
  await server.query('alter table things set (autovacuum_enabled = false)', url)
  const client = new pg.Client(url)
  await client.connect()
  await client.query("insert into things (id, name, price) select n, 'x', 1 from generate_series(1, 100000) as n")
  const { rows } = await client.query(`explain (format json) ${postgresTable({ ...collection, seed: [] }, 0).insertion(true, false)}`, [[null], ['x'], [1]])
  const { rows: [settings] } = await client.query('show jit_above_cost')
  t.ok(rows[0]['QUERY PLAN'][0].Plan['Total Cost'] < settings.jit_above_cost / 10)
  await client.end()
})

onPostgres('writes that wait for a lock of another program are ended when they have been answered, also if no connection is free', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, { timeout: 3000, poolSize: 2 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: [item(1)] })
  const waiting = () => server.query("select from pg_locks where relation = 'things'::regclass and not granted", url)
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; lock table things in exclusive mode')
  const outcomes: Promise<unknown>[] = []
  for (const call of [() => store.change(1, () => item(1, 2)), () => store.append(item(2)), engine.check, engine.check, engine.check]) {
    outcomes.push(t.rejects(async () => call(), unavailable))
    await sleep(1000)
  }
  await Promise.all(outcomes)
  await until(async () => (await waiting()).length === 0)
  await holder.end()
  await engine.check()
  t.equal(String((await store.select({})).list), JSON.stringify([item(1)]))
})

onPostgres('settings of the server do not change prices or reject writes', async (t, server) => {
  const url = server.database()
  const schema = decodeURIComponent(url).split('search_path=')[1]
  const settings = (options: string) => `${server.url}?options=${encodeURIComponent(`-csearch_path=${schema} ${options}`)}`

  const exact = build(t, { DATABASE_URL: settings('-cextra_float_digits=0') })
  const price = 0.1 + 0.2
  await exact.inject({ method: 'POST', url: '/api/items', payload: { id: 7, name: 'x', price } })
  t.equal((await exact.inject('/api/items/7')).json().price, price)
  t.equal((await exact.inject('/api/items')).json()[1].price, price)

  const serializable = [1, 2, 3].map(() => build(t, { DATABASE_URL: settings('-cdefault_transaction_isolation=serializable'), ID_SOURCE: 'server' }))
  await Promise.all(serializable.map(app => app.ready()))
  const responses = await Promise.all(Array.from({ length: 300 }, (_, n) =>
    (serializable[n % 3] ?? exact).inject({ method: 'POST', url: '/api/items', payload: { name: 'x', price: 1 } })))
  t.same(new Set(responses.map(({ statusCode }) => statusCode)), new Set([201]))
  t.equal(new Set(responses.map(response => response.json().id)).size, 300)
})

onPostgres('if the server allows fewer connections than the pool has, requests wait', async (t, server) => {
  await server.query("create role few login password 'few' connection limit 2")
  await server.query('create database few owner few')
  const app = build(t, { DATABASE_URL: server.url.replace('ada:open%20sesame', 'few:few').replace(/postgres$/, 'few'), DATABASE_POOL_SIZE: '20' })
  const responses = await Promise.all(Array.from({ length: 100 }, (_, n) => app.inject(n % 2 ? '/api/items/1' : '/api/items?limit=1')))
  t.same(new Set(responses.map(({ statusCode }) => statusCode)), new Set([200]))
  await server.query('insert into items (id, name, price) select n, n, n from generate_series(2, 1500) as n', server.url.replace(/postgres$/, 'few'))
  t.equal((await app.inject('/api/items')).json().length, 1500, 'a list that needs another connection')
})

onPostgres('a DELETE beside one with If-Match deletes the next user with the id', async (t, server) => {
  const url = server.database()
  const app = build(t, { DATABASE_URL: url })
  for (const name of ['first', 'second']) await app.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name } })
  const { etag } = (await app.inject('/api/users/7')).headers
  const holder = new pg.Client(url)
  await holder.connect()
  await holder.query('begin; select from users where id = 7 for update')
  const conditional = app.inject({ method: 'DELETE', url: '/api/users/7', headers: { 'if-match': etag } })
  const other = app.inject({ method: 'DELETE', url: '/api/users/7' })
  await app.inject({ method: 'DELETE', url: '/api/users/1' })
  await holder.query('commit')
  await holder.end()
  t.same((await Promise.all([conditional, other])).map(({ statusCode }) => statusCode), [204, 204])
  t.equal((await app.inject('/api/users/7')).statusCode, 404)
})

onPostgres('a key that two instances use at the same time creates one record, and a key that cannot be stored is in use', async (t, server) => {
  const url = server.database()
  const stores = await Promise.all([1, 2].map(async () => {
    const engine = await openEngine(url, patient)
    t.teardown(engine.close)
    return opened<Item>(engine, { ...collection, seed: [] })
  }))
  for (let n = 0; n < 30; n++) {
    const [one, other] = await Promise.all(stores.map(store => store.append(item(n), `key-${n}`)))
    t.equal(one, other)
  }
  t.equal(await stores[0]?.count({}), 30)
  await server.query(`
    create function skip() returns trigger language plpgsql as 'begin return null; end';
    create trigger skip before insert on idempotency_keys for each row execute function skip()`, url)
  await t.rejects(Promise.resolve(stores[0]?.append(item(99), 'skipped')), { code: 'ERR_IDEMPOTENCY_KEY_IN_USE' })
  t.equal(await stores[0]?.count({}), 30)
})

onPostgres('a key of an instance that is frozen can be used on another instance', async (t, server) => {
  const url = server.database()
  const frozen = start(t, { DATABASE_URL: url }, { built: true })
  const api = `${await frozen.url}/api/items`
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  const headers = { 'idempotency-key': 'a' }
  const lock = new pg.Client(url)
  await lock.connect()
  await lock.query('begin; lock table items')
  const lost = fetch(api, { method: 'POST', headers, body: JSON.stringify(item(7)) }).catch(() => {})
  await until(async () => (await server.query("select from pg_locks where relation = 'items'::regclass and not granted", url)).length > 0)
  frozen.process.kill('SIGSTOP')
  await lock.query('commit')
  await lock.end()
  t.equal((await app.inject({ method: 'POST', url: '/api/items', payload: item(7), headers })).statusCode, 201)
  t.same((await app.inject('/api/items')).json().slice(1), [item(7)])
  frozen.process.kill('SIGKILL')
  await lost
})

onPostgres('if a table is locked while the service starts, it starts and serves when the lock is released', async (t, server) => {
  const url = server.database()
  const first = build(t, { DATABASE_URL: url })
  await first.ready()
  const lock = new pg.Client(url)
  await lock.connect()
  await lock.query('begin; lock table items, last_ids')
  const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '6000' })
  t.equal((await app.inject('/readyz')).statusCode, 503)
  await lock.query('commit')
  await lock.end()
  for (const url of ['/readyz', '/api/items']) await until(async () => (await app.inject(url)).statusCode === 200)
})

onPostgres('what can never work fails at startup, and what is not reachable is tried again', async (t, server) => {
  const url = server.database()
  await server.query('create table users (name text)', url)
  await t.rejects(async () => build(t, { DATABASE_URL: url }).ready(), {
    message: 'Cannot create the tables in the option store: relation "users" already exists, and this service has not created it. Use another database or a separate schema (docs/persistence.md#schemas).'
  })
  t.same(await server.query("select to_regclass('items') as items, to_regclass('collections') as collections", url), [{ items: null, collections: null }])
  await t.rejects(async () => build(t, { DATABASE_URL: server.url.replace('sesame', 'melon') }).ready(), {
    message: 'Cannot open the database in the option store: password authentication failed for user "ada"'
  })
  for (const host of ['127.0.0.1:1', 'localhost:1', 'nowhere.invalid']) {
    const app = build(t, { DATABASE_URL: `postgres://ada:sesame@${host}/items` })
    t.equal((await app.inject('/livez')).statusCode, 200)
    t.equal((await app.inject('/readyz')).statusCode, 503)
  }
  await t.rejects(openEngine('postgres://one,two/items', patient), { code: 'ERR_STARTUP' })
  await t.rejects(openEngine('postgres://[/items', patient), { code: 'ERR_STARTUP' })
})

onPostgres('a database whose encoding is not UTF8 is rejected, and asynchronous commits are logged', async (t, server) => {
  await server.query("create database latin encoding 'LATIN1' template template0")
  await t.rejects(async () => build(t, { DATABASE_URL: server.url.replace(/postgres$/, 'latin') }).ready(), {
    code: 'ERR_STARTUP', message: 'The database in the option store has the encoding LATIN1. Create a database with the encoding UTF8.'
  })
  const lines: string[] = []
  const url = `${server.database()}%20-csynchronous_commit%3Doff`
  await build(t, { DATABASE_URL: url, LOG_LEVEL: 'info' }, { write: line => lines.push(JSON.parse(line).msg) }).ready()
  t.same(lines, ['synchronous_commit is off: PostgreSQL can lose acknowledged writes when it crashes'])
  const engine = await openEngine(url, patient) // without a log
  t.teardown(engine.close)
  await engine.start()
})

onPostgres('all operations of a request together have the time of one', async (t, server) => {
  const proxy = await startProxy(t, server.database())
  const app = build(t, { DATABASE_URL: proxy.url, DATABASE_TIMEOUT: '6000' })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  proxy.delay = 3600
  t.equal((await app.inject('/api/items')).statusCode, 503, 'a list needs two queries')
  proxy.delay = 0
  t.ok(await app.getDecorator<Stores>('stores').items.first(1), 'without a request, an operation has its own time')
})

onPostgres('a long list that is opened too late is closed', async (t, server) => {
  const proxy = await startProxy(t, server.database())
  const engine = await openEngine(proxy.url, { timeout: 8000, poolSize: 2 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...collection, seed: Array.from({ length: 1500 }, (_, n) => item(n)) })
  await text(Readable.from((await store.select({})).list))
  proxy.delay = 4800
  await t.rejects(Promise.resolve(store.select({})), unavailable)
  await until(() => engine.connections?.().lists?.used === 0, 48) // a list that nobody reads is closed after 96 seconds
})

onPostgres('a Unix socket is used as libpq does, also to cancel a query', async (t, server) => {
  const schema = server.database()
  const url = `postgres://ada:open%20sesame@/postgres${new URL(schema).search}&host=${server.data}&port=${server.port}`
  const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '6000' })
  t.equal((await app.inject('/api/items/1')).statusCode, 200)
  const lock = new pg.Client(url)
  await lock.connect()
  await lock.query('begin; lock table items')
  t.equal((await app.inject('/api/items/1')).statusCode, 503)
  await until(async () => (await server.query("select from pg_locks where relation = 'items'::regclass and not granted", schema)).length === 0)
  await lock.end()
})

onPostgres('a server with TLS is verified with a certificate of its own', async t => {
  const server = await startPostgres(t)
  if (!server) return
  const file = `${server.data}/server.crt`
  writeFileSync(file, cert)
  writeFileSync(`${server.data}/server.key`, key, { mode: 0o600 })
  const { uid, gid } = statSync(server.data)
  chownSync(`${server.data}/server.key`, uid, gid)
  await server.query('alter system set ssl = on')
  await server.query('select pg_reload_conf()')
  await until(async () => (await server.query('show ssl'))[0]?.ssl === 'on')
  t.ok(await isEncrypted('sslmode=no-verify'))
  t.ok(await isEncrypted(`sslmode=verify-full&sslrootcert=${file}`))
  t.notOk(await isEncrypted('sslmode=disable'))
  t.notOk(await isEncrypted(''))
  await t.rejects(isEncrypted('sslmode=verify-full'), { message: 'Cannot open the database in the option store: self-signed certificate' })

  async function isEncrypted (parameters: string) {
    const app = build(t, { DATABASE_URL: `${server?.url}?${parameters}` })
    t.equal((await app.inject('/api/items')).statusCode, 200)
    const rows = await server?.query("select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'fastify-items-users'")
    await app.close()
    return rows?.every(({ ssl }) => ssl)
  }
})

test('deploy/postgresql.sql is up to date', async t => {
  t.equal(readFileSync('deploy/postgresql.sql', 'utf8'), await schemaSql(definitions), 'run npm run schema')
  const schema = Type.Object({ id: Type.Integer(), note: Type.Optional(Type.String()) })
  t.match(await schemaSql([{ name: 'notes', schema, seed: [{ id: 1 }] }]), 'insert into "notes" ("id", "note") values (\'1\', null);')
})
