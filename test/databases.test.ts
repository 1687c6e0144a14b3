import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { connect, createServer, type AddressInfo } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import Database from 'libsql'
import pg from 'pg'
import tap, { test, type Test } from 'tap'
import { engineAt, withDriver } from '../plugins/stores/engines.js'
import { batch } from '../plugins/stores/batch.js'
import { Unavailable } from '../plugins/stores/store.js'
import { databaseDefaults } from '../schemas/config.js'
import { Item } from '../schemas/item.js'
import { newFolder } from './folder.js'
import { checkedFetch as fetch } from './document.js'
import { build, invalidBody } from './helper.js'
import { startPostgres, type Postgres } from './postgres.js'
import { start } from './process.js'

const postgres = await startPostgres(tap)

interface TestDatabase {
  url: string
  /** Runs SQL beside the service, as a person would. */
  sql (sql: string): Promise<Record<string, unknown>[]>
  /** Ends the server at once, where there is one, and starts it again. */
  crash (): Promise<void>
  /** How many transactions have written to the collection of items. */
  transactions (): Promise<number>
  /** SQL that has the database refuse negative prices. */
  refuseNegative: string
  /** SQL that makes a million items. */
  million: string
  /** How many lists hold a transaction open. */
  openLists (): Promise<number>
  /** Keeps everyone from writing items, until it is released. */
  hold (): Promise<() => Promise<void>>
}

/** Runs a test on a new SQLite file and on a new PostgreSQL database. */
function onDatabases (name: string, run: (t: Test, database: TestDatabase) => Promise<void>) {
  test(`on SQLite, ${name}`, async t => {
    const path = `${newFolder(t)}/items.db`
    await run(t, {
      url: `sqlite:${path}`,
      sql: async sql => {
        const database = new Database(path, { timeout: 5000 })
        try {
          return database.prepare(sql).all() as Record<string, unknown>[]
        } finally {
          database.close()
        }
      },
      crash: async () => {},
      transactions: async () => commits(readFileSync(`${path}-wal`)),
      refuseNegative: 'create trigger refuse before insert on items when new.price < 0 begin select raise(abort, \'negative\'); end',
      openLists: async () => {
        const database = new Database(path, { timeout: 0 })
        try {
          // A log can be emptied when nobody looks at what was there before its newest transaction.
          database.exec('create table if not exists probe (n); insert into probe values (1)')
          const { busy } = database.prepare('pragma wal_checkpoint(truncate)').get() as { busy: number }
          return busy
        } finally {
          database.close()
        }
      },
      hold: async () => {
        const database = new Database(path, { timeout: 5000 })
        database.exec('begin immediate')
        return async () => {
          database.exec('commit')
          database.close()
        }
      },
      million: `
        insert into items (id, name, price)
        with recursive n (n) as (select 2 union all select n + 1 from n where n < 1000000) select n, 'number ' || n, n + 0.25 from n`
    })
  })

  onPostgres(name, async (t, server) => {
    const url = server.database()
    const sql = (sql: string) => server.query(sql, url)
    await run(t, {
      url,
      sql,
      crash: server.crash,
      transactions: async () => Number((await sql('select count(distinct xmin::text) from items'))[0]?.count),
      openLists: async () => {
        const [row] = await sql('select count(*) from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and datname is not null')
        return Number(row?.count)
      },
      refuseNegative: 'alter table items add check (price >= 0)',
      hold: async () => {
        const client = new pg.Client(url)
        await client.connect()
        await client.query('begin; lock table items in exclusive mode')
        return async () => {
          await client.query('commit')
          await client.end()
        }
      },
      million: "insert into items (id, name, price) select n, 'number ' || n, n + 0.25 from generate_series(2, 1000000) as n"
    })
  })
}

/** Runs a test on the PostgreSQL server. */
function onPostgres (name: string, run: (t: Test, server: Postgres) => Promise<void>) {
  test(`on PostgreSQL, ${name}`, { skip: !postgres && 'PostgreSQL does not start' }, async t => {
    if (postgres) await run(t, postgres)
  })
}

