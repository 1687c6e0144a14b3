import { once } from 'node:events'
import { copyFileSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer, type AddressInfo } from 'node:net'
import { dirname } from 'node:path'
import { test } from 'tap'
import { openEngine } from '../../plugins/stores.js'
import { canShare } from '../../plugins/stores/sqlite/file.js'
import { StartupError } from '../../plugins/startup.js'
import { Item } from '../../schemas/item.js'
import { item, onPostgres, postgres, things, unavailable } from '../support/databases.js'
import { opened, patient } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { start, withoutPackage } from '../support/process.js'
import { startProxy } from '../support/proxy.js'
import { openSqlite } from '../support/sql.js'
import { until } from '../support/until.js'

test('on SQLite, after a shutdown everything is in one file, whatever its name', async t => {
  for (const name of ['items.db', ':memory:', 'file:items?mode=memory', 'http:items', "o'clock"]) {
    const folder = newFolder(t)
    const app = build(t, { DATABASE_URL: `sqlite:${folder}/${name}` })
    await Promise.all(Array.from({ length: 1200 }, (_, n) => app.inject({ method: 'POST', url: '/api/items', payload: item(n + 7) })))
    t.equal((await app.inject('/api/items')).json().length, 1201, 'a long list has its own connection')
    await app.close()
    t.same(readdirSync(folder), [name])
    copyFileSync(`${folder}/${name}`, `${folder}/copy.db`)
    const copy = build(t, { DATABASE_URL: `sqlite:${folder}/copy.db` })
    t.same((await copy.inject('/api/items/7')).json(), item(7), name)
    await copy.close()
  }
})

test('on SQLite, a file that is not a database is left unchanged, and is not locked', async t => {
  const path = `${newFolder(t)}/items.db`
  writeFileSync(path, 'no database'.repeat(100))
  for (let n = 0; n < 2; n++) await t.rejects(openEngine(`sqlite:${path}`, patient), { message: 'file is not a database' })
  t.same(readdirSync(dirname(path)), ['items.db'])
  rmSync(path)
  await (await openEngine(`sqlite:${path}`, patient)).close()
})

test('on SQLite, apps with files in one new folder start at the same time', async t => {
  const folder = `${newFolder(t)}/new/folder`
  const engines = await Promise.all(['a', 'b', 'c'].map(name => openEngine(`sqlite:${folder}/${name}.db`, patient)))
  for (const { close } of engines) await close()
  t.same(readdirSync(folder), ['a.db', 'b.db', 'c.db'])
})

test('on SQLite, an app can be closed while another one uses the file', async t => {
  const path = `${newFolder(t)}/items.db`
  const first = build(t, { DATABASE_URL: `sqlite:${path}` })
  const second = build(t, { DATABASE_URL: `sqlite:${path}` })
  await Promise.all([first.ready(), second.ready()])
  await first.close()
  t.equal((await second.inject({ method: 'POST', url: '/api/items', payload: item(7) })).statusCode, 201)
  await second.close()
  t.same((await build(t, { DATABASE_URL: `sqlite:${path}` }).inject('/api/items/7')).json(), item(7))
})

test('on SQLite, a record that a trigger rejects fails alone and is not stored, however it is rejected', async t => {
  for (const action of ['abort', 'fail', 'rollback']) {
    const path = `${newFolder(t)}/items.db`
    const app = build(t, { DATABASE_URL: `sqlite:${path}` })
    await app.ready()
    const other = openSqlite(path, 0)
    other.exec(`create trigger refuse after insert on items when new.price < 0 begin select raise(${action}, 'negative'); end`)
    other.close()
    const answers = await Promise.all([1, 1, -1, 1].map((price, n) =>
      app.inject({ method: 'POST', url: '/api/items', payload: item(10 + n, price), headers: { 'idempotency-key': String(n) } })))
    t.same(answers.map(({ statusCode }) => statusCode), [201, 201, 400, 201], action)
    t.same((await app.inject('/api/items')).json().map(({ id }: Item) => id), [1, 10, 11, 13])
  }
})

