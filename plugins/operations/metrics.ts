import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Type } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { version } from '../version.js'
import { checkOptions, metadata } from '../http/plugin.js'
import { jsonType } from '../http/responses.js'
import type { Engine, MaybePromise, HasId, Store } from '../stores/store.js'

/** The decorator `metrics`. */
export interface Metrics {
  /** Returns a store that measures the calls of this store. */
  observeStore<T extends HasId> (collection: string, store: Store<T>): Store<T>
  /** Adds the connection pools of a database. */
  observeConnections (look: NonNullable<Engine['connections']>): void
}

/** Options of the plugin `metrics`. */
export interface MetricsOptions {
  /** Port for Prometheus metrics at `/metrics`; `0` for any free port. */
  port: number
  /** Address to listen on. Default: `127.0.0.1`. */
  host?: string
}

/** In seconds, from 0.1 milliseconds to 10 seconds. */
const buckets = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]

/** Serves Prometheus metrics on their own port, so that they are not public by accident. */
export default fp<MetricsOptions>(async function metrics (app, options) {
  const { port, host = '127.0.0.1' } = checkOptions(app, 'metrics', {
    port: Type.Integer({ minimum: 0, maximum: 65535 }),
    host: Type.Optional(Type.String({ minLength: 1 }))
  }, options)
  const { collectDefaultMetrics, Gauge, Histogram, Registry } = await import('prom-client')
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })

  const histogram = (name: string, help: string, labelNames: string[]) => new Histogram({ name, help, labelNames, buckets, registers })
  const requests = histogram('http_request_duration_seconds', 'Duration of requests', ['method', 'route', 'status'])
  const operations = histogram('store_operation_duration_seconds', 'Duration of store operations', ['collection', 'operation'])

  app.addHook('onResponse', async function measure ({ method, routeOptions, is404 }, { statusCode, elapsedTime }) {
    const route = is404 ? 'unknown' : String(routeOptions.url)
    requests.observe({ method, route, status: statusCode }, elapsedTime / 1000)
  })

  new Gauge({ name: 'items_users_build_info', help: 'Version of the service', labelNames: ['version'], registers }).set({ version }, 1)

  const sizes: { collection: string, size: () => MaybePromise<number> }[] = []
  gauge('store_records', 'Number of records, counted up to 10,001 in a database', ['collection'], async add => {
    for (const { collection, size } of sizes) add({ collection }, await size())
  })

  const pools: NonNullable<Engine['connections']>[] = []
  gauge('store_connections', 'Number of database connections', ['purpose', 'state'], add => {
    for (const [purpose, states] of pools.flatMap(look => Object.entries(look()))) {
      for (const [state, count] of Object.entries(states)) add({ purpose, state }, count)
    }
  })

  const metrics: Metrics = {
    observeStore (collection, store) {
      sizes.push({ collection, size: store.size })
      return {
        ...store,
        append: timed(collection, 'append', store.append),
        first: timed(collection, 'first', store.first),
        list: timed(collection, 'list', store.list),
        page: timed(collection, 'page', store.page),
        removeFirst: timed(collection, 'removeFirst', store.removeFirst),
        ...store.replaceFirst && { replaceFirst: timed(collection, 'replaceFirst', store.replaceFirst) },
        ...store.version && { version: timed(collection, 'version', store.version) }
      }
    },
    observeConnections (look) {
      pools.push(look)
    }
  }
  app.decorate('metrics', metrics)

  const server = createServer(async function serve ({ url }, response) {
    if (url?.split('?', 1)[0] === '/metrics') return response.setHeader('content-type', registry.contentType).end(await registry.metrics())
    response.writeHead(404, { 'content-type': jsonType }).end('{"detail":"Path not found"}')
  })

  app.addHook('onReady', async function listen () {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, host, resolve))
    app.log.info(`metrics at http://${host}:${(server.address() as AddressInfo).port}/metrics`)
  })

  app.addHook('onClose', async function close () {
    server.close()
    server.closeAllConnections()
  })

  /** Adds a gauge that is measured by each scrape; concurrent scrapes share a measurement. If it fails, the gauge is left out. */
  function gauge (name: string, help: string, labelNames: string[], look: (add: (labels: Record<string, string>, value: number) => void) => unknown) {
    let measuring: Promise<void> | undefined
    const collect = () => (measuring ??= measure().finally(() => { measuring = undefined }))
    const figure = new Gauge({ name, help, labelNames, registers, collect })

    async function measure () {
      const values: { labels: Record<string, string>, value: number }[] = []
      try {
        await look((labels, value) => values.push({ labels, value }))
      } catch (error) {
        values.length = 0
        app.log.warn({ err: error }, `${name} cannot be measured`)
      }
      figure.reset() // no await from here on, so that no scrape sees a part of the values
      for (const { labels, value } of values) figure.inc(labels, value)
    }
  }

  function timed<A extends unknown[], R> (collection: string, operation: string, work: (...args: A) => R) {
    return (...args: A) => {
      const end = operations.startTimer({ collection, operation })
      try {
        const result = work(...args)
        if (result instanceof Promise) return result.finally(end) as R
        end()
        return result
      } catch (error) {
        end()
        throw error
      }
    }
  }
}, metadata('metrics'))