/** The frames of a write-ahead log that end a transaction: they tell the size of the database. */
function commits (log: Buffer) {
  const pageSize = log.readUInt32BE(8)
  let count = 0
  for (let at = 32; at < log.length; at += 24 + pageSize) if (log.readUInt32BE(at + 4) > 0) count++
  return count
}

const json = { 'content-type': 'application/json' }
const item = (id: number, price = 1.5) => ({ id, name: `number ${id}`, price })
const things = { name: 'things', schema: Item, seed: [item(1)] }
const unavailable = { message: 'The database cannot serve for the moment' }

onDatabases('writes that come together share transactions, and a record that is refused fails alone', async (t, { url, sql, transactions, refuseNegative }) => {
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
    : { statusCode: 400, body: JSON.stringify(invalidBody('body', ['', 'is refused by the database'])) }))
  t.same((await app.inject('/api/items')).json().slice(201), mixed.filter(({ price }) => price > 0))
})

onDatabases('after kills, everything is sent again with its key, and is there once', async (t, { url, crash }) => {
  const asked = new Map<number, string>()
  let next = 2
  let created = 0
  const post = (api: string, id: number) => fetch(api, {
    method: 'POST', headers: { ...json, 'idempotency-key': String(asked.get(id)) }, body: JSON.stringify({ id, name: `number ${id}` })
  })

  for (let round = 1; round <= 4; round++) {
    const server = start(t, { DATABASE_URL: url, DOCS: 'false' }, { built: true })
    const api = `${await server.url}/api/users`
    const clients = Array.from({ length: 16 }, async () => {
      while (!server.process.killed) {
        const id = next++
        asked.set(id, `key-${id}`)
        const { status } = await post(api, id).catch(() => ({ status: 0 }))
        if (status === 201) created++
      }
    })
    const enough = created + 20
    await until(async () => created >= enough)
    await sleep(Math.random() * 300)
    if (round % 2 === 0) await crash()
    server.process.kill('SIGKILL')
    await Promise.all([...clients, server.exit])
  }

  const server = start(t, { DATABASE_URL: url, DOCS: 'false' }, { built: true })
  const api = `${await server.url}/api/users`
  const found = ((await (await fetch(api)).json()) as { id: number }[]).length - 1
  for (const id of asked.keys()) t.equal((await post(api, id)).status, 201)
  const users = (await (await fetch(api)).json()) as { id: number }[]
  t.ok(found >= 80, `${found} of ${asked.size} were there before they were sent again`)
  t.same(users.map(({ id }) => id).sort((a, b) => a - b), [1, ...asked.keys()])
})

onDatabases('a key whose first request waits for the database is 409, and what is refused uses no key', async (t, { url, sql, hold, refuseNegative }) => {
  const apps = [1, 2].map(() => build(t, { DATABASE_URL: url }))
  const post = (app = apps[0], payload = item(7)) =>
    app?.inject({ method: 'POST', url: '/api/items', payload, headers: { 'idempotency-key': 'a' } })
  await Promise.all(apps.map(app => app.ready()))
  await sql(refuseNegative)
  t.equal((await post(apps[0], item(7, -1)))?.statusCode, 400)

  const release = await hold()
  const first = post()
  await sleep(200)
  const second = await post()
  t.equal(second?.statusCode, 409)
  t.same(second?.json(), { detail: 'A request with this Idempotency-Key is being served' })
  // SQLite has one writer, so another process waits for its turn, and learns then what the first one did.
  const elsewhere = post(apps[1])
  await sleep(200)
  await release()
  t.equal((await first)?.statusCode, 201)
  t.equal((await elsewhere)?.statusCode, url.startsWith('sqlite') ? 201 : 409)
  t.equal((await post(apps[1]))?.statusCode, 201)
  t.equal((await apps[0]?.inject('/api/items'))?.json().length, 2)
})

