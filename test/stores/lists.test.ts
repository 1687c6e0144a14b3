import { equal } from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'tap'
import { openEngine } from '../../plugins/stores.js'
import { planner } from '../../plugins/stores/query.js'
import { listReader } from '../../plugins/stores/sql/lists.js'
import { openLists } from '../../plugins/stores/sql/open-lists.js'
import type { Part, Statement } from '../../plugins/stores/sql/queries.js'
import { Item } from '../../schemas/item.js'
import { item, onDatabases, onPostgres, things, unavailable } from '../support/databases.js'
import { opened, patient } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { open } from '../support/connection.js'
import { checkedFetch as fetch } from '../support/document.js'
import { build } from '../support/helper.js'
import { uncovered } from '../support/environment.js'
import { start } from '../support/process.js'
import { startProxy } from '../support/proxy.js'
import { until } from '../support/until.js'

const json = { 'content-type': 'application/json' }

onDatabases('of thirty thousand items', async (t, { url, sql, itemsTo, openLists }) => {
  const empty = build(t, { DATABASE_URL: url })
  await empty.ready()
  await empty.close()
  await sql(itemsTo(30_000, 3200))

  await t.test('a page costs the same at the start and at the end', async t => {
    const app = build(t, { DATABASE_URL: url })
    await app.ready()
    const pageAt = (position: number) => `/api/items?limit=100&after=${Buffer.from(String(position)).toString('base64url')}`
    const spend = async (position: number) => {
      const start = performance.now()
      const response = await app.inject(pageAt(position))
      const time = performance.now() - start
      equal(response.json()[0].id, position + 1)
      return time
    }
    await spend(0)
    let [first, last] = [Infinity, Infinity]
    for (let n = 0; n < 200 && (n < 30 || last > first * 3); n++) [first, last] = [Math.min(first, await spend(0)), Math.min(last, await spend(29_000))]
    t.ok(last < first * 3, `${last / first} times as long at the end`)
  })

  await t.test('a long list is sent in little memory, as of one instant, and others do not wait', async t => {
    // A list is 98 MB. If the service held it, this heap would be too small. On a busy machine, Node 26 needs more than 54 MB.
    const server = start(t, { DATABASE_URL: url }, { built: true, flags: ['--max-old-space-size=100'] })
    const api = `${await server.url}/api/items`
    const { begun, list } = reader(api)
    await begun
    await fetch(api, { method: 'POST', headers: json, body: JSON.stringify(item(0)) })

    let beside = 0
    for (; await Promise.race([list, sleep(1)]) === undefined; beside++) {
      const { status } = await fetch(`${api}/${1 + beside}`)
      if (status !== 200) t.fail(`GET one answers ${status}`)
    }
    t.same(await list, {
      length: 30_000,
      first: '[{"id":1,"name":"Lamp","price":42.5}',
      last: `{"id":30000,"name":"${'30000'.padEnd(3200)}","price":30000.25}]`
    })
    t.ok(beside >= 5, `GET one was answered ${beside} times beside the list`)
    const [, peak] = readFileSync(`/proc/${server.process.pid}/status`, 'utf8').match(/VmHWM:\s+(\d+)/) ?? []
    t.ok(Number(peak) < 250 * 1024, `${Number(peak) / 1024} MB at most`)
  })

  await t.test('a list is closed if its client leaves or stops reading, if a hook replaces it, and for HEAD', async t => {
    const app = build(t, { DATABASE_URL: url, DATABASE_TIMEOUT: '2000' })
    app.addHook('onSend', async (request, _reply, payload) => request.headers['x-replace'] ? 'replaced' : payload)
    await app.ready()
    await app.listen()
    const { port } = app.server.address() as AddressInfo

    for (let n = 0; n < 10; n++) {
      const gone = new AbortController()
      const response = fetch(`http://127.0.0.1:${port}/api/items`, { signal: gone.signal })
      if (n % 2) await response
      setTimeout(() => gone.abort(), n)
      await response.then(({ body }) => body?.pipeTo(new WritableStream())).catch(() => {})
    }
    for (let n = 0; n < 80; n++) equal((await app.inject({ method: 'HEAD', url: '/api/items' })).statusCode, 200)
    await until(async () => await openLists() === 0)
    t.pass('clients have left, and HEAD reads no list')

    const began = performance.now()
    const idle = open(port).pause()
    idle.write('GET /api/items HTTP/1.1\r\nHost: x\r\n\r\n')
    for (let n = 0; n < 3; n++) t.equal((await app.inject({ url: '/api/items', headers: { 'x-replace': '1' } })).body, 'replaced')
    await until(async () => await openLists() > 0)
    await until(async () => await openLists() === 0)
    t.ok(performance.now() - began > 4000, 'a client that does not read has some time to do so')
    idle.resume()
    await once(idle, 'close')
    t.pass('and is told that the list does not end')
  })
})

