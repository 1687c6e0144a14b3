import type {} from '@fastify/swagger' // `tags`, `operationId` and other words of the document in route schemas
import type { RateLimiter } from '../plugins/guards/rate-limit.js'
import type { Stores } from '../plugins/host-stores.js'
import type { Health } from '../plugins/operations/health.js'
import type { Metrics } from '../plugins/operations/metrics.js'

/** The types of the decorators and of our route options, for apps that register the plugins at the root. */
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

  interface FastifyContextConfig {
    /** The collection that a route belongs to, for scopes. */
    collection?: string
  }
}
