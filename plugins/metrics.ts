import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import fp from 'fastify-plugin'
import { jsonType } from '../schemas/http.js'
import type { Stores } from './stores.js'
import type { Engine, Identified, Store } from './stores/store.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Gives these stores as they are, but that what they do is measured. */
    observed (stores: Stores, connections?: Engine['connections']): Stores
  }
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

  app.decorate('observed', function observed (stores, connections) {
    gauge('store_records', 'How many records there are', ['collection'], async set => {
      for (const [collection, store] of Object.entries(stores)) set({ collection }, await store.size())
    })
    if (connections) {
      gauge('store_connections', 'How many connections to the database there are', ['purpose', 'state'], set => {
        for (const [purpose, states] of Object.entries(connections())) {
          for (const [state, count] of Object.entries(states)) set({ purpose, state }, count)
        }
      })
    }
    return { items: timed('items', stores.items), users: timed('users', stores.users) }
  })

  const server = createServer(async function serve ({ url }, response) {
    if (url === '/metrics') return response.setHeader('content-type', registry.contentType).end(await registry.metrics())
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

  /** Has a figure looked at whenever it is asked for; one that cannot be had is left out. */
  function gauge (name: string, help: string, labelNames: string[], look: (set: (labels: Record<string, string>, value: number) => void) => unknown) {
    const figure = new Gauge({
      name,
      help,
      labelNames,
      registers,
      async collect () {
        figure.reset()
        try {
          await look((labels, value) => figure.set(labels, value))
        } catch (error) {
          app.log.warn({ err: error }, `${name} cannot be measured`)
        }
      }
    })
  }

  function timed<T extends Identified> (collection: string, store: Store<T>): Store<T> {
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
        const result = work(...args)
        if (result instanceof Promise) result.then(end, end)
        else end()
        return result
      }
    }
  }
}, { fastify: '5.x', name: 'metrics' })
