import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { copyFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { json } from 'node:stream/consumers'
import type { Test } from 'tap'
import { connection, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
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

onEveryEngine((t, address, engine) => {
  if (engine === 'SQLite') return // no instrumentation for it

  t.test('every request has its own trace with its route and its database statements', { skip: problem }, async t => {
    const { spans, endpoint } = await collect(t)
    const here = newFolder(t)
    copyFileSync('deploy/tracing.js', `${here}/tracing.mjs`)
    symlinkSync(resolve(folder, 'node_modules'), `${here}/node_modules`)
    const env = { DATABASE_URL: address(), OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json', OTEL_BSP_SCHEDULE_DELAY: '100' }
    const server = start(t, env, { flags: ['--import', `${here}/tracing.mjs`] })
    const url = await server.url
    const sent = new Map<string, { method: string, route: string, alone: boolean }>()
    for (const concurrency of [1, 5, 40]) {
      const clients = Array.from({ length: concurrency }, () => connection(url))
      for (let n = 0; n < 3; n++) {
        await Promise.all(clients.map(async ({ send }, client) => {
          const traceId = randomBytes(16).toString('hex')
          const traceparent = `00-${traceId}-${'b'.repeat(16)}-01`
          const [method, path, body] = kinds[(client + n) % kinds.length] as typeof kinds[0]
          sent.set(traceId, { method, route: path.replace(/\/\d+$/, path.startsWith('/api/users') ? '/:id' : '/:item_id'), alone: concurrency === 1 })
          await send(written(method, path, body, { traceparent }))
        }))
      }
      for (const { socket } of clients) socket.destroy()
    }
    const isLast = ({ name, scope, traceId }: Span) => sent.has(traceId) && (name === 'request' || scope === '@opentelemetry/instrumentation-http')
    await until(() => spans.filter(isLast).length === 2 * sent.size)
    server.process.kill('SIGTERM')
    t.same(await server.exit, [0, null])

    const requestLines = server.output().split('\n').filter(line => line.includes('request completed')).map(line => JSON.parse(line))
    for (const [traceId, { method, route, alone }] of sent) {
      const own = spans.filter(span => span.traceId === traceId)
      const http = own.filter(({ scope }) => scope === '@opentelemetry/instrumentation-http')
      t.equal(http.length, 1, 'there is one span of the server')
      t.match(http[0], { name: `${method} ${route}`, parentId: 'b'.repeat(16), attributes: { 'http.request.method': method, 'http.route': route } })
      const root = own.find(({ name, scope }) => scope === '@fastify/otel' && name === 'request')
      t.match(root, { parentId: http[0]?.spanId, attributes: { 'http.route': route, 'http.request.method': method } })
      const ids = own.map(({ spanId }) => spanId)
      t.ok(own.every(span => span === http[0] || ids.includes(String(span.parentId))), 'every other span is a child of one of the request')
      if (engine === 'PostgreSQL' && alone) t.ok(own.some(({ scope }) => scope.endsWith('instrumentation-pg')), 'its statements are in its trace')
      t.match(requestLines.filter(({ trace_id: id }) => id === traceId), [{ span_id: ids.find(id => id === http[0]?.spanId) ?? String }], 'its log line has the ids of its trace')
    }
    const statements = spans.filter(({ scope }) => scope.endsWith('instrumentation-pg')).filter(({ traceId }) => sent.has(traceId))
    if (engine === 'PostgreSQL') t.ok(statements.length > 3, 'statements that several requests share are in the trace of one of them')
  })
})

/** A collector of spans in the JSON of OTLP. */
async function collect (t: Test) {
  interface Exported extends Omit<Span, 'attributes'> { parentSpanId?: string, attributes: { key: string, value: { stringValue?: string } }[] }
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

const kinds: [method: string, path: string, body?: string][] = [
  ['GET', '/api/items/1'],
  ['POST', '/api/items', '{"id":7,"name":"Kettle","price":1.5}'],
  ['GET', '/api/items'],
  ['DELETE', '/api/users/7'],
  ['POST', '/api/users', '{"id":7,"name":"Alan"}']
]