onDatabases('a page costs the same at the start and at the end of a million', async (t, { url, sql, million }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  await sql(million)
  const pageAt = (position: number) => `/api/items?limit=100&after=${Buffer.from(String(position)).toString('base64url')}`
  const spend = async (position: number) => {
    let least = Infinity
    for (let n = 0; n < 30; n++) {
      const start = performance.now()
      const response = await app.inject(pageAt(position))
      least = Math.min(least, performance.now() - start)
      t.equal(response.json()[0].id, position + 1)
    }
    return least
  }
  await spend(0)
  const [first, last] = [await spend(0), await spend(999_000)]
  t.ok(last < first * 3, `${last / first} times as long at the end`)
})

onDatabases('large records that come together are written in groups that fit in memory', async (t, { url, transactions }) => {
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

onDatabases('HEAD on a long list does not read it, and a list that nobody reads is given up', async (t, { url, sql, million, openLists }) => {
  const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '200' })
  app.addHook('onSend', async (request, _reply, payload) => request.headers['x-replace'] ? 'replaced' : payload)
  await app.ready()
  await sql(million.replaceAll('1000000', '50000'))
  for (let n = 0; n < 80; n++) t.equal((await app.inject({ method: 'HEAD', url: '/api/items' })).statusCode, 200)
  await until(async () => await openLists() === 0)
  for (let n = 0; n < 3; n++) t.equal((await app.inject({ url: '/api/items', headers: { 'x-replace': '1' } })).body, 'replaced')
  t.ok(await openLists() > 0)
  await until(async () => await openLists() === 0)
  t.pass('given up')
})

onDatabases('a list that is being read when the service closes is read to its end', async (t, { url, sql, million }) => {
  const server = start(t, { DATABASE_URL: url, DOCS: 'false' }, { built: true })
  const api = `${await server.url}/api/items`
  await sql(million.replaceAll('1000000', '200000'))
  const { begun, list } = reader(api, 'new (require("node:http").Agent)({ keepAlive: true })')
  await begun
  server.process.kill('SIGTERM')
  t.match(await list, { length: 200_000 })
  const ended = performance.now()
  t.same(await server.exit, [0, null])
  t.ok(performance.now() - ended < 3000)
})

onDatabases('ten instances that start at once create the collections once, and never again', async (t, { url, sql }) => {
  const servers = Array.from({ length: 10 }, () => start(t, { DATABASE_URL: url, DOCS: 'false' }, { built: true }))
  const [first] = await Promise.all(servers.map(server => server.url))
  t.same(await fetch(`${first}/api/users`).then(response => response.json()), [{ id: 1, name: 'Ada' }])
  t.equal((await fetch(`${first}/api/users/1`, { method: 'DELETE' })).status, 204)
  for (const server of servers) server.process.kill('SIGTERM')
  for (const server of servers) t.same(await server.exit, [0, null])

  const app = build(t, { DATABASE_URL: url })
  t.equal((await app.inject('/api/users')).body, '[]', 'what was deleted stays so')
  t.same((await app.inject('/api/items')).json(), [{ id: 1, name: 'Lamp', price: 42.5 }])
  t.same(await sql("select * from collections where name in ('items', 'users') order by name"), [{ name: 'items', version: 1 }, { name: 'users', version: 1 }])
})

onDatabases('a person can query the columns by their types', async (t, { url, sql }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.inject({ method: 'POST', url: '/api/items', payload: { id: 7, name: 'Kettle', price: 0.1 } })
  const rows = await sql('select position, id, name, price from items where price < 1 and name like \'K%\' and id > 5')
  t.same(rows.map(Object.values).map(values => values.map(String)), [['2', '7', 'Kettle', '0.1']])
})