test('on SQLite, a change is visible only when it is committed', async t => {
  const path = `${newFolder(t)}/items.db`
  const engine = await openEngine(`sqlite:${path}`, patient)
  t.teardown(engine.close)
  const store = await opened<Item>(engine, things)
  const other = openSqlite(path, 0)
  t.teardown(() => other.close())
  const seen: unknown[] = []
  await store.change(1, () => {
    Promise.resolve().then(() => seen.push(JSON.parse(String(store.first(1))).price, ...other.prepare('select price from things').get() as number[]))
    return item(1, 7)
  })
  t.same(seen, [7, 7])
})

test('on SQLite, writes to a removed file are answered with 503', async t => {
  const folder = newFolder(t)
  const engine = await openEngine(`sqlite:${folder}/items.db`, { timeout: 100, poolSize: 2 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...things, seed: [] })
  await Promise.all(Array.from({ length: 2000 }, (_, n) => store.append(item(n))))
  await engine.check()
  renameSync(`${folder}/items.db`, `${folder}/moved.db`)
  await t.rejects(Promise.resolve(engine.check()), unavailable)
  await t.rejects(Promise.resolve(store.append(item(1))), unavailable)
  await t.rejects(Promise.resolve(store.select({})), unavailable)
  renameSync(`${folder}/moved.db`, `${folder}/items.db`)
  t.equal(await store.append(item(1)), JSON.stringify(item(1)))
})

const canShareFiles = canShare(openSqlite(':memory:', 0))

test('on SQLite before 3.51.3, a second process on the same file is refused, and a process that was killed does not block the next one', { skip: canShareFiles && 'this Node.js has a newer SQLite' }, async t => {
  const path = `${newFolder(t)}/items.db`
  const first = start(t, { DATABASE_URL: `sqlite:${path}` }, { built: true })
  await first.url
  symlinkSync(path, `${path}-link`)
  const second = start(t, { DATABASE_URL: `sqlite:${path}-link` }, { built: true })
  t.same(await second.exit, [1, null])
  t.equal(second.errors(), `The SQLite file ${path} in DATABASE_URL is used by another process. Stop it, or use PostgreSQL for several instances.\n`)
  first.process.kill('SIGKILL')
  await first.exit
  t.equal((await build(t, { DATABASE_URL: `sqlite:${path}` }).inject('/readyz')).statusCode, 200)
})

test('on SQLite 3.51.3 or newer, two processes use one file, and one of them can be stopped or killed', { skip: !canShareFiles && 'this Node.js has an older SQLite' }, async t => {
  const path = `${newFolder(t)}/items.db`
  const instances = [1, 2, 3].map(() => start(t, { DATABASE_URL: `sqlite:${path}`, ID_SOURCE: 'server' }, { built: true }))
  const [first = '', second = '', third = ''] = await Promise.all(instances.map(({ url }) => url))
  const ids = (await Promise.all(Array.from({ length: 300 }, (_, n) => create([first, second, third][n % 3] ?? '')))).sort((a, b) => a - b)
  t.same(ids, Array.from({ length: 300 }, (_, n) => n + 2))
  instances[0]?.process.kill('SIGTERM')
  instances[1]?.process.kill('SIGKILL')
  await Promise.all(instances.slice(0, 2).map(({ exit }) => exit))
  t.equal(await create(third), 302)
  t.equal((await fetch(`${third}/readyz`)).status, 200)
  t.equal((await (await fetch(`${third}/api/items`)).json() as unknown[]).length, 302)

  async function create (url: string) {
    const response = await fetch(`${url}/api/items`, { method: 'POST', body: '{"name":"Kettle","price":1}' })
    return (await response.json() as Item).id
  }
})

test('on SQLite, a path that is not clear and a file that is locked are startup errors', async t => {
  for (const name of [':memory:', '//data/items.db', '///data/items.db']) await t.rejects(openEngine(`sqlite:${name}`, patient), { code: 'ERR_STARTUP' }, name)
  const path = `${newFolder(t)}/new/folder/items.db`
  await (await openEngine(`sqlite:${path}`, patient)).close()
  const lock = openSqlite(`${path}-lock`, 0)
  lock.exec('begin exclusive')
  await t.rejects(openEngine(`sqlite:${path}`, patient), { message: /is used by another process/ })
  lock.close()
  writeFileSync(`${path}-lock`, 'no database'.repeat(100))
  await t.rejects(openEngine(`sqlite:${path}`, patient), { message: 'file is not a database' })
})

