import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import fp from 'fastify-plugin'
import { jsonType } from '../http/responses.js'
import type { Engine, MaybePromise, HasId, Store } from '../stores/store.js'

/** The decorator `metrics`: what else is measured. */
export interface Metrics {
  /** Returns the store with its calls measured. */
  observeStore<T extends HasId> (collection: string, store: Store<T>): Store<T>
  observeConnections (look: NonNullable<Engine['connections']>): void
}

export interface MetricsOptions {
  /** The port to serve `/metrics` on, for Prometheus; `0` for any that is free. */
  port: number
  /** The address to listen on. */
  host?: string
}

/** From a tenth of a millisecond to ten seconds. */
const buckets = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]

/** Measures the app and serves the figures on a port of their own, so that they are never public by accident. */
export default fp<MetricsOptions>(async function metrics (app, { port, host = '127.0.0.1' }) {
  const { collectDefaultMetrics, Gauge, Histogram, Registry } = await import('prom-client')
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })

  const requests = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'How long requests took, by the route that served them',
    labelNames: ['method', 'route', 'status'],
    buckets,
    registers
  })
  const operations = new Histogram({
    name: 'store_operation_duration_seconds',
    help: 'How long the stores took',
    labelNames: ['collection', 'operation'],
    buckets,
    registers
  })

  app.addHook('onResponse', async function measure ({ method, routeOptions, is404 }, { statusCode, elapsedTime }) {
    const route = is404 ? 'unknown' : String(routeOptions.url)
    requests.observe({ method, route, status: statusCode }, elapsedTime / 1000)
  })

  const sizes: { collection: string, size: () => MaybePromise<number> }[] = []
  gauge('store_records', 'How many records there are; in a database, an estimate beyond 10,000', ['collection'], async add => {
    for (const { collection, size } of sizes) add({ collection }, await size())
  })

  const pools: NonNullable<Engine['connections']>[] = []
  gauge('store_connections', 'How many connections to the database there are', ['purpose', 'state'], add => {
    for (const [purpose, states] of pools.flatMap(look => Object.entries(look()))) {
      for (const [state, count] of Object.entries(states)) add({ purpose, state }, count)
    }
  })

  const metrics: Metrics = {
    observeStore (collection, store) {
      sizes.push({ collection, size: store.size })
      return timed(collection, store)
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

  /** Has a figure measured when it is asked for, once for all who ask meanwhile; one that cannot be had is left out. */
  function gauge (name: string, help: string, labelNames: string[], look: (add: (labels: Record<string, string>, value: number) => void) => unknown) {
    let measuring: Promise<void> | undefined
    const figure = new Gauge({
      name,
      help,
      labelNames,
      registers,
      async collect () {
        measuring ??= measure().finally(() => { measuring = undefined })
        await measuring
      }
    })

    async function measure () {
      const values: { labels: Record<string, string>, value: number }[] = []
      try {
        await look((labels, value) => values.push({ labels, value }))
      } catch (error) {
        values.length = 0
        app.log.warn({ err: error }, `${name} cannot be measured`)
      }
      figure.reset() // and added up without a pause, so that no scrape sees a part of it
      for (const { labels, value } of values) figure.inc(labels, value)
    }
  }

  function timed<T extends HasId> (collection: string, store: Store<T>): Store<T> {
    return {
      append: time('append', store.append),
      first: time('first', store.first),
      list: time('list', store.list),
      page: time('page', store.page),
      removeFirst: time('removeFirst', store.removeFirst),
      size: store.size
    }

    function time<A extends unknown[], R> (operation: string, work: (...args: A) => R) {
      return (...args: A) => {
        const endTimer = operations.startTimer({ collection, operation })
        const end = () => { endTimer() }
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
  }
}, { fastify: '5.x', name: 'fastify-items-users/metrics' })