onDatabases('a database of an older version is brought up, and one of a newer version is refused', async (t, { url, sql }) => {
  const upgrades = ["alter table things add column colour text not null default 'red'", "update things set colour = 'blue' where id = 2"]
  for (const version of [1, 2, 3, 3]) {
    const engine = await engineAt(url, databaseDefaults)
    const store = await engine.open({ ...things, upgrades: upgrades.slice(0, version - 1) })
    await store.append(item(version))
    await engine.close()
    t.same(await sql("select version from collections where name = 'things'"), [{ version }])
  }
  t.same((await sql('select id, colour from things order by position')).map(({ id, colour }) => `${id} ${colour}`),
    ['1 red', '1 red', '2 blue', '3 red', '3 red'])
  const older = await engineAt(url, databaseDefaults)
  await t.rejects(Promise.resolve(older.open(things)), {
    message: 'The collection things is at version 3, made by a newer release; this one knows it up to 1.'
  })
  await older.close()

  await build(t, { DATABASE_URL: url }).ready()
  await sql("update collections set version = 9 where name = 'users'")
  const server = start(t, { DATABASE_URL: url })
  t.same(await server.exit, [1, null])
  t.equal(server.output(), '')
  t.equal(server.errors(), 'The collection users is at version 9, made by a newer release; this one knows it up to 1.\n')
})

onDatabases('a table of somebody else is left alone', async (t, { url, sql }) => {
  await sql('create table users (name text)')
  const server = start(t, { DATABASE_URL: url }, { built: true })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot open the database: .*"?users"? already exists.*\.\n$/)
  t.same(await sql('select * from users'), [])
})

onDatabases('a table that is lost is a 500, which a try again does not mend', async (t, { url, sql }) => {
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  await sql('drop table items')
  for (const request of ['/api/items', '/api/items/1', { method: 'POST', url: '/api/items', payload: item(1) } as const]) {
    const response = await app.inject(request)
    t.equal(response.statusCode, 500)
    t.equal(response.body, '{"detail":"Internal server error"}')
  }
})

onDatabases('a million items are listed in little memory, as of one instant, and others do not wait', async (t, { url, sql, million }) => {
  await build(t, { DATABASE_URL: url }).ready()
  await sql(million)
  // A list is 45 MB; were it held anywhere, this heap would not do.
  const server = start(t, { DATABASE_URL: url, DOCS: 'false' }, { built: true, flags: ['--max-old-space-size=40'] })
  const api = `${await server.url}/api/items`
  const { begun, list } = reader(api)
  await begun
  await fetch(api, { method: 'POST', headers: json, body: JSON.stringify(item(0)) })

  const times: number[] = []
  while (await Promise.race([list, sleep(5)]) === undefined) {
    const began = performance.now()
    const { status } = await fetch(`${api}/${1 + times.length}`)
    times.push(performance.now() - began)
    if (status !== 200) t.fail(`GET one answers ${status}`)
  }
  t.same(await list, {
    length: 1_000_000,
    first: '[{"id":1,"name":"Lamp","price":42.5}',
    last: '{"id":1000000,"name":"number 1000000","price":1000000.25}]'
  })
  const [median, p99] = [0.5, 0.99].map(part => times.sort((a, b) => a - b)[Math.floor(times.length * part)])
  t.ok(Number(median) < 50, `GET one took ${median} ms beside the list, and ${p99} ms at the 99th percentile of ${times.length}`)
  const [, peak] = readFileSync(`/proc/${server.process.pid}/status`, 'utf8').match(/VmHWM:\s+(\d+)/) ?? []
  t.ok(Number(peak) < 250 * 1024, `${Number(peak) / 1024} MB at most`)
})

/** A process that reads a list without keeping it. It says when it has begun and, in the end, what it has seen. */
function reader (url: string, agent = 'undefined') {
  const child = spawn(process.execPath, ['-e', `require('node:http').get('${url}', { agent: ${agent} }, response => {
    let length = 0, first, last = ''
    console.log()
    response.setEncoding('latin1').on('data', text => {
      first ??= text.slice(0, text.indexOf('}') + 1)
      for (let at = -1; (at = text.indexOf('}', at + 1)) >= 0;) length++
      last = (last + text).slice(-100)
    }).on('end', () => console.log(JSON.stringify({ length, first, last: last.slice(last.lastIndexOf('{')) })))
  })`], { stdio: ['ignore', 'pipe', 'inherit'] })
  const begun = once(child.stdout, 'data')
  return { begun, list: begun.then(() => text(child.stdout)).then(JSON.parse) }
}

