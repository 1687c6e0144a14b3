import { renameSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { test, type Test } from 'tap'
import {
  default as itemsUsers, IdempotencyKeyInUseError, IdempotencyKeyReusedError, NoIdLeftError, NotStorableError, StoreUnavailableError, type Store
} from '../../src/index.js'
import { noSmallDisk, smallDisk } from '../support/disk.js'
import { newFolder } from '../support/folder.js'
import { build, host } from '../support/helper.js'
import { startPostgres } from '../support/postgres.js'
import { until } from '../support/until.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

interface Line {
  level: number
  msg: string
  err?: { stack: string }
}

test('on SQLite, an outage is logged once when it starts and once when it ends', async t => {
  const file = `${newFolder(t)}/items.db`
  await logsOutage(t, `sqlite:${file}`, async () => renameSync(file, `${file}.away`), async () => renameSync(`${file}.away`, file))
})

test('on PostgreSQL, an outage is logged once when it starts and once when it ends', async t => {
  const server = await startPostgres(t)
  if (!server) return t.plan(0, 'PostgreSQL does not start')
  await logsOutage(t, server.database(), () => server.stop('SIGQUIT'), server.run)
})

test('on SQLite, an outage that only the readiness probe notices is logged', async t => {
  const file = `${newFolder(t)}/items.db`
  const lines: Line[] = []
  const app = build(t, { DATABASE_URL: `sqlite:${file}`, LOG_LEVEL: 'info' }, { write: line => lines.push(JSON.parse(line)) })
  await app.ready()
  renameSync(file, `${file}.away`)
  for (let n = 0; n < 3; n++) t.equal((await app.inject('/readyz')).statusCode, 503)
  t.same(lines.map(({ level, msg }) => [level, msg]), [[40, 'The database is unavailable']])
  renameSync(`${file}.away`, file)
})

test('on SQLite, the service is not ready while the disk is full', { skip: noSmallDisk }, async t => {
  const disk = smallDisk(t, 16)
  await logsFullDisk(t, `sqlite:${disk.folder}/items.db`, disk)
})

test('on PostgreSQL, the service is not ready while the disk is full', { skip: noSmallDisk }, async t => {
  const disk = smallDisk(t, 200)
  const server = await startPostgres(t, disk.folder)
  if (!server) return t.plan(0, 'PostgreSQL does not start')
  await logsFullDisk(t, server.database(), disk)
})

async function logsFullDisk (t: Test, address: string, { fill, free }: ReturnType<typeof smallDisk>) {
  const lines: string[] = []
  const app = build(t, { DATABASE_URL: address, LOG_LEVEL: 'info' }, { write: line => lines.push(JSON.parse(line).msg) })
  const logged = () => lines.filter(line => line !== 'request completed')
  const post = async () => (await app.inject({ method: 'POST', url: '/api/items', payload: { ...item, name: 'x'.repeat(5000) } })).statusCode
  const isReady = async () => (await app.inject('/readyz')).statusCode === 200
  t.equal(await post(), 201)
  t.ok(await isReady())
  fill()
  await until(async () => await post() === 503)
  for (let n = 0; n < 3; n++) t.notOk(await isReady())
  await sleep(2500) // several checks of the log
  t.same(logged(), ['The database is unavailable'])
  free()
  await until(isReady)
  t.equal(await post(), 201)
  await until(() => logged().length > 1)
  t.same(logged(), ['The database is unavailable', 'The database is available again'])
}

async function logsOutage (t: Test, address: string, stop: () => Promise<void>, start: () => Promise<void>) {
  const lines: Line[] = []
  const app = build(t, { DATABASE_URL: address, LOG_LEVEL: 'info' }, { write: line => lines.push(JSON.parse(line)) })
  const post = () => app.inject({ method: 'POST', url: '/api/items', payload: item })
  t.equal((await post()).statusCode, 201)
  for (let outage = 1; outage <= 2; outage++) {
    await stop()
    const answers = await Promise.all(Array.from({ length: 20 }, post))
    t.same([...new Set(answers.map(({ statusCode }) => statusCode))], [503])
    await start()
    while ((await post()).statusCode !== 201);
    while (said('The database is available again').length < outage) await sleep(50)
    t.equal(said('The database is unavailable').length, outage)
    t.equal(said('The database is available again').length, outage)
  }
  t.equal(lines.filter(({ err }) => err).length, 2, 'one stack for each outage, and none for each request')
  t.ok(lines.filter(({ level }) => level === 40).every(({ err }) => err))

  function said (message: string) {
    return lines.filter(({ msg }) => msg === message)
  }
}

test('errors of custom stores have the same responses as ours', async t => {
  const errors: [Error, number, string][] = [
    [new StoreUnavailableError(), 503, 'The database is unavailable'],
    [new NoIdLeftError(), 503, 'No more ids can be generated'],
    [new IdempotencyKeyInUseError(), 409, 'A request with this Idempotency-Key is in progress'],
    [new IdempotencyKeyReusedError(), 422, 'Idempotency-Key was already used with a different request body'],
    [new NotStorableError('/name', 'must be short'), 400, 'Invalid body: name must be short.']
  ]
  for (const [error, status, detail] of errors) {
    const own: Store<{ id: number }> = {
      append () { throw error }, first: () => undefined, select: () => ({ list: '[]' }), change: () => undefined
    }
    const lines: string[] = []
    const app = host(t, { logger: { level: 'error', stream: { write: (line: string) => lines.push(JSON.parse(line).msg) } } })
    app.register(itemsUsers, { prefix: '/api', store: { items: own, users: own } })
    const response = await app.inject({ method: 'POST', url: '/api/items', payload: item })
    t.same(lines, error instanceof NoIdLeftError ? [detail] : [], 'only an error that the operator must know is logged')
    t.equal(response.statusCode, status)
    t.equal(response.json().detail, detail)
    t.equal(response.headers['retry-after'], status === 503 || status === 409 ? '1' : undefined)
  }
})
