import type { RateLimiter } from '../plugins/guards/rate-limit.js'
import type { Health } from '../plugins/operations/health.js'
import type { Metrics } from '../plugins/operations/metrics.js'
import type { Stores } from '../plugins/host-stores.js'

/** The types of the decorators, for apps that register the plugins at the root. */
declare module 'fastify' {
  interface FastifyInstance extends Health {
    /** The stores of the registered collections. */
    stores: Stores
    metrics: Metrics
    rateLimiter: RateLimiter
  }

  interface FastifyRequest {
    /** The token of the request, with the plugin `auth`. */
    bearerToken: string | undefined
    /** The scopes of the request, with the plugin `auth`: those of its token, and those that need none. */
    scopes: readonly string[] | undefined
  }
}