onDatabases('a list that is being sent during shutdown is sent to its end', async (t, { url, sql, itemsTo }) => {
  const server = start(t, { DATABASE_URL: url }, { built: true })
  const api = `${await server.url}/api/items`
  await sql(itemsTo(6000))
  const { begun, list } = reader(api, 'new (require("node:http").Agent)({ keepAlive: true })')
  await begun
  server.process.kill('SIGTERM')
  t.match(await list, { length: 6000 })
  t.same(await server.exit, [0, null])
})

/** A process that reads a list without keeping it. It says when it has begun and, in the end, what it has seen. */
function reader (url: string, agent = 'undefined') {
  const child = spawn(process.execPath, ['-e', `require('node:http').get('${url}', { agent: ${agent} }, response => {
    let length = 0, first, last = ''
    console.log()
    response.setEncoding('latin1').on('data', text => {
      first ??= text.slice(0, text.indexOf('}') + 1)
      for (let at = -1; (at = text.indexOf('}', at + 1)) >= 0;) length++
      last = (last + text).slice(-4000)
    }).on('end', () => console.log(JSON.stringify({ length, first, last: last.slice(last.lastIndexOf('{')) })))
  })`], { stdio: ['ignore', 'pipe', 'inherit'], env: uncovered })
  const begun = once(child.stdout, 'data')
  return { begun, list: begun.then(() => text(child.stdout)).then(JSON.parse) }
}

test('on SQLite, a list is a stream of bytes that does not block the event loop', async t => {
  const engine = await openEngine(`sqlite:${newFolder(t)}/items.db`, patient)
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...things, seed: [] })
  await Promise.all(Array.from({ length: 10_000 }, (_, n) => store.append(item(n))))
  let turns = 0
  let pieces = 0
  let turn = setImmediate(function next () {
    turns++
    turn = setImmediate(next)
  })
  await Promise.all(Array.from({ length: 4 }, async () => {
    for await (const piece of (await store.select({})).list as Readable) pieces += Number(Buffer.isBuffer(piece))
  }))
  clearImmediate(turn)
  t.ok(pieces >= 20, `${pieces} pieces`)
  t.ok(turns >= pieces / 8, `others had ${turns} turns meanwhile`)
})

test('on SQLite, the number of lists that are read at once is limited, and one more gets 503', async t => {
  const engine = await openEngine(`sqlite:${newFolder(t)}/items.db`, patient)
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...things, seed: [] })
  await Promise.all(Array.from({ length: 2000 }, (_, n) => store.append(item(n))))
  const open = async () => (await store.select({})).list as Readable
  const lists = await Promise.all(Array.from({ length: 64 }, open))
  await t.rejects(Promise.resolve(store.select({})), unavailable)
  await text(lists[0] as Readable)
  lists[1]?.destroy()
  await sleep(10)
  for (let n = 0; n < 2; n++) lists.push(await open())
  await t.rejects(Promise.resolve(store.select({})), unavailable)
  for (const list of lists) list.destroy()
})

