import { existsSync, readFileSync } from 'node:fs'
import { test, type Test } from 'tap'
import itemsUsers, { metrics } from '../../src/index.js'
import type { DestinationStream } from 'pino'
import { version } from '../../plugins/common/version.js'
import { checkedFetch as fetch } from '../support/document.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import * as helper from '../support/helper.js'
import { start, takenPort } from '../support/process.js'
import { openSqlite, runSql } from '../support/sql.js'
import { until } from '../support/until.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }
const rows = 200_000

/** Starts the service with metrics, and gives what scrapes the number of items. */
async function startWithMetrics (t: Test, url: string) {
  const lines: string[] = []
  const app = helper.build(t, { DATABASE_URL: url, DOCS: 'false', METRICS_PORT: '0', LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  await app.ready()
  const metricsUrl = /metrics at (\S+)"/.exec(lines.join())?.[1] ?? ''
  const scrape = async () => Number(/^store_records{collection="items"} (\S+)$/m.exec(await (await fetch(metricsUrl)).text())?.[1])
  return { app, scrape }
}

/** Counts what is read of the items: of SQLite the bytes that this process has read, of PostgreSQL the rows. */
const meters: Record<string, (url: string) => Promise<number>> = {
  SQLite: async () => Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]),
  PostgreSQL: async url => {
    const [row] = await runSql(url, `
      select seq_tup_read + (select sum(idx_tup_read) from pg_stat_user_indexes as i where i.relid = t.relid) as rows
      from pg_stat_user_tables as t where relid = 'items'::regclass`)
    return Number(row?.rows)
  }
}

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv, log?: DestinationStream) => helper.build(t, { DATABASE_URL: address(), ...env }, log)

  t.test('metrics are served on METRICS_PORT, by route and not by path', async t => {
    const lines: string[] = []
    const app = build(t, { METRICS_PORT: '0', LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
    await app.ready()
    const url = /metrics at (\S+)"/.exec(lines.join())?.[1] ?? ''
    await app.inject({ method: 'POST', url: '/api/items', payload: item })
    await app.inject('/api/items/7')
    await app.inject('/api/items/424242')
    await app.inject('/api/items?limit=1')
    await app.inject('/somewhere/424242')
    const response = await fetch(url)
    t.match(response.headers.get('content-type'), /^text\/plain; version=0\.0\.4/)
    const text = await response.text()
    for (const line of [
      /^http_request_duration_seconds_count{method="GET",route="\/api\/items\/:item_id",status="200"} 1$/m,
      /^http_request_duration_seconds_count{method="GET",route="\/api\/items\/:item_id",status="404"} 1$/m,
      /^http_request_duration_seconds_count{method="POST",route="\/api\/items",status="201"} 1$/m,
      /^http_request_duration_seconds_count{method="GET",route="unknown",status="404"} 1$/m,
      /^store_records{collection="items"} 2$/m,
      /^store_records{collection="users"} 1$/m,
      /^store_operation_duration_seconds_count{collection="items",operation="append"} 1$/m,
      /^store_operation_duration_seconds_count{collection="items",operation="first"} 2$/m,
      /^store_operation_duration_seconds_count{collection="items",operation="select"} 1$/m,
      new RegExp(`^items_users_build_info{version="${version}"} 1$`, 'm'),
      /^nodejs_eventloop_lag_p99_seconds /m,
      /^process_resident_memory_bytes /m
    ]) t.match(text, line)
    t.notMatch(text, '424242')
    t.match(text, /^store_connections{state="used"} \d+$/m)
    t.equal((await fetch(new URL('/', url))).status, 404)
    t.equal((await fetch(`${url}?x=1`)).status, 200)
    t.equal((await app.inject('/metrics')).statusCode, 404)
    await app.close()
    await t.rejects(fetch(url))
  })

  t.test('concurrent scrapes all report the number of records', async t => {
    const { app, scrape } = await startWithMetrics(t, address())
    await Promise.all(Array.from({ length: 1338 }, (_, id) =>
      app.inject({ method: 'POST', url: '/api/items', payload: { id, name: 'x', price: 1 } })))
    for (let round = 0; round < 3; round++) {
      const counts = await Promise.all(Array.from({ length: 20 }, scrape))
      t.same(counts, Array(20).fill(1339))
    }
  })

  const meter = meters[engine]
  if (!meter) return

  /** Waits for the meter to move on, and gives by how much it has. */
  const readSince = async (url: string, start: number) => {
    let read = 0
    await until(async () => (read = await meter(url) - start) > 10_000)
    return read
  }

  const skip = engine === 'SQLite' && !existsSync('/proc/self/io') && 'only Linux counts what a process reads'
  t.test('a scrape does not read a large table', { skip }, async t => {
    const url = address()
    const { app, scrape } = await startWithMetrics(t, url)
    await runSql(url, insertItems(rows))
    const before = await meter(url)
    t.equal(await scrape(), 10_001)
    await app.close() // PostgreSQL tells what a connection has read when it ends
    const scraped = await readSince(url, before)
    await runSql(url, 'select count(*) from items')
    const scanned = await readSince(url, before + scraped)
    t.ok(scraped < scanned / 4, `${scraped} were read, and ${scanned} to count all records`)
  })

  t.test('a scrape counts up to 10,001 records', async t => {
    const url = address()
    const { scrape } = await startWithMetrics(t, url)
    await runSql(url, insertItems(12_000))
    for (const [limit, size] of [[10_002, 10_001], [10_001, 10_001], [10_000, 10_000], [3, 3], [0, 0]] as const) {
      await runSql(url, `delete from items where id > ${limit}`)
      t.equal(await scrape(), size)
    }
  })
})

test('a metric that cannot be measured is left out', async t => {
  const file = `${newFolder(t)}/items.db`
  const lines: string[] = []
  const app = helper.build(t, { DATABASE_URL: `sqlite:${file}`, METRICS_PORT: '0', LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  await app.ready()
  openSqlite(file, 0).exec('drop table items')
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  t.notMatch(text, /^store_records{/m)
  t.match(text, /^process_resident_memory_bytes /m)
  t.match(lines.join(), 'store_records cannot be measured')
  await app.inject('/api/items')
  t.match(await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text(), /operation="select"} 1$/m)
})

test('a METRICS_PORT that is in use ends the process with one clear line', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { METRICS_PORT: String(port) })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), `Cannot listen on 127.0.0.1:${port}: the port is in use. Set METRICS_PORT to another port.\n`)
})

test('the metrics of several registrations are added up', async t => {
  const lines: string[] = []
  const app = helper.host(t, { logger: { level: 'info', stream: { write: (line: string) => lines.push(line) } } })
  await app.register(metrics, { port: 0 })
  app.register(itemsUsers, { prefix: '/a' })
  app.register(itemsUsers, { prefix: '/b', store: `sqlite:${newFolder(t)}/items.db` })
  await app.inject({ method: 'POST', url: '/a/items', payload: item, headers: { 'idempotency-key': 'a' } })
  await app.inject({ method: 'POST', url: '/a/items', payload: { ...item, id: 8 }, headers: { 'idempotency-key': 'a' } })
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  t.match(text, /^store_records{collection="items"} 3$/m)
  t.match(text, /operation="append"} 2$/m)
})

/** SQL that inserts items with the ids from 2 to the last one. */
function insertItems (last: number) {
  return `insert into items (position, id, record)
    with recursive n (n) as (select 2 union all select n + 1 from n where n < ${last})
    select n, n, '{"id":' || n || ',"name":"x","price":1}' from n`
}