test('on SQLite, writes get 503 after the WAL or its index was removed; a restart loses nothing, and keeps a file that was restored meanwhile', async t => {
  for (const [removed, isRestored] of [['wal', false], ['wal', true], ['shm', false]] as const) {
    const path = `${newFolder(t)}/items.db`
    symlinkSync(path, `${path}-link`)
    const server = start(t, { DATABASE_URL: `sqlite:${path}-link` })
    const url = await server.url
    const post = async (id: number) => (await fetch(`${url}/api/items`, { method: 'POST', body: JSON.stringify(item(id)) })).status
    const backup = openSqlite(path, 0)
    backup.exec(`vacuum into '${path}.backup'`)
    backup.close()
    t.equal(await post(2), 201)
    rmSync(`${path}-${removed}`)
    await sleep(20) // the time of a file is not more exact
    if (isRestored) copyFileSync(`${path}.backup`, path)
    t.equal((await fetch(`${url}/readyz`)).status, 503)
    t.equal(await post(3), 503)
    server.process.kill('SIGTERM')
    await server.exit
    const restarted = build(t, { DATABASE_URL: `sqlite:${path}` })
    t.same((await restarted.inject('/api/items')).json().map(({ id }: Item) => id), isRestored ? [1] : [1, 2])
  }
})

test('on SQLite, while another process writes, reads work, and writes wait and then get 503', async t => {
  const path = `${newFolder(t)}/items.db`
  const app = build(t, { DATABASE_URL: `sqlite:${path}`, DATABASE_TIMEOUT: '5000' })
  await app.ready()
  const other = openSqlite(path, 0)
  const post = (id: number) => app.inject({ method: 'POST', url: '/api/items', payload: item(id) })

  other.exec('begin immediate')
  const [refused, another] = [post(2), post(3)]
  let hasWaited = true
  refused.then(() => { hasWaited = false })
  t.equal((await app.inject('/api/items')).statusCode, 200)
  t.ok(hasWaited, 'reads are answered before writes are refused')
  t.equal((await app.inject('/readyz')).statusCode, 503)
  for (const response of [await refused, await another]) {
    t.equal(response.statusCode, 503)
    t.equal(response.headers['retry-after'], '1')
    t.equal(response.body, '{"detail":"The database is unavailable"}')
  }
  const patient = post(4)
  t.equal((await app.inject('/api/items')).statusCode, 200)
  other.exec('commit')
  t.equal((await patient).statusCode, 201)
  t.same((await app.inject('/api/items')).json().slice(1), [item(4)])
  other.close()
})

onPostgres('while the server hangs, is down, or has closed the connections, responses are 503 in time; then the service recovers', async (t, server) => {
  const url = server.database()
  const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '3000' })
  const requests = [
    '/api/items', '/api/items/1', '/readyz',
    { method: 'POST', url: '/api/items', payload: item(2) },
    { method: 'DELETE', url: '/api/users/1' }
  ] as const
  const acknowledged = [1]
  await serves()

  server.signal('SIGSTOP')
  await refusesTogether()
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
    const responses = await Promise.all([...requests, ...requests].map(request => app.inject(request as string)))
    for (const response of responses) {
      t.equal(response.statusCode, 503)
      t.equal(response.headers['retry-after'], '1')
      t.equal(response.body, '{"detail":"The database is unavailable"}')
    }
    t.equal((await app.inject('/livez')).statusCode, 200)
  }

  /** Beside those who are refused together, one client is refused a few times, one after the other. */
  async function refusesTogether () {
    let times = 0
    const together = refuses().then(() => 'all')
    while (await Promise.race([together, app.inject('/api/items/1')]) !== 'all') times++
    t.ok(times <= 4, `${times} times`)
  }

  async function serves () {
    const id = 100 + acknowledged.length
    const create = { method: 'POST', url: '/api/items', payload: item(id), headers: { 'idempotency-key': `${id}` } } as const
    for (const request of ['/readyz', create, ...requests.slice(0, 3)]) await until(async () => (await app.inject(request as string)).statusCode < 300)
    acknowledged.push(id)
  }
})