onDatabases('a client that leaves, or stops reading, frees what its list holds', async (t, { url, sql, million, openLists }) => {
  const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '200' })
  await app.ready()
  await sql(million)
  await app.listen()
  const { port } = app.server.address() as AddressInfo

  for (let n = 0; n < 20; n++) {
    const gone = new AbortController()
    const response = fetch(`http://127.0.0.1:${port}/api/items`, { signal: gone.signal })
    if (n % 2) await response
    setTimeout(() => gone.abort(), n)
    await response.then(({ body }) => body?.pipeTo(new WritableStream())).catch(() => {})
  }
  await until(async () => await openLists() === 0)
  t.pass('clients have left')

  const idle = connect(port, '127.0.0.1').pause()
  idle.write('GET /api/items HTTP/1.1\r\nHost: x\r\n\r\n')
  await until(async () => await openLists() > 0)
  const began = performance.now()
  await until(async () => await openLists() === 0)
  t.ok(performance.now() - began > 1000, 'a client that does not read has some time to do so')
  idle.resume()
  await once(idle, 'close')
  t.pass('and is told that the list does not end')
})

async function until (condition: () => Promise<boolean>) {
  while (!await condition()) await sleep(20)
}

test('on SQLite, a closed service leaves one file, whatever its name', async t => {
  const folder = newFolder(t)
  for (const name of ['items.db', ':memory:', 'file:items?mode=memory', 'http:items']) {
    const app = build(t, { DATABASE_URL: `sqlite:${folder}/${name}` })
    await app.inject({ method: 'POST', url: '/api/items', payload: item(7) })
    await app.close()
    copyFileSync(`${folder}/${name}`, `${folder}/copy.db`)
    const copy = build(t, { DATABASE_URL: `sqlite:${folder}/copy.db` })
    t.same((await copy.inject('/api/items/7')).json(), item(7), name)
    await copy.close()
  }
})

test('on SQLite, what is refused by a rollback fails its whole group, and nothing of it is stored', async t => {
  const path = `${newFolder(t)}/items.db`
  const app = build(t, { DATABASE_URL: `sqlite:${path}` })
  await app.ready()
  const other = new Database(path)
  other.exec("create trigger refuse before insert on items when new.price < 0 begin select raise(rollback, 'negative'); end")
  other.close()
  const answers = await Promise.all([1, 1, -1, 1].map((price, n) =>
    app.inject({ method: 'POST', url: '/api/items', payload: item(10 + n, price) })))
  t.same(answers.map(({ statusCode }) => statusCode), [500, 500, 500, 500])
  t.equal((await app.inject('/api/items')).json().length, 1)
})

test('on SQLite, a file that is removed is not written to', async t => {
  const folder = newFolder(t)
  const engine = await engineAt(`sqlite:${folder}/items.db`, { timeout: 100, poolSize: 2 })
  t.teardown(engine.close)
  const store = await engine.open<Item>({ ...things, seed: [] })
  await Promise.all(Array.from({ length: 2000 }, (_, n) => store.append(item(n))))
  await engine.check()
  renameSync(`${folder}/items.db`, `${folder}/moved.db`)
  t.throws(() => engine.check(), unavailable)
  await t.rejects(Promise.resolve(store.append(item(1))), unavailable)
  await t.rejects(Promise.resolve(store.list()), unavailable)
  renameSync(`${folder}/moved.db`, `${folder}/items.db`)
  t.equal(await store.append(item(1)), JSON.stringify(item(1)))
})

test('on SQLite, no list holds the event loop for long', async t => {
  const engine = await engineAt(`sqlite:${newFolder(t)}/items.db`, databaseDefaults)
  t.teardown(engine.close)
  const store = await engine.open<Item>({ ...things, seed: [] })
  await Promise.all(Array.from({ length: 100_000 }, (_, n) => store.append(item(n))))
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  await Promise.all(Array.from({ length: 4 }, async () => {
    for await (const piece of await store.list() as Readable) t.ok(piece.length > 0)
  }))
  delay.disable()
  const p99 = delay.percentile(99) / 1e6
  t.ok(p99 < 20, `it is held for ${p99} ms at the 99th percentile, and for ${delay.max / 1e6} ms at most`)
})

