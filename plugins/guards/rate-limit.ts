import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { httpError } from '../http/errors.js'
import { failure, retryAfter } from '../http/responses.js'
import { metadata } from '../common/plugin.js'
import { loadOptional, StartupError } from '../common/startup.js'
import { documentGuard } from './document-guard.js'
import { RequestCounts } from './request-counts.js'
import { digestOf } from './tokens.js'

export interface RateLimitOptions {
  /** Maximum number of requests per client and time window. */
  max: number
  /** Length of the time window, in milliseconds. Default: 60000. */
  timeWindow?: number | undefined
  /** URL of a Redis server that all instances count requests in. Default: each instance counts in memory. */
  redis?: string | undefined
}

/** The decorator `rateLimiter`, for plugins that authenticate. Each function throws a 429. */
export interface RateLimiter {
  /** Rejects the request if its client has used up the limit. Otherwise, the request is not counted. */
  check (request: FastifyRequest, reply: FastifyReply): Promise<void>
  /** Counts the request once and rejects it if it is over the limit. */
  count (request: FastifyRequest, reply: FastifyReply): Promise<void>
}

/** The headers of each response, in the names of the document. */
export const rateHeaders = {
  'X-RateLimit-Limit': Type.Integer({ description: 'Maximum number of requests per time window' }),
  'X-RateLimit-Remaining': Type.Integer({ description: 'Number of requests left in the time window' }),
  'X-RateLimit-Reset': Type.Integer({ description: 'Seconds until the time window ends' })
}

const tooMany = failure('The client has sent too many requests', { ...retryAfter, ...rateHeaders })

/** Maximum time for Redis, in milliseconds. After that, requests are not limited until it is connected again. */
const redisTimeout = 500

/**
 * Limits the requests of each client on all routes of its scope. A request counts for its valid token, otherwise for
 * its IP address. Once an address has used up its limit, all its requests get 429, and `auth` checks no token of it.
 */
export default fp<RateLimitOptions>(async function rateLimit (app, { max, timeWindow, redis }) {
  // The functions of the package would be those of the outer limit.
  if (app.hasDecorator('createRateLimit')) {
    throw new StartupError('The plugin rateLimit cannot be registered below another rate limit.')
  }
  const { default: fastifyRateLimit, normalizeIP } = await import('@fastify/rate-limit')
  await app.register(fastifyRateLimit, {
    max,
    timeWindow,
    ...redis ? { redis: await connect(app, redis), nameSpace: 'fastify-items-users:' } : { store: RequestCounts },
    skipOnError: true,
    keyGenerator: request => tokenOf(request) ?? normalizeIP(withoutPort(request.ip)),
    errorResponseBuilder: () => httpError(429)
  })
  documentGuard(app, () => ({ 429: tooMany }), rateHeaders)

  const readLimit = app.createRateLimit()
  const countRequest = app.rateLimit()
  const rateLimiter: RateLimiter = {
    async check (request, reply) {
      const limit = await readLimit(request, { increment: false })
      if (!limit.isAllowed && limit.remaining === 0) await rateLimiter.count(request, reply)
    },
    async count (request, reply) {
      await countRequest.call(app, request, reply)
    }
  }
  app.decorate('rateLimiter', rateLimiter)

  // The package does not count requests to unknown paths. This hook runs after the token has been checked.
  app.addHook('preParsing', async function countNotFound (request, reply) {
    if (request.is404) await rateLimiter.count(request, reply)
  })
}, metadata('rate-limit'))

/** Connects to Redis. Its loss is logged once, and ioredis connects again by itself. */
async function connect (app: FastifyInstance, url: string) {
  const { Redis } = await loadOptional('ioredis', 'redis', () => import('ioredis'))
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    connectTimeout: redisTimeout,
    commandTimeout: redisTimeout,
    socketTimeout: redisTimeout,
    maxRetriesPerRequest: 0
  })
  const warn = () => app.log.warn('Redis is disconnected; requests are not limited until it is connected again')
  redis.on('error', () => {}) // emitted for every attempt to connect
  redis.on('ready', () => {
    app.log.info('Redis is connected')
    redis.once('close', warn)
  })
  app.addHook('onClose', async function disconnect () {
    redis.off('close', warn).disconnect()
  })
  await redis.connect().catch(warn)
  return redis
}

/** Some proxies send the address with the port, such as `203.0.113.7:50001` and `[2001:db8::1]:50001`. */
function withoutPort (address: string) {
  return address.replace(/^\[([^\]]*)\](:\d+)?$/, '$1').replace(/^([\d.]+):\d+$/, '$1')
}

/** A digest of the valid token of a request, because others may read the keys in Redis. */
function tokenOf (request: FastifyRequest) {
  if (!request.server.hasRequestDecorator('bearerToken')) return
  const token = request.getDecorator<string | undefined>('bearerToken')
  return token && digestOf(token)
}
