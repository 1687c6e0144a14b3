import { randomInt } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { serve } from '../stress/service.js'
import { connection, written } from '../support/connection.js'
import { onPostgres } from '../support/databases.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { start } from '../support/process.js'
import { runSql } from '../support/sql.js'
import { until } from '../support/until.js'

const million = 1_000_000
const id = { type: 'integer' }
const fields = {
  id,
  member_id: id,
  code: { type: 'string' },
  price: { type: 'number' },
  status: { type: 'integer' },
  note: { type: 'string' }
}
const loans = {
  schema: { type: 'object', required: ['id'], properties: fields },
  filters: ['code', 'price', 'status'],
  references: { member_id: 'members' }
}
const seed = Array.from({ length: 1000 }, (_, n) => ({ id: n + 1 }))
const members = { schema: { type: 'object', required: ['id'], properties: { id } }, seed }
const loan = { member_id: 7, code: 'A7', price: 1.5, status: 1 }

/** Every record gets another field, which has an index. */
const copies = { type: 'integer', default: 1 }
const changedSchema = { type: 'object', required: ['id', 'copies'], properties: { ...fields, copies } }
const changed = { ...loans, schema: changedSchema, filters: [...loans.filters, 'copies'] }

/** A code has ten loans, a member has a thousand, and one in twenty loans has the status 1. */
const insertion = `with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ${million}),
  given (n, member, code, price, status) as (
    select n, n % 1000 + 1, 'A' || (n % 100000), n % 5000 + 0.25, case when n % 20 = 0 then 1 else 0 end from numbers)
  insert into loans (position, id, member_id, code, price, status, record)
  select n, n, member, code, price, status, '{"id":' || n || ',"member_id":' || member || ',"code":"' || code ||
    '","price":' || price || ',"status":' || status || ',"note":"This is a note."}' from given`

const cursor = (position: number) => Buffer.from(String(position)).toString('base64url')

/** What is sent, and whether the manual says that it delays other requests on SQLite. */
const requests: Record<string, { path?: string, method?: string, body?: object, delays?: boolean }> = {
  'GET one': { path: '/500000' },
  POST: { method: 'POST', body: loan },
  'POST of 1,000': { path: '/batch', method: 'POST', body: Array(1000).fill(loan) },
  PATCH: { path: '/500000', method: 'PATCH', body: { price: 7 } },
  DELETE: { path: '/NEXT', method: 'DELETE' },
  page: { path: `?limit=1000&after=${cursor(500_000)}` },
  'page with related records': { path: '?limit=1000&expand=member_id' },
  'page in an order': { path: '?sort=-price&limit=1000' },
  'page with two filters, one of which few match': { path: '?status=0&code=A7&limit=1000' },
  'page with a filter that few match, in another order': { path: '?code=A7&sort=-price&limit=1000' },
  list: { path: '' },
  'list in an order': { path: '?sort=price' },
  'page with a filter that most match, in another order': { path: '?status=0&sort=-price&limit=100', delays: true },
  'page with its total': { path: '?limit=1&total=true', delays: true },
  'summary of groups': { path: '/summary?group=status&max=price', delays: true }
}

/** Makes the service report the longest turn of its event loop in milliseconds: the time, and that of the processor. */
const reporter = `
  let [time, usage, longest] = [performance.now(), process.cpuUsage(), [0, 0]]
  setInterval(() => {
    const { user, system } = process.cpuUsage(usage)
    const turn = [performance.now() - time, (user + system) / 1000]
    longest = longest.map((other, n) => Math.max(other, turn[n]))
    time = performance.now()
    usage = process.cpuUsage()
  }, 1).unref()
  process.on('SIGWINCH', () => {
    process.stderr.write('longest: ' + JSON.stringify(longest) + '\\n')
    longest = [0, 0]
  })`

/** Starts the service with loans. It listens when the schema has changed. */
async function open (t: Test, url: string, definition: object) {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify({ members, loans: definition, items: null, users: null }))
  const service = start(t, { DATABASE_URL: url, COLLECTIONS_FILE: file }, { script: reporter })
  const { pid } = service.process.setMaxListeners(100) // one for each line of the log
  return { url: `${await service.url}/api/loans`, pid, memory, longestTurn, stop }

  /** The memory of the service or the most that it had, in megabytes. */
  function memory (name: 'VmRSS' | 'VmHWM') {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024
  }

  async function longestTurn (): Promise<[time: number, processor: number]> {
    const before = service.errors().length
    const report = () => /longest: (.*)\n/.exec(service.errors().slice(before))?.[1]
    service.process.kill('SIGWINCH')
    await until(() => report() !== undefined)
    return JSON.parse(String(report()))
  }

  function stop () {
    service.process.kill('SIGTERM')
    return service.exit
  }
}