test('a database that cannot be opened is a startup error that is clear and does not contain the password', async t => {
  const folder = newFolder(t)
  writeFileSync(`${folder}/text`, 'no database, but a text that is long enough to be taken for one'.repeat(100))
  const [user, rest] = postgres ? postgres.url.split('open%20sesame') : []
  for (const [url, message] of [
    ['sqlite:/proc/items.db', /^Cannot open the database in the option store: ENOENT.*\/proc\/items.db'$/],
    [`sqlite:${folder}`, /^Cannot open the database in the option store: EISDIR.*$/],
    [`sqlite:${folder}/text`, 'Cannot open the database in the option store: file is not a database'],
    ['sqlite:/proc/x/y', /^Cannot open the database in the option store: ENOENT.*'\/proc\/x'$/],
    ['sqlite://data/items.db', 'The option store is ambiguous. Use sqlite:data/items.db for a relative path, or sqlite:/data/items.db for an absolute path.'],
    ['sqlite::memory:', 'sqlite::memory: is not supported. Set the option store to memory.'],
    ['postgres://ada:sesame@[/items', 'The option store is not a valid URL. Percent-encode special characters in the user name and password, such as %23 for #.'],
    ['postgres://ada:sesame@one,two:5433/items', 'The option store must have one host, because the driver does not support several. Use the address of HAProxy or PgBouncer, or a virtual IP address, that leads to the primary.'],
    ...user ? [[`${user}sesame${rest}`, 'Cannot open the database in the option store: password authentication failed for user "ada"']] as const : [],
    ...postgres ? [[postgres.url.replace(/postgres$/, 'nowhere'), 'Cannot open the database in the option store: database "nowhere" does not exist']] as const : []
  ] as const) {
    const error = await build(t, { DATABASE_URL: url }).ready().then(undefined, error => error)
    t.ok(error instanceof StartupError, url)
    if (typeof message === 'string') t.equal(error.message, message)
    else t.match(error.message, message)
    t.notMatch(error.message, 'sesame')
  }
})

test('a database whose driver is missing ends the process with one clear line', async t => {
  for (const [url, driver] of [
    ...process.getBuiltinModule('node:sqlite') ? [] : [['sqlite:./items.db', 'libsql']] as const,
    ['postgres://ada:sesame@db/items', 'pg']
  ] as const) {
    const server = start(t, { DATABASE_URL: url }, { built: true, script: withoutPackage(driver) })
    t.same(await server.exit, [1, null], url)
    t.equal(server.output(), '')
    t.equal(server.errors(), `DATABASE_URL needs the package ${driver}, which is not installed. Run: npm install ${driver}\n`)
  }
})

test('a server that accepts connections and does not answer is unavailable, and the service starts', async t => {
  const silent = createServer().listen(0, '127.0.0.1')
  t.teardown(() => silent.close())
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  const app = build(t, { DATABASE_URL: `postgres://ada:sesame@127.0.0.1:${port}/items`, DATABASE_TIMEOUT: '300' })
  for (const url of ['/readyz', '/api/items']) t.equal((await app.inject(url)).statusCode, 503)
  t.equal((await app.inject('/livez')).statusCode, 200)
})

onPostgres('a server that does not answer after the login is unavailable, the service starts, and recovers', async (t, server) => {
  const proxy = await startProxy(t, server.database())
  proxy.silentAt = 'lock_timeout'
  const app = build(t, { DATABASE_URL: proxy.url, DATABASE_TIMEOUT: '2000' })
  for (const url of ['/readyz', '/api/items']) t.equal((await app.inject(url)).statusCode, 503)
  t.equal((await app.inject('/livez')).statusCode, 200)
  proxy.silentAt = 'nothing'
  for (const url of ['/readyz', '/api/items']) await until(async () => (await app.inject(url)).statusCode === 200)
})