test('on SQLite, so many lists are read at once, and one more is asked to come again', async t => {
  const engine = await engineAt(`sqlite:${newFolder(t)}/items.db`, databaseDefaults)
  t.teardown(engine.close)
  const store = await engine.open<Item>({ ...things, seed: [] })
  await Promise.all(Array.from({ length: 2000 }, (_, n) => store.append(item(n))))
  const open = async () => await store.list() as Readable
  const lists = await Promise.all(Array.from({ length: 64 }, open))
  await t.rejects(Promise.resolve(store.list()), unavailable)
  await text(lists[0] as Readable)
  lists[1]?.destroy()
  await sleep(10)
  for (let n = 0; n < 2; n++) lists.push(await open())
  await t.rejects(Promise.resolve(store.list()), unavailable)
  for (const list of lists) list.destroy()
})

test('on SQLite, while another process writes, reads go on; writes wait, and are asked to come again', async t => {
  const path = `${newFolder(t)}/items.db`
  const app = build(t, { DATABASE_URL: `sqlite:${path}`, DATABASE_TIMEOUT: '300' })
  await app.ready()
  const other = new Database(path)
  const post = (id: number) => app.inject({ method: 'POST', url: '/api/items', payload: item(id) })

  other.exec('begin immediate')
  const began = performance.now()
  const [refused, another] = [post(2), post(3)]
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.equal((await app.inject('/readyz')).statusCode, 200)
  t.ok(performance.now() - began < 300)
  for (const response of [await refused, await another]) {
    t.equal(response.statusCode, 503)
    t.equal(response.headers['retry-after'], '1')
    t.equal(response.body, '{"detail":"The database cannot serve for the moment"}')
  }
  const patient = post(4)
  await sleep(50)
  other.exec('commit')
  t.equal((await patient).statusCode, 201)
  t.same((await app.inject('/api/items')).json().slice(1), [item(4)])
  other.close()
})

onPostgres('what one instance acknowledges, the others give in their next answer', async (t, server) => {
  const env = { DATABASE_URL: server.database(), DOCS: 'false' }
  const urls = await Promise.all([1, 2, 3].map(() => start(t, env, { built: true }).url))
  for (let id = 100; id < 150; id++) {
    const [one, ...others] = [0, 1, 2].map(n => `${urls[(id + n) % 3]}/api/users`)
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
  const twins = Array.from({ length: 30 }, (_, n) => fetch(`${urls[n % 3]}/api/users`, { method: 'POST', headers: json, body: '{"id":7,"name":"twin"}' }))
  await Promise.all(twins)
  const removals = await Promise.all(Array.from({ length: 40 }, (_, n) => fetch(`${urls[n % 3]}/api/users/7`, { method: 'DELETE' })))
  t.equal(removals.filter(({ status }) => status === 204).length, 30, 'each removal removes one')
  t.equal(removals.filter(({ status }) => status === 404).length, 10)
})

onPostgres('while the server hangs, is down, or has cut the connections, answers are 503 in time; then all is well again', async (t, server) => {
  const url = server.database()
  const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '500' })
  const requests = [
    '/api/items', '/api/items/1', '/readyz',
    { method: 'POST', url: '/api/items', payload: item(2) },
    { method: 'DELETE', url: '/api/users/1' }
  ] as const
  const acknowledged = [1]
  await serves()

  server.signal('SIGSTOP')
  await refuses()
  await refuses()
  server.signal('SIGCONT')
  await serves()

  await server.stop()
  await refuses()
  await server.run()
  await serves()

  await server.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fastify-items-users'")
  await serves()

  const ids: number[] = (await app.inject('/api/items')).json().map(({ id }: Item) => id)
  t.same(ids.filter(id => id !== 2), acknowledged, 'what was acknowledged is there, once')

  async function refuses () {
    const began = performance.now()
    const responses = await Promise.all([...requests, ...requests].map(request => app.inject(request as string)))
    t.ok(performance.now() - began < 1500, `${performance.now() - began} ms`)
    for (const response of responses) {
      t.equal(response.statusCode, 503)
      t.equal(response.headers['retry-after'], '1')
      t.equal(response.body, '{"detail":"The database cannot serve for the moment"}')
    }
    t.equal((await app.inject('/livez')).statusCode, 200)
  }

  async function serves () {
    await until(async () => (await app.inject('/readyz')).statusCode === 200)
    const id = 100 + acknowledged.length
    const { statusCode } = await app.inject({ method: 'POST', url: '/api/items', payload: item(id) })
    t.equal(statusCode, 201)
    acknowledged.push(id)
    for (const request of requests.slice(0, 3)) t.equal((await app.inject(request as string)).statusCode, 200)
  }
})

