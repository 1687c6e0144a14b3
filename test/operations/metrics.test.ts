import { test, type Test } from 'tap'
import type { DestinationStream } from 'pino'
import { version } from '../../plugins/common/version.js'
import { checkedFetch as fetch } from '../support/document.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import * as helper from '../support/helper.js'
import { start, takenPort } from '../support/process.js'
import { openSqlite } from '../support/sql.js'

const item = { id: 7, name: 'Kettle', price: 19.99 }

onEveryEngine((t, address) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv, log?: DestinationStream) =>
    helper.build(t, { DATABASE_URL: address(), ...env }, log)

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
})

test('a metric that cannot be measured is left out', async t => {
  const file = `${newFolder(t)}/items.db`
  const lines: string[] = []
  const app = helper.build(
    t,
    { DATABASE_URL: `sqlite:${file}`, METRICS_PORT: '0', LOG_LEVEL: 'info' },
    { write: line => lines.push(line) }
  )
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
  t.equal(
    server.errors(),
    `Cannot listen on 127.0.0.1:${port}: the port is in use. Set METRICS_PORT to another port.\n`
  )
})
