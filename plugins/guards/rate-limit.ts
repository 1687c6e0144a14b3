import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { tooManyRequests } from '../http/errors.js'
import { withDriver } from '../stores/engines.js'
import { MemoryStore } from './rate-limit-store.js'

export interface RateLimitOptions {
  /** How many requests a client may make in a window. */
  max: number
  /** How long a window is, in milliseconds. */
  timeWindow?: number
  /** The URL of a Redis server, where many instances count together. */
  redis?: string
}

/** The decorator `rateLimiter`, for plugins that authenticate. Each function throws a 429. */
export interface RateLimiter {
  /** Rejects the request if its client has used up its limit, and does not count it. */
  check (request: FastifyRequest, reply: FastifyReply): Promise<void>
  /** Counts the request against its client, once, and rejects it if it is over the limit. */
  count (request: FastifyRequest, reply: FastifyReply): Promise<void>
}

/** How long Redis may take, in milliseconds; then it is disconnected, and requests are not counted until it is back. */
const redisTimeout = 500

/**
 * Limits the requests of each client, on all routes of its scope. A request counts against its valid token, otherwise
 * against its IP address. Once an address has used up its limit, all its requests are answered with 429, and `auth`
 * does not check their tokens.
 */
export default fp<RateLimitOptions>(async function rateLimit (app, { max, timeWindow, redis }) {
  const { default: fastifyRateLimit, normalizeIP } = await import('@fastify/rate-limit')
  await app.register(fastifyRateLimit, {
    max,
    timeWindow,
    ...redis ? { redis: await connect(app, redis), nameSpace: 'fastify-items-users:' } : { store: MemoryStore },
    skipOnError: true,
    keyGenerator: request => tokenOf(request) ?? normalizeIP(request.ip),
    errorResponseBuilder: tooManyRequests
  })

  const readLimit = app.createRateLimit()
  const countRequest = app.rateLimit()
  const rateLimiter: RateLimiter = {
    async check (request, reply) {
      const limit = await readLimit(request, { increment: false })
      if (limit.isAllowed || limit.remaining > 0) return
      const seconds = limit.ttlInSeconds
      reply.headers({ 'x-ratelimit-limit': max, 'x-ratelimit-remaining': 0, 'x-ratelimit-reset': seconds, 'retry-after': seconds })
      throw tooManyRequests()
    },
    async count (request, reply) {
      await countRequest.call(app, request, reply)
    }
  }
  app.decorate('rateLimiter', rateLimiter)

  // The package counts requests to routes only. This hook runs when a token has been checked.
  app.addHook('preParsing', async function countNotFound (request, reply) {
    if (request.is404) await rateLimiter.count(request, reply)
  })
}, { fastify: '5.x', name: 'fastify-items-users/rate-limit' })

async function connect (app: FastifyInstance, url: string) {
  const { Redis } = await withDriver('ioredis', () => import('ioredis'))
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    connectTimeout: redisTimeout,
    commandTimeout: redisTimeout,
    socketTimeout: redisTimeout,
    maxRetriesPerRequest: 0
  })
  let lost = false
  redis.on('ready', () => {
    if (lost) app.log.info('Redis is back')
    lost = false
  })
  redis.on('close', () => {
    if (!lost) app.log.warn('Redis is lost; requests are not limited until it is back')
    lost = true
  })
  redis.on('error', () => {}) // which comes with every try
  app.addHook('onClose', async function disconnect () {
    lost = true
    redis.disconnect()
  })
  await redis.connect().catch(() => {}) // it tries again by itself
  return redis
}

/** The token of a request that `auth` has found valid, as a digest, since others may read the keys in Redis. */
function tokenOf (request: FastifyRequest) {
  if (!request.server.hasRequestDecorator('bearerToken')) return
  const token = request.getDecorator<string | undefined>('bearerToken')
  return token && createHash('sha256').update(token).digest('base64url')
}
