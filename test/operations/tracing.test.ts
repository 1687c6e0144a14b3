import { randomBytes } from 'node:crypto'
import { connection, written } from '../support/connection.js'
import { onEveryEngine } from '../support/engines.js'
import { install } from '../support/install.js'
import { start } from '../support/process.js'

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
  t.test('every request has its own trace with its route and its database statements', { skip: problem }, async t => {
    const server = start(t, { DATABASE_URL: address() }, { built: true, flags: ['--import', `./${folder}/tracing.js`] })
    const url = await server.url
    const sent = new Map<string, { method: string, route: string, alone: boolean }>()
    for (const concurrency of [1, 5, 100]) {
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
    server.process.kill('SIGTERM')
    t.same(await server.exit, [0, null])

    const spans = server.errors().split('\n').filter(line => line.startsWith('{')).map(line => JSON.parse(line) as Span)
    const requestLines = server.output().split('\n').filter(line => line.includes('request completed')).map(line => JSON.parse(line))
    for (const [traceId, { method, route, alone }] of sent) {
      const own = spans.filter(span => span.traceId === traceId)
      const http = own.filter(({ scope }) => scope === '@opentelemetry/instrumentation-http')
      t.equal(http.length, 1, 'there is one span of the server')
      t.match(http[0], { parentId: 'b'.repeat(16), attributes: { 'http.request.method': method } })
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

const kinds: [method: string, path: string, body?: string][] = [
  ['GET', '/api/items/1'],
  ['POST', '/api/items', '{"id":7,"name":"Kettle","price":1.5}'],
  ['GET', '/api/items'],
  ['DELETE', '/api/users/7'],
  ['POST', '/api/users', '{"id":7,"name":"Alan"}']
]
