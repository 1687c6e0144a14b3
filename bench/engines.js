// Compares requests per second on databases with the same databases without the service.
import { execFile, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import Database from 'libsql'
import pg from 'pg'
import { openEngine } from '../dist/plugins/stores.js'
import { Item } from '../dist/schemas/item.js'
import { connections, has, item, measure } from './load.js'

const columns = 'position bigint generated always as identity primary key, id bigint not null, name text not null, price double precision not null'
const insertion = "insert into direct (id, name, price) values (2, 'Item number 2', 2.25)"
const selection = 'select id, name, price from direct where id = 1 order by position limit 1'
const post = { method: 'POST', path: '/api/items', body: item(2) }
const keyed = { ...post, uniqueHeader: 'idempotency-key' }
const unkeyed = { ...post, uniqueHeader: 'x-another-header' } // so that the client does the same work
const things = { schema: { ...Item, $id: 'Thing' } }
const postThing = { ...post, path: '/api/things' }
const thousand = `[${Array.from({ length: 1000 }, (_, id) => item(id))}]`
const member = { method: 'POST', body: '{"email":"UNIQUE"}' }
const memberSchema = { type: 'object', required: ['id', 'email'], properties: { id: { type: 'integer' }, email: { type: 'string' } } }
const get = { path: '/api/items/1' }
const list = { path: '/api/items' }
const limits = { timeout: 5000, poolSize: 10 }

const { startPostgres } = await import('../test/support/postgres.ts')

/** Returns the ratios of all rounds for each workload. */
export async function measureEngines (rounds, progress) {
  const folder = mkdtempSync(join(tmpdir(), 'bench-'))
  const ends = [() => rmSync(folder, { recursive: true })]
  const postgres = await startPostgres({ teardown: end => ends.push(end), comment: console.error })
  const url = postgres.database()
  const file = `sqlite:${join(folder, 'items.db')}`
  const collections = join(folder, 'collections.json')
  writeFileSync(collections, JSON.stringify({ things, members: { schema: memberSchema, unique: ['email'] }, guests: { schema: memberSchema } }))
  const servers = [url, file, 'memory'].map((address, n) => {
    const child = spawn('node', ['../dist/src/server.js'], {
      env: { ...process.env, DATABASE_URL: address, COLLECTIONS_FILE: collections, LOG_LEVEL: 'silent', DOCS: 'false', PORT: String(4600 + n) },
      stdio: ['ignore', 'ignore', 'inherit']
    })
    ends.push(() => child.kill())
    return child
  })
  const [onPostgres, onSqlite, onMemory] = servers.map((_, n) => (work, seconds = 2) => measure(4600 + n, work, seconds))
  for (const n of servers.keys()) while (!(await fetch(`http://127.0.0.1:${4600 + n}/readyz`).catch(() => ({}))).ok) await sleep(100)
  await postgres.query(`create table direct (${columns}); create index on direct (id, position); insert into direct (id, name, price) values (1, 'Lamp', 42.5)`, url)

  const stores = await Promise.all([url, `sqlite:${join(folder, 'store.db')}`].map(async address => {
    const engine = await openEngine(address, limits)
    ends.unshift(engine.close)
    const store = engine.open({ name: 'benched', schema: Item, seed: Array.from({ length: 50 }, (_, id) => ({ id, name: 'x', price: 0 })) })
    await engine.start()
    return store
  }))
  const direct = new Database(join(folder, 'direct.db'))
  direct.exec('pragma journal_mode = wal; pragma synchronous = full; create table direct (position integer primary key autoincrement, id bigint, name text, price double precision)')
  const insertOne = direct.prepare(insertion)

  const peer = has('pgbench') ? 'pgbench' : 'pg'
  const figures = [
    [`POST on PostgreSQL, to ${peer} with the same insert`, () => onPostgres(post), () => pgbench(insertion)],
    ['the same without HTTP: `append` from 64 callers', () => appendRate(stores[0]), () => pgbench(insertion)],
    [`GET one on PostgreSQL, to ${peer} with the same select`, () => onPostgres(get), () => pgbench(selection)],
    ['PATCH of one record on PostgreSQL without HTTP, to 50 records', () => changeRate(stores[0], 1), () => changeRate(stores[0], 50)],
    ['POST on SQLite, to one transaction an insert', () => onSqlite(post), () => rate(() => insertOne.run([]))],
    ['the same without HTTP: `append` from 64 callers', () => appendRate(stores[1]), () => rate(() => insertOne.run([]))],
    ['GET one on SQLite, to memory', () => onSqlite(get), () => onMemory(get)],
    ['304 for the list on PostgreSQL, to GET one', async () => onPostgres(await stored(4600)), () => onPostgres(get)],
    ['304 for the list on SQLite, to GET one', async () => onSqlite(await stored(4601)), () => onSqlite(get)],
    ['POST with idempotency keys on PostgreSQL, to POST', () => onPostgres(keyed), () => onPostgres(unkeyed)],
    ['POST with idempotency keys on SQLite, to POST', () => onSqlite(keyed), () => onSqlite(unkeyed)],
    ['records per second in batches of 1,000 on PostgreSQL, to POST', () => batchRate(4600), () => onPostgres(postThing)],
    ['records per second in batches of 1,000 on SQLite, to POST', () => batchRate(4601), () => onSqlite(postThing)],
    ...Object.entries({ memory: onMemory, PostgreSQL: onPostgres, SQLite: onSqlite }).map(([engine, on]) =>
      [`POST with one unique field on ${engine}, to POST without`, () => on({ ...member, path: '/api/members' }), () => on({ ...member, path: '/api/guests' })])
  ].filter(([name]) => name.includes(process.env.ONLY ?? ''))
  const results = []
  try {
    for (const [name, ours, theirs] of figures) {
      const ratios = []
      for (let round = 0; round <= rounds; round++) {
        progress(`${name}: round ${round} of ${rounds}`)
        const ratio = await ours() / await theirs()
        if (round > 0) ratios.push(ratio)
      }
      results.push({ name, ratios })
    }
  } finally {
    for (const end of ends) await end()
  }
  return results

  async function pgbench (sql) {
    if (!has('pgbench')) return oneByOne(sql)
    const script = join(folder, 'script.sql')
    writeFileSync(script, `${sql};\n`)
    const { stdout } = await promisify(execFile)('pgbench', ['-n', '-M', 'prepared', '-c', connections, '-j', 1, '-T', 2, '-f', script].map(String), {
      env: { ...process.env, ...environment(url) }
    })
    return Number(stdout.match(/tps = ([\d.]+)/)[1])
  }

  /** Without pgbench: one query for each row, from the same number of connections. */
  async function oneByOne (text) {
    const pool = new pg.Pool({ connectionString: url, max: connections })
    const result = await rateOfMany(() => pool.query({ name: text, text }))
    await pool.end()
    return result
  }
}

/** Records per second, when 100,000 are created in batches of 1,000, one after the other. */
async function batchRate (port) {
  const began = performance.now()
  for (let n = 0; n < 100; n++) {
    const response = await fetch(`http://127.0.0.1:${port}/api/things/batch`, { method: 'POST', body: thousand })
    if (response.status !== 201) throw new Error(`not created: ${response.status}`)
    await response.arrayBuffer()
  }
  return 100_000 / (performance.now() - began) * 1000
}

/** A request for a list that the client has stored. */
async function stored (port) {
  const { headers } = await fetch(`http://127.0.0.1:${port}${list.path}`, { method: 'HEAD', headers: { 'accept-encoding': 'identity' } })
  return { ...list, headers: { 'if-none-match': headers.get('etag') } }
}

function environment (url) {
  const { hostname, port, username, password, searchParams } = new URL(url)
  return { PGHOST: hostname, PGPORT: port, PGUSER: username, PGPASSWORD: decodeURIComponent(password), PGDATABASE: 'postgres', PGOPTIONS: searchParams.get('options') }
}

const appendRate = store => rateOfMany(() => store.append({ id: 2, name: 'Item number 2', price: 2.25 }))

/** Changes of so many records, in turn. */
const changeRate = (store, records, n = 0) => rateOfMany(() => store.change(n++ % records, json => ({ ...JSON.parse(json), price: n })))

/** The rate of an action per second, with one caller for each connection. */
async function rateOfMany (action) {
  const began = performance.now()
  let done = 0
  await Promise.all(Array.from({ length: connections }, async () => {
    for (; performance.now() < began + 1000; done++) await action()
  }))
  return done / (performance.now() - began) * 1000
}

function rate (action) {
  const began = performance.now()
  let done = 0
  for (; performance.now() < began + 1000; done++) action()
  return done / (performance.now() - began) * 1000
}