type Service = Awaited<ReturnType<typeof open>>

/** The processor time of a process, in seconds. */
function processorTime (pid: number | undefined) {
  const [, rest = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')
  const [user, system] = rest.split(' ').slice(11)
  return (Number(user) + Number(system)) / 100
}

/** Reads a response to its end, and returns its size. */
async function sizeOf ({ body }: Response) {
  let size = 0
  for await (const chunk of body ?? []) size += chunk.length
  return size
}

/** What the database holds for the service: a transaction, a lock, or a part of its log. */
async function isHeld (url: string) {
  const [row] = url.startsWith('sqlite:')
    ? await runSql(url, 'pragma wal_checkpoint(truncate)')
    : await runSql(url, `select count(*) as busy from pg_stat_activity where datname = current_database()
      and pid <> pg_backend_pid() and application_name = 'fastify-items-users' and xact_start is not null`)
  return Number(row?.busy) > 0
}

onEveryEngine((t, address, engine) => {
  if (engine === 'memory') t.test('a million records cost a request as much as ten', sameCost)
  else t.test('a million records', t => database(t, address(), engine))
})

/** Sends each request many times, to a service with ten records and to one with a million. */
async function sameCost (t: Test) {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify({ loans: { ...loans, references: {} } }))
  const services = []
  for (const records of [10, million]) {
    const service = await serve(t, { COLLECTIONS_FILE: file })
    const batch = Array(Math.min(records, 1000)).fill(loan)
    await send(service.url, written('POST', '/api/loans/batch', JSON.stringify(batch)), records / batch.length)
    services.push({ ...service, middle: records / 2 })
  }
  const kinds: Record<string, (middle: number) => Buffer> = {
    'GET one': middle => written('GET', `/api/loans/${middle}`),
    page: middle => written('GET', `/api/loans?limit=5&after=${cursor(middle)}`),
    POST: () => written('POST', '/api/loans', JSON.stringify(loan))
  }
  for (const [name, kind] of Object.entries(kinds)) {
    const times = services.map(() => Infinity)
    for (let round = 0; round < 4; round++) {
      for (const [n, { url, process: { pid }, middle }] of services.entries()) {
        const before = processorTime(pid)
        t.ok((await send(url, kind(middle), 3000)).status < 300)
        times[n] = Math.min(times[n] ?? 0, processorTime(pid) - before)
      }
    }
    const [ten = NaN, many = NaN] = times
    t.comment(`${name}: ${(ten / 3).toFixed(3)} ms with ten records, ${(many / 3).toFixed(3)} ms with a million`)
    t.ok(many < 2 * ten, name)
  }
}

/** Sends a request so many times, one after the other, and returns the last response. */
async function send (url: string, request: Buffer, count: number) {
  const { socket, send } = connection(url)
  for (let sent = 1; sent < count; sent++) await send(request)
  const last = await send(request)
  socket.destroy()
  return last
}

async function database (t: Test, url: string, engine: string) {
  await (await open(t, url, loans)).stop()
  await runSql(url, insertion)
  await runSql(url, `update collections set position = ${million}, last_id = ${million} where name = 'loans'`)
  const size = Number((await runSql(url, 'select sum(length(record)) + count(*) + 1 as size from loans'))[0]?.size)

  await t.test('a list of all needs little memory, and holds nothing while the client reads slowly', async t => {
    const service = await open(t, url, loans)
    for (let n = 0; n < 20; n++) await sizeOf(await fetch(`${service.url}?limit=1000`))
    const before = service.memory('VmRSS')
    const slow = await fetch(service.url)
    await fetch(service.url, { method: 'POST', body: JSON.stringify(loan) })
    await sleep(3000)
    await until(async () => !await isHeld(url)) // the last statement may be in progress
    t.ok(service.memory('VmHWM') - before < 100)
    t.equal(await sizeOf(slow), size)

    const peaks: number[] = []
    const [processor, began] = [processorTime(service.pid), performance.now()]
    for (let n = 0; n < 3; n++) {
      writeFileSync(`/proc/${service.pid}/clear_refs`, '5') // forgets the peak
      t.ok(await sizeOf(await fetch(service.url)) > size)
      peaks.push(Math.round(service.memory('VmHWM') - before))
    }
    const share = (processorTime(service.pid) - processor) / (performance.now() - began) * 1000
    t.comment(`${engine}: a list of ${size} bytes keeps ${share.toFixed(2)} cores busy, and needs ${peaks} MB`)
    if (engine === 'PostgreSQL') t.ok(share < 0.6, `${share}`)
    t.ok(Math.min(...peaks) < 100)
    await service.stop()
  })

  await t.test('no request delays others, except those that the manual names', async t => {
    const service = await open(t, url, loans)
    const turns = new Map<string, number>()
    for (const name of Object.keys(requests)) turns.set(name, await longest(t, service, engine, name))
    const most = Number(turns.get('summary of groups')) / 2 // it reads all records
    const others = Object.keys(requests).filter(name => !requests[name]?.delays)
    for (const name of others) if (engine === 'SQLite') t.ok(Number(turns.get(name)) < most, name)
    await service.stop()
  })

  await t.test('a schema change needs little memory', async t => {
    const service = await open(t, url, changed)
    const peak = service.memory('VmHWM')
    const record = await (await fetch(`${service.url}/999999`)).json()
    t.match(record, { id: 999_999, code: 'A99999', copies: 1 })
    await service.stop()
    const unchanged = await open(t, url, changed)
    const more = peak - unchanged.memory('VmHWM')
    t.comment(`${engine}: a schema change needs ${more.toFixed()} MB`)
    t.ok(more < 300)
  })
}

