import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { copyFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { json } from 'node:stream/consumers'
import type { Test } from 'tap'
import { connection, written } from '../support/connection.js'
import { onPostgres } from '../support/databases.js'
import { newFolder } from '../support/folder.js'
import { start } from '../support/process.js'
import { install } from '../support/install.js'
import { until } from '../support/until.js'

const folder = 'test/operations/tracing'
const problem = await install(folder)

interface Span {
  name: string
  scope: string
  traceId: string
  spanId: string
  parentId?: string
  attributes: Record<string, unknown>
}

onPostgres('every request has its own trace with its route and its statements', async (t, server) => {
  if (problem) return t.plan(0, problem)
  const { spans, endpoint } = await collect(t)
  const here = newFolder(t)
  copyFileSync('deploy/tracing.js', `${here}/tracing.mjs`)
  symlinkSync(resolve(folder, 'node_modules'), `${here}/node_modules`)
  const service = start(t, {
    DATABASE_URL: server.database(),
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_BSP_SCHEDULE_DELAY: '100'
  }, { flags: ['--import', `${here}/tracing.mjs`] })
  const url = await service.url
  const sent = new Map<string, { method: string, route: string, alone: boolean }>()
  for (const concurrency of [1, 40]) {
    const clients = Array.from({ length: concurrency }, () => connection(url))
    for (const { send } of clients) {
      const traceId = randomBytes(16).toString('hex')
      const [method, path, route, body] = kinds[sent.size % kinds.length] ?? kinds[0]
      sent.set(traceId, { method, route, alone: concurrency === 1 })
      const answer = send(written(method, path, body, { traceparent: `00-${traceId}-${'b'.repeat(16)}-01` }))
      if (concurrency === 1) await answer
    }
    await until(() => spans.filter(isLast).length === 2 * sent.size)
    for (const { socket } of clients) socket.destroy()
  }
  service.process.kill('SIGTERM')
  t.same(await service.exit, [0, null])

  const lines = service.output().split('\n').filter(line => line.includes('request completed'))
  for (const [traceId, { method, route, alone }] of sent) {
    const own = spans.filter(span => span.traceId === traceId)
    const [http, ...more] = own.filter(({ scope }) => scope === '@opentelemetry/instrumentation-http')
    t.same(more, [], 'there is one span of the server')
    const attributes = { 'http.request.method': method, 'http.route': route }
    t.match(http, { name: `${method} ${route}`, parentId: 'b'.repeat(16), attributes })
    const root = own.find(({ name, scope }) => scope === '@fastify/otel' && name === 'request')
    t.match(root, { parentId: http?.spanId, attributes })
    const ids = own.map(({ spanId }) => spanId)
    const others = own.filter(span => span !== http)
    t.ok(others.every(({ parentId = '' }) => ids.includes(parentId)), 'every other span is below it')
    if (alone) t.ok(own.some(({ scope }) => scope.endsWith('instrumentation-pg')), 'its statements are in its trace')
    const line = lines.map(line => JSON.parse(line)).filter(({ trace_id: id }) => id === traceId)
    t.match(line, [{ span_id: http?.spanId }], 'its log line has the ids of its trace')
  }

  function isLast ({ name, scope, traceId }: Span) {
    return sent.has(traceId) && (name === 'request' || scope === '@opentelemetry/instrumentation-http')
  }
})

/** A collector of spans in the JSON of OTLP. */
async function collect (t: Test) {
  interface Exported extends Omit<Span, 'attributes'> {
    parentSpanId?: string
    attributes: { key: string; value: { stringValue?: string } }[]
  }
  interface Traces { resourceSpans: { scopeSpans: { scope: { name: string }, spans: Exported[] }[] }[] }
  const spans: Span[] = []
  const collector = createServer(async (request, response) => {
    const { resourceSpans = [] } = await json(request) as Traces
    for (const { scope, spans: exported } of resourceSpans.flatMap(({ scopeSpans }) => scopeSpans)) {
      for (const { parentSpanId, attributes, ...span } of exported) {
        const values = Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue]))
        spans.push({ ...span, scope: scope.name, attributes: values, ...parentSpanId && { parentId: parentSpanId } })
      }
    }
    response.setHeader('content-type', 'application/json').end('{}')
  }).listen(0, '127.0.0.1')
  t.teardown(() => { collector.closeAllConnections(); collector.close() })
  await once(collector, 'listening')
  return { spans, endpoint: `http://127.0.0.1:${(collector.address() as AddressInfo).port}` }
}

const kinds: [[method: string, path: string, route: string, body?: string], ...[string, string, string, string?][]] = [
  ['GET', '/api/items/1', '/api/items/:item_id'],
  ['POST', '/api/items', '/api/items', '{"id":7,"name":"Kettle","price":1.5}'],
  ['GET', '/api/items', '/api/items'],
  ['DELETE', '/api/users/7', '/api/users/:id'],
  ['POST', '/api/users', '/api/users', '{"id":7,"name":"Alan"}']
]
