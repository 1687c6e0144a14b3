import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Type, type Static } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import type { Registry } from 'prom-client'
import { jsonType } from '../http/responses.js'
import { checkOptions, metadata, optional } from '../plugin.js'
import type { Engine, MaybePromise, Store } from '../stores/store.js'
import { version } from '../version.js'

export interface Metrics {
  /** Returns a store that measures the calls of this store. */
  observeStore<S extends Store<never>> (collection: string, store: S): S
  /** Adds the connection pools of a database. */
  observeConnections (look: NonNullable<Engine['connections']>): void
}

const MetricsOptions = Type.Object({
  /** Port for Prometheus metrics at `/metrics`; `0` for any free port. */
  port: Type.Integer({ minimum: 0, maximum: 65535 }),
  /** Address to listen on. Default: `127.0.0.1`. */
  host: optional(Type.String({ minLength: 1 }))
})
export interface MetricsOptions extends Static<typeof MetricsOptions> {}

/** Records are counted up to this number, because a scrape must not take long. */
const maxCounted = 10_001

/** In seconds, from 0.1 milliseconds to 10 seconds. */
const buckets = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]

/** The metrics of the process, which all its apps share: prom-client never stops measuring them. */
let processMetrics: Registry | undefined

/** Serves Prometheus metrics on their own port, so that they are not public by accident. */
export default fp<MetricsOptions>(async function metrics (app, options) {
  const { port, host = '127.0.0.1' } = checkOptions(app, 'metrics', MetricsOptions, options)
  const { collectDefaultMetrics, Gauge, Histogram, Registry } = await import('prom-client')
  const registry = new Registry()
  const registers = [registry]
  if (!processMetrics) collectDefaultMetrics({ register: processMetrics = new Registry() })
  const ofProcess = processMetrics

  const histogram = (name: string, help: string, labelNames: string[]) => new Histogram({ name, help, labelNames, buckets, registers })
  const requests = histogram('http_request_duration_seconds', 'Duration of requests', ['method', 'route', 'status'])
  const operations = histogram('store_operation_duration_seconds', 'Duration of store operations', ['collection', 'operation'])

  app.addHook('onResponse', async function measure ({ method, routeOptions, is404 }, { statusCode, elapsedTime }) {
    const route = is404 ? 'unknown' : String(routeOptions.url)
    requests.observe({ method, route, status: statusCode }, elapsedTime / 1000)
  })

  new Gauge({ name: 'items_users_build_info', help: 'Version of the service', labelNames: ['version'], registers }).set({ version }, 1)

  const counts: { collection: string, count: () => MaybePromise<number> }[] = []
  gauge('store_records', 'Number of records, counted up to 10,001 in a database', ['collection'],
    () => Promise.all(counts.map(async ({ collection, count }) => ({ labels: { collection }, value: await count() }))))

  const pools: NonNullable<Engine['connections']>[] = []
  gauge('store_connections', 'Number of database connections', ['purpose', 'state'], async () =>
    pools.flatMap(look => Object.entries(look())).flatMap(([purpose, states]) =>
      Object.entries(states).map(([state, value]) => ({ labels: { purpose, state }, value }))))

  const metrics: Metrics = {
    observeStore (collection, store) {
      const { schema, count, ...methods }: Store<never> = store
      if (count) counts.push({ collection, count: () => count({ limit: maxCounted }) })
      const present = Object.entries<(...args: never[]) => unknown>(methods).filter(([, method]) => method)
      return { ...store, ...Object.fromEntries(present.map(([name, method]) => [name, timed(collection, name, method)])) }
    },
    observeConnections (look) {
      pools.push(look)
    }
  }
  app.decorate('metrics', metrics)

  const server = createServer(async function serve ({ url }, response) {
    if (url?.split('?', 1)[0] !== '/metrics') return response.writeHead(404, { 'content-type': jsonType }).end('{"detail":"Path not found"}')
    response.setHeader('content-type', registry.contentType).end(await ofProcess.metrics() + await registry.metrics())
  })

  app.addHook('onReady', async function listen () {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, host, resolve))
    app.log.info(`metrics at http://${host}:${(server.address() as AddressInfo).port}/metrics`)
  })

  app.addHook('onClose', async function close () {
    server.close()
    server.closeAllConnections()
  })

  /** Adds a gauge that is measured by each scrape. If this fails, the gauge is left out. */
  function gauge (name: string, help: string, labelNames: string[], measure: () => Promise<{ labels: Record<string, string>, value: number }[]>) {
    const figure = new Gauge({ name, help, labelNames, registers, collect })

    async function collect () {
      const measured = await measure().catch(error => app.log.warn({ err: error }, `${name} cannot be measured`))
      // All values change at once, because there may be another scrape.
      figure.reset()
      for (const { labels, value } of measured ?? []) figure.inc(labels, value)
    }
  }

  function timed<A extends unknown[], R> (collection: string, operation: string, work: (...args: A) => R) {
    return async (...args: A) => {
      const end = operations.startTimer({ collection, operation })
      try {
        return await work(...args)
      } finally {
        end()
      }
    }
  }
}, metadata('metrics'))
