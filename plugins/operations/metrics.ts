import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { Registry } from 'prom-client'
import { jsonType } from '../http/responses.js'
import { metadata } from '../common/plugin.js'
import type { Engine } from '../stores/engine.js'
import type { MaybePromise } from '../stores/store.js'
import { version } from '../common/version.js'

export interface Metrics {
  /** Returns a store that measures the calls of this store. */
  observeStore<S extends Countable> (collection: string, store: S): S
  /** Adds the connection pools of a database. */
  observeConnections (look: Engine['connections']): void
}

/** A store, also one of a host. */
interface Countable {
  count (query: { limit: number }): MaybePromise<number>
}

export interface MetricsOptions {
  /** Port for Prometheus metrics at `/metrics`; `0` for any free port. */
  port: number
  /** Address to listen on. Default: `127.0.0.1`. */
  host?: string | undefined
}

type Prometheus = typeof import('prom-client')
type Registries = { registries: Registry[] }

/** A value of a gauge. */
interface Measured {
  labels: Record<string, string>
  value: number
}

/** Records are counted up to this number, because a scrape must not take long. */
const maxCounted = 10_001

/** In seconds, from 0.1 milliseconds to 10 seconds. */
const buckets = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]

/** The metrics of the process, which all its apps share: prom-client never stops measuring them. */
let processMetrics: Registry | undefined

/** Serves Prometheus metrics on their own port, so that they are not public by accident. */
export default fp<MetricsOptions>(async function metrics (app, { port, host = '127.0.0.1' }) {
  const prometheus = await import('prom-client')
  const registry = new prometheus.Registry()
  if (!processMetrics) prometheus.collectDefaultMetrics({ register: processMetrics = new prometheus.Registry() })
  const registries = [processMetrics, registry]
  const registers = [registry]

  const requests = new prometheus.Histogram({
    name: 'http_request_duration_seconds',
    help: 'Duration of requests',
    labelNames: ['method', 'route', 'status'],
    buckets,
    registers
  })
  app.addHook('onResponse', async function measure ({ method, routeOptions, is404 }, { statusCode, elapsedTime }) {
    const route = is404 ? 'unknown' : String(routeOptions.url)
    requests.observe({ method, route, status: statusCode }, elapsedTime / 1000)
  })

  const build = { name: 'items_users_build_info', help: 'Version of the service', labelNames: ['version'], registers }
  new prometheus.Gauge(build).set({ version }, 1)

  app.decorate('metrics', storeMetrics(prometheus, registry, app.log))
  serveMetrics(app, { port, host, registries })
}, metadata('metrics'))

/** The metrics of stores and of their connections. */
function storeMetrics ({ Gauge, Histogram }: Prometheus, registry: Registry, log: FastifyBaseLogger): Metrics {
  const registers = [registry]
  const counts: { collection: string, count: () => MaybePromise<number> }[] = []
  const pools: Engine['connections'][] = []
  const operations = new Histogram({
    name: 'store_operation_duration_seconds',
    help: 'Duration of store operations',
    labelNames: ['collection', 'operation'],
    buckets,
    registers
  })
  gauge('store_records', 'Number of records, counted up to 10,001', ['collection'], async () =>
    Promise.all(counts.map(async ({ collection, count }) => ({ labels: { collection }, value: await count() }))))
  gauge('store_connections', 'Number of database connections', ['state'], async () =>
    pools.flatMap(look => Object.entries(look())).map(([state, value]) => ({ labels: { state }, value })))

  return {
    observeStore (collection, store) {
      counts.push({ collection, count: () => store.count({ limit: maxCounted }) })
      const entries = Object.entries(store) as [string, (...values: never[]) => unknown][]
      const measured = entries.map(([name, method]) => [name, timed(collection, name, method)])
      return Object.fromEntries(measured) as unknown as typeof store
    },
    observeConnections (look) {
      pools.push(look)
    }
  }

  /** Adds a gauge that is measured by each scrape. If this fails, the gauge is left out. */
  function gauge (name: string, help: string, labelNames: string[], measure: () => Promise<Measured[]>) {
    const figure = new Gauge({ name, help, labelNames, registers, collect })

    async function collect () {
      const measured = await measure().catch(error => log.warn({ err: error }, `${name} cannot be measured`))
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
}

/** Serves `/metrics` while the app runs. */
function serveMetrics (app: FastifyInstance, { port, host, registries }: Required<MetricsOptions> & Registries) {
  const server = createServer(async function serve ({ url }, response) {
    if (url?.split('?', 1)[0] !== '/metrics') {
      return response.writeHead(404, { 'content-type': jsonType }).end('{"detail":"Path not found"}')
    }
    const texts = await Promise.all(registries.map(registry => registry.metrics()))
    response.setHeader('content-type', String(registries[0]?.contentType)).end(texts.join(''))
  })

  app.addHook('onReady', async function listen () {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, host, resolve))
    app.log.info(`metrics at http://${host}:${(server.address() as AddressInfo).port}/metrics`)
  })

  app.addHook('onClose', async function close () {
    server.close()
    server.closeAllConnections()
  })
}