onPostgres('what a trigger refuses fails alone, and costs no connection', async (t, server) => {
  const url = server.database()
  const app = build(t, { DATABASE_URL: url })
  await app.ready()
  await server.query(`
    create function refuse() returns trigger as $$ begin raise exception 'negative'; end $$ language plpgsql;
    create trigger refuse before insert on items for each row when (new.price < 0) execute function refuse()`, url)
  const post = (id: number, price: number) => app.inject({ method: 'POST', url: '/api/items', payload: item(id, price) })
  const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => post(n, n % 10 ? 1 : -1)))
  t.same(answers.map(({ statusCode }) => statusCode), Array.from({ length: 100 }, (_, n) => n % 10 ? 201 : 400))
  const sessions = () => server.query("select max(pid) from pg_stat_activity where application_name = 'fastify-items-users'", url)
  const before = await sessions()
  for (let n = 0; n < 20; n++) t.equal((await post(n, -1)).statusCode, 400)
  t.same(await sessions(), before)
})

onPostgres('so many lists are read at once; one more waits, and is asked to come again', async (t, server) => {
  const engine = await engineAt(server.database(), { timeout: 1500, poolSize: 4 })
  t.teardown(engine.close)
  const store = await engine.open<Item>({ ...things, seed: [] })
  await Promise.all(Array.from({ length: 5000 }, (_, n) => store.append(item(n))))
  const open = async () => await store.list() as Readable
  const [first, second] = [await open(), await open()]
  await t.rejects(Promise.resolve(store.list()), unavailable)
  const third = open()
  first.destroy()
  t.equal(await text(await third), await text(second))
  t.equal(await store.first(1), JSON.stringify(item(1)))
})