onPostgres('the number of lists that are read at once is limited; one more waits and then gets 503', async (t, server) => {
  const url = server.database()
  const engine = await openEngine(url, { timeout: 10_000, poolSize: 4 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, things)
  await server.query('insert into things (id, name, price) select n, n, n from generate_series(2, 5000) as n', url)
  const open = async () => (await store.select({})).list as Readable
  const [first, second] = [await open(), await open()]
  await t.rejects(Promise.resolve(store.select({})), unavailable)
  const third = open()
  first.destroy()
  t.equal(await text(await third), await text(second))
  t.equal(await store.first(1), JSON.stringify(item(1)))
})

onDatabases('while another list needs a connection, a list that is read too slowly is closed', async (t, { url, sql }) => {
  const engine = await openEngine(url, { timeout: 6000, poolSize: 6 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...things, seed: [] })
  await sql("insert into things (id, name, price) with recursive n (n) as (select 1 union all select n + 1 from n where n < 20000) select n, 'small', 1 from n")
  const open = async () => (await store.select({})).list as Readable
  const lists = await Promise.all(Array.from({ length: url.startsWith('sqlite') ? 64 : 3 }, open))
  let other: Readable | undefined
  await until(async () => {
    other = await open().catch(() => undefined)
    return other !== undefined
  })
  t.ok(lists.some(({ destroyed }) => destroyed))
  t.equal((await text(other as Readable)).split('}').length, 20_001)
  for (const list of lists) list.destroy()
})

onDatabases('while another list needs a connection, a list that has been read for long is closed unless it is read fast', async (t, { url, sql }) => {
  const engine = await openEngine(url, { timeout: 3000, poolSize: 2 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...things, seed: [] })
  await sql(`insert into things (id, name, price) with recursive n (n) as (select 1 union all select n + 1 from n where n < 20000) select n, '${'x'.repeat(100)}', 1 from n`)
  const open = async () => (await store.select({})).list as Readable
  const lists = await Promise.all(Array.from({ length: url.startsWith('sqlite') ? 64 : 1 }, open))
  const readers = lists.map(async list => {
    // 100 kB a second, in pieces of 65 kB
    try { for await (const piece of list) await sleep(String(piece).length / 100) } catch {}
  })
  await until(async () => {
    (await open().catch(() => undefined))?.destroy()
    return lists.some(({ errored, destroyed }) => errored || destroyed)
  })
  t.match(lists.filter(({ destroyed }) => destroyed).map(({ errored }) => errored?.message), ['The client reads the list too slowly'])
  for (const list of lists) list.destroy()
  await Promise.all(readers)
})

onPostgres('a list whose database connection is lost is answered with 503, or its connection is closed', async (t, server) => {
  const proxy = await startProxy(t, server.database())
  const engine = await openEngine(proxy.url, { timeout: 60_000, poolSize: 4 })
  t.teardown(engine.close)
  const store = await opened<Item>(engine, { ...things, seed: [] })
  await Promise.all(Array.from({ length: 5000 }, (_, n) => store.append(item(n))))

  proxy.cutAt = 'begin isolation'
  await t.rejects(Promise.resolve(store.select({})), unavailable)
  proxy.cutAt = 'nothing'
  const list = (await store.select({})).list as Readable
  proxy.cutAt = 'sum(size)'
  await t.rejects(text(list), unavailable)
  proxy.cutAt = 'nothing'
  t.equal((await text((await store.select({})).list as Readable)).split('}').length, 5001)

  const app = build(t, { DATABASE_URL: proxy.url })
  await app.ready()
  await server.query('insert into items (id, name, price) select n, n, n from generate_series(2, 5000) as n', proxy.url)
  const get = () => app.inject({ url: '/api/items', headers: { 'accept-encoding': 'gzip' } })
  proxy.cutAt = 'sum(size)'
  const failed = await get()
  t.equal(failed.statusCode, 503)
  t.match(failed.headers, { 'content-encoding': undefined, etag: undefined })
  t.equal(failed.body, '{"detail":"The database is unavailable"}')
  proxy.cutAt = 'nothing'
  t.match((await get()).headers, { 'content-encoding': 'gzip' })

  proxy.cutAt = 'from last_ids'
  const { id, ...fields } = item(1)
  await t.rejects(Promise.resolve(store.append(fields)), unavailable)
  proxy.cutAt = 'nothing'
  t.equal(await store.append(fields), JSON.stringify(item(5000)).replace('number 5000', 'number 1'))
  t.equal(await store.first(5000), JSON.stringify(item(5000)).replace('number 5000', 'number 1'))
  proxy.cutAt = 'idempotency_keys'
  await t.rejects(Promise.resolve(store.append(item(1), 'key')), unavailable)
  proxy.cutAt = 'nothing'
  t.equal(await store.append(item(1), 'key'), JSON.stringify(item(1)))

  const large = await opened<Item>(engine, { ...things, name: 'large', seed: [] })
  for (let n = 0; n < 20; n++) await large.append({ ...item(n), name: 'x'.repeat(100_000) })
  proxy.cutAt = 'offset 0'
  await t.rejects(Promise.resolve(large.select({ limit: 15 })), unavailable)
  proxy.cutAt = 'nothing'
  t.equal(JSON.parse(await text((await large.select({ limit: 15 })).list as Readable)).length, 15)
})

test('a long list of large records reads pieces of the size that worked', async t => {
  const [records, bytes] = [4000, 3000]
  let selects = 0
  const select = (after: number, count: number): [string, number][] => {
    selects++
    const found = Math.min(count, records - after)
    return found * bytes > 1024 * 1024 ? [] : Array.from({ length: found }, (_, n) => [`${after + n + 1}`, after + n + 1])
  }
  const { list } = await listOf(select)
  t.same(JSON.parse(await text(list as Readable)), Array.from({ length: records }, (_, n) => n + 1))
  t.ok(selects < 40, `${selects} selects for ${records} records`)
})

test('a list that is read slowly is closed in the end', async t => {
  let freed = 0
  const select = (after: number, count: number): [string, number][] => Array.from({ length: count }, (_, n) => ['1', after + n + 1])
  const { list } = await listOf(select, () => { freed++ }, 10)
  const pieces = (list as Readable).iterator()
  await t.rejects(async () => { while (!(await pieces.next()).done) await sleep(10) }, { message: 'The client does not read the list' })
  t.equal(freed, 1)
})

test('the list that is read most slowly is closed, and one that was read fast is slow when its client stops', async t => {
  const { track, closeSlowest } = openLists(1)
  const [list, slow, slowest] = Array.from({ length: 3 }, () => new Readable({ read () {} }).on('error', () => {})) as [Readable, Readable, Readable]
  const onPiece = track(list)
  onPiece(1e15)
  track(slow)(20)
  track(slowest)(10)
  for (const closed of [[false, false, true], [false, true, true], [false, true, true]]) {
    await sleep(10)
    await closeSlowest()
    t.same([list, slow, slowest].map(({ destroyed }) => destroyed), closed)
  }
  onPiece(10)
  await sleep(50)
  await closeSlowest()
  t.equal(list.destroyed, true)
})

test('if statements block the process, large lists are read one after the other, and at most two are in memory', async t => {
  for (const [maxVisits, expected] of [[1000, 2], [undefined, 10]] as const) {
    let [reading, most] = [0, 0]
    const { select } = readerOf((after, count) => {
      most = Math.max(most, ++reading)
      return Array.from({ length: Math.min(count, 10) }, (_, n) => [`"${'x'.repeat(10_000)}"`, after + n + 1])
    }, { maxVisits })
    await Promise.all(Array.from({ length: 10 }, async () => {
      const { list } = await select({})
      reading--
      t.equal(String(list).length, 100_031)
    }))
    t.equal(most, expected)
  }
})

/** A function that reads a list of these rows. */
function listOf (select: Select, free = () => {}, timeout = 60_000) {
  return readerOf(select, { free, timeout }).select({})
}

type Select = (after: number, count: number) => [string, number][]

function readerOf (select: Select, { free = () => {}, timeout = 60_000, maxVisits }: { free? (): void, timeout?: number, maxVisits?: number | undefined }) {
  const lists = {
    plan: planner([]),
    encodeRow: ([json]: unknown[]) => String(json),
    placeOf: (row: unknown[]) => ({ value: undefined, position: Number(row[1]) }),
    selectPiece: ({ after }: Part, count: number) => ({ text: '', values: [after?.position ?? 0, count] }),
    selectPlaces: () => ({ text: '', values: [] }),
    selectCount: () => ({ text: '', values: [] })
  }
  const run = ({ values: [after, count] }: Statement) => select(Number(after), Number(count))
  return listReader(lists, { run, openSnapshot: () => ({ run, free, track: () => () => {} }), timeout, maxVisits })
}
