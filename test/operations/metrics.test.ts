import Fastify from 'fastify'
import Database from 'libsql'
import { test, type Test } from 'tap'
import itemsUsers, { metrics } from '../../src/index.js'
import type { LogStream } from '../../src/logger.js'
import { checkedFetch as fetch } from '../support/document.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import * as helper from '../support/helper.js'
import { start, takenPort } from '../support/process.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv, log?: LogStream) => helper.build(t, { DATABASE_URL: address(), ...env }, log)

  t.test('figures are served on a port of their own, by route and never by path', async t => {
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
      /^store_operation_duration_seconds_count{collection="items",operation="page"} 1$/m,
      /^nodejs_eventloop_lag_p99_seconds /m,
      /^process_resident_memory_bytes /m
    ]) t.match(text, line)
    t.notMatch(text, '424242')
    t.equal(/^store_connections{purpose="lists",state="idle"} \d+$/m.test(text), engine !== 'memory')
    t.equal(/^store_connections{purpose="queries",state="used"} \d+$/m.test(text), engine === 'PostgreSQL')
    t.equal((await fetch(new URL('/', url))).status, 404)
    t.equal((await fetch(`${url}?x=1`)).status, 200)
    t.equal((await app.inject('/metrics')).statusCode, 404)
    await app.close()
    await t.rejects(fetch(url))
  })
})

test('a figure that cannot be had is left out, and the others are not', async t => {
  const file = `${newFolder(t)}/items.db`
  const lines: string[] = []
  const app = helper.build(t, { DATABASE_URL: `sqlite:${file}`, METRICS_PORT: '0', LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  await app.ready()
  new Database(file).exec('drop table items')
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  t.notMatch(text, /^store_records{/m)
  t.match(text, /^process_resident_memory_bytes /m)
  t.match(lines.join(), 'store_records cannot be measured')
  await app.inject('/api/items')
  t.match(await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text(), /operation="list"} 1$/m)
})

test('a port for metrics that is taken is one clear line', async t => {
  const { port } = await takenPort(t)
  const server = start(t, { METRICS_PORT: String(port) })
  t.same(await server.exit, [1, null])
  t.equal(server.errors(), `Cannot listen on 127.0.0.1:${port}: the port is taken; set METRICS_PORT to another one.\n`)
})

test('where several are registered, their figures are added up', async t => {
  const lines: string[] = []
  const app = host(t, { logger: { level: 'info', stream: { write: (line: string) => lines.push(line) } } })
  await app.register(metrics, { port: 0 })
  app.register(itemsUsers, { prefix: '/a' })
  app.register(itemsUsers, { prefix: '/b', store: `sqlite:${newFolder(t)}/items.db` })
  await app.inject({ method: 'POST', url: '/a/items', payload: item, headers: { 'idempotency-key': 'a' } })
  await app.inject({ method: 'POST', url: '/a/items', payload: { ...item, id: 8 }, headers: { 'idempotency-key': 'a' } })
  const text = await (await fetch(/metrics at (\S+)"/.exec(lines.join())?.[1] ?? '')).text()
  t.match(text, /^store_records{collection="items"} 3$/m)
  t.match(text, /operation="append"} 2$/m)
})

function host (t: Test, options = {}) {
  const app = Fastify(options)
  t.teardown(() => app.close())
  return app
}