onPostgres('a list whose connection is cut is a 503, or ends where it is', async (t, server) => {
  const url = new URL(server.database())
  const port = Number(url.port)
  let cutAt = 'nothing'
  const proxy = createServer(client => {
    const upstream = connect(port, '127.0.0.1')
    client.on('data', data => data.includes(cutAt) ? upstream.destroy() : upstream.write(data))
    upstream.on('data', data => client.write(data)).on('close', () => client.destroy())
    client.on('close', () => upstream.destroy()).on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  t.teardown(() => proxy.close())
  url.port = String((proxy.address() as AddressInfo).port)
  const engine = await engineAt(url.href, { timeout: 1000, poolSize: 4 })
  t.teardown(engine.close)
  const store = await engine.open<Item>({ ...things, seed: [] })
  await Promise.all(Array.from({ length: 5000 }, (_, n) => store.append(item(n))))

  cutAt = 'begin isolation'
  await t.rejects(Promise.resolve(store.list()), unavailable)
  cutAt = 'nothing'
  const list = await store.list() as Readable
  cutAt = 'piece'
  await t.rejects(text(list), unavailable)
  cutAt = 'nothing'
  t.equal((await text(await store.list() as Readable)).split('}').length, 5001)

  cutAt = 'create sequence'
  const { id, ...fields } = item(1)
  await t.rejects(Promise.resolve(store.append(fields)), unavailable)
  cutAt = 'nothing'
  t.equal(await store.append(fields), JSON.stringify(item(5000)).replace('number 5000', 'number 1'))
  t.equal(await store.first(5000), JSON.stringify(item(5000)).replace('number 5000', 'number 1'))
  cutAt = 'pg_try_advisory'
  await t.rejects(Promise.resolve(store.append(item(1), 'key')), unavailable)
  cutAt = 'nothing'
  t.equal(await store.append(item(1), 'key'), JSON.stringify(item(1)))

  const large = await engine.open<Item>({ ...things, name: 'large', seed: [] })
  for (let n = 0; n < 20; n++) await large.append({ ...item(n), name: 'x'.repeat(100_000) })
  cutAt = 'limit 2 offset'
  await t.rejects(Promise.resolve(large.page(15)), unavailable)
  cutAt = 'nothing'
  t.equal(JSON.parse(await text((await large.page(15)).list as Readable)).length, 15)
})

test('a database that cannot be opened is one clear line, and no password in it', async t => {
  const folder = newFolder(t)
  writeFileSync(`${folder}/text`, 'no database, but a text that is long enough to be taken for one'.repeat(100))
  const noDriver = (name: string) => `import { register } from 'node:module'
    register('data:text/javascript,' + encodeURIComponent(\`export function resolve (name, context, next) {
      return next(name === '${name}' ? 'not-installed' : name, context)
    }\`))`
  const [user, rest] = postgres ? postgres.url.split('open%20sesame') : []
  for (const [url, message, script] of [
    ['sqlite:/proc/items.db', /^Cannot open the database: ENOENT.*\/proc\/items.db'\.\n$/],
    [`sqlite:${folder}`, /^Cannot open the database: EISDIR.*\.\n$/],
    [`sqlite:${folder}/text`, 'Cannot open the database: file is not a database.\n'],
    ['postgres://ada:sesame@127.0.0.1:1/items', 'Cannot open the database: connect ECONNREFUSED 127.0.0.1:1.\n'],
    ['postgres://ada:sesame@localhost:1/items', /^Cannot open the database: .*ECONNREFUSED.*\.\n$/],
    ['postgres://ada:sesame@nowhere.invalid/items', /^Cannot open the database: getaddrinfo .* nowhere.invalid\.\n$/],
    ['postgres://ada:sesame@[/items', /^Cannot open the database: .*\.\n$/],
    ...user ? [[`${user}sesame${rest}`, 'Cannot open the database: password authentication failed for user "ada".\n']] as const : [],
    ['sqlite:./items.db', 'What is configured needs the package libsql, which is not installed; npm install libsql does it.\n', noDriver('libsql')],
    ['postgres://ada:sesame@db/items', 'What is configured needs the package pg, which is not installed; npm install pg does it.\n', noDriver('pg')]
  ] as const) {
    const server = start(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '1000' }, { built: true, script })
    t.same(await server.exit, [1, null], url)
    t.equal(server.output(), '')
    if (typeof message === 'string') t.equal(server.errors(), message)
    else t.match(server.errors(), message)
    t.notMatch(server.errors(), 'sesame')
  }
})

test('however many wait for a database that does not answer, all are told', async t => {
  const call = batch(async (_inputs: number[]): Promise<number[]> => { throw new Unavailable(new Error('gone')) })
  const outcomes = await Promise.allSettled(Array.from({ length: 200_000 }, (_, n) => call(n)))
  t.ok(outcomes.every(({ status }) => status === 'rejected'))
})

test('a package that is not installed is named, and any other failure to load one is not hidden', async t => {
  const require = createRequire(import.meta.url)
  const name = 'not-installed'
  await t.rejects(withDriver(name, async () => require(name)), {
    message: 'What is configured needs the package not-installed, which is not installed; npm install not-installed does it.'
  })
  await t.rejects(withDriver('broken', async () => { throw new Error('broken') }), { message: 'broken' })
})

test('a server that accepts and says nothing is given up on in time', async t => {
  const silent = createServer().listen(0, '127.0.0.1')
  t.teardown(() => silent.close())
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  const server = start(t, { DATABASE_URL: `postgres://ada:sesame@127.0.0.1:${port}/items`, DATABASE_TIMEOUT: '300' })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), 'Cannot open the database: timeout expired.\n')
})