/** Sends a request three times, and returns the least processor time of a longest turn. */
async function longest (t: Test, { url, longestTurn }: Service, engine: string, name: string) {
  const { path = '', method = 'GET', body } = requests[name] ?? {}
  const turns = []
  for (let n = 1; n <= 3; n++) {
    await longestTurn()
    const response = await fetch(url + path.replace('NEXT', `${n}`), { method, body: body && JSON.stringify(body) })
    t.ok(response.ok, name)
    await sizeOf(response)
    turns.push(await longestTurn())
  }
  const time = Math.min(...turns.map(([time]) => time))
  const processor = Math.min(...turns.map(([, processor]) => processor))
  t.comment(`${engine}: ${name}: ${time.toFixed()} ms, ${processor.toFixed()} ms of the processor`)
  return processor
}

interface Loan {
  id: number
  member_id: number
}

const collections = {
  members: {
    schema: { type: 'object', required: ['id'], properties: { id, email: { type: 'string' } } },
    unique: ['id', 'email'],
    idSource: 'client'
  },
  loans: {
    schema: { type: 'object', required: ['id', 'member_id'], properties: { id, member_id: id } },
    references: { member_id: 'members' },
    unique: ['id'],
    idSource: 'client'
  }
}
const seconds = 60

onPostgres('four processes that write two collections for a minute never deadlock', async (t, server) => {
  const url = server.database()
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify({ ...collections, items: null, users: null }))
  const services = await Promise.all([1, 2, 3, 4].map(() => serve(t, { DATABASE_URL: url, COLLECTIONS_FILE: file })))

  const statuses: Record<number, number> = {}
  const end = Date.now() + seconds * 1000
  const write = async (api: string) => {
    while (Date.now() < end) {
      const [method, path, body] = anyRequest()
      const response = await fetch(api + path, { method, body: body && JSON.stringify(body) })
      await response.text()
      statuses[response.status] = (statuses[response.status] ?? 0) + 1
    }
  }
  const clients = services.flatMap(({ url }) => Array.from({ length: 8 }, () => write(`${url}/api`)))
  await Promise.all(clients)

  const [row] = await server.query('select deadlocks from pg_stat_database where datname = current_database()')
  t.comment({ statuses, ...row })
  t.same(Object.keys(statuses).filter(status => !/^(200|201|204|404|409)$/.test(status)), [])
  t.equal(Object.keys(statuses).length, 5, 'each outcome happens')

  const all = async (name: string) => {
    const response = await fetch(`${services[0]?.url}/api/${name}`)
    return await response.json() as Loan[]
  }
  const ids = new Set((await all('members')).map(({ id }) => id))
  const loans = await all('loans')
  t.ok(loans.length > 0)
  t.same(loans.filter(({ member_id: member }) => !ids.has(member)), [], 'no reference is dangling')
})

/** A request to create, change or delete records, most of which others use at the same time. */
function anyRequest (): [method: string, path: string, body?: object] {
  const any = () => randomInt(1, 100)
  const member = () => ({ id: any(), email: String(any()) })
  const loan = () => ({ id: any(), member_id: any() })
  const requests: [string, string, object?][] = [
    ['POST', '/members', member()],
    ['POST', '/members/batch', [member(), member()]],
    ['PATCH', `/members/${any()}`, { email: String(any()) }],
    ['DELETE', `/members/${any()}`],
    ['POST', '/loans', loan()],
    ['POST', '/loans/batch', [loan(), loan()]],
    ['PATCH', `/loans/${any()}`, { member_id: any() }],
    ['DELETE', `/loans/${any()}`]
  ]
  return requests[randomInt(requests.length)] as [string, string, object?]
}
