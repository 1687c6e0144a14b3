import { createHash } from 'node:crypto'
import { Type, type Static } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { httpError } from '../http/errors.js'
import { checkOptions, metadata, optional } from '../plugin.js'
import { loadOptional, StartupError } from '../startup.js'

const RateLimitOptions = Type.Object({
  /** Maximum number of requests per client and time window. */
  max: Type.Integer({ minimum: 1 }),
  /** Length of the time window, in milliseconds. Default: 60000. */
  timeWindow: optional(Type.Integer({ minimum: 1 })),
  /** URL of a Redis server that all instances count requests in. Default: each instance counts in memory. */
  redis: optional(Type.String({ pattern: '^rediss?://', expected: 'a URL such as redis://host:6379' }))
})
export interface RateLimitOptions extends Static<typeof RateLimitOptions> {}

/** The decorator `rateLimiter`, for plugins that authenticate. Each function throws a 429. */
export interface RateLimiter {
  /** Rejects the request if its client has used up the limit. Does not count the request. */
  check (request: FastifyRequest, reply: FastifyReply): Promise<void>
  /** Counts the request once and rejects it if it is over the limit. */
  count (request: FastifyRequest, reply: FastifyReply): Promise<void>
}

/** Maximum time for Redis, in milliseconds. After that, it is disconnected, and requests are not limited until it is back. */
const redisTimeout = 500

/**
 * Limits the requests of each client on all routes of its scope. A request counts for its valid token, otherwise for its
 * IP address. Once an address has used up its limit, all its requests get 429, and `auth` does not check their tokens.
 */
export default fp<RateLimitOptions>(async function rateLimit (app, options) {
  const { max, timeWindow, redis } = checkOptions(app, 'rateLimit', RateLimitOptions, options)
  // The functions of the package would be those of the outer limit.
  if (app.hasDecorator('createRateLimit')) {
    throw new StartupError('The plugin rateLimit cannot be registered in a scope that has @fastify/rate-limit or rateLimit already.')
  }
  const { default: fastifyRateLimit, normalizeIP } = await import('@fastify/rate-limit')
  await app.register(fastifyRateLimit, {
    max,
    timeWindow,
    ...redis ? { redis: await connect(app, redis), nameSpace: 'fastify-items-users:' } : { store: MemoryStore },
    skipOnError: true,
    keyGenerator: request => tokenOf(request) ?? normalizeIP(withoutPort(request.ip)),
    errorResponseBuilder: () => httpError(429)
  })

  const readLimit = app.createRateLimit()
  const countRequest = app.rateLimit()
  const rateLimiter: RateLimiter = {
    async check (request, reply) {
      const limit = await readLimit(request, { increment: false })
      if (limit.isAllowed || limit.remaining > 0) return
      const seconds = limit.ttlInSeconds
      reply.headers({ 'x-ratelimit-limit': max, 'x-ratelimit-remaining': 0, 'x-ratelimit-reset': seconds, 'retry-after': seconds })
      throw httpError(429)
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
  let lost = false
  redis.on('ready', () => {
    if (lost) app.log.info('Redis is connected again')
    lost = false
  })
  redis.on('close', () => {
    if (!lost) app.log.warn('Redis is disconnected; requests are not limited until it is connected again')
    lost = true
  })
  redis.on('error', () => {}) // emitted for every attempt to connect
  app.addHook('onClose', async function disconnect () {
    lost = true
    redis.disconnect()
  })
  await redis.connect().catch(() => {}) // ioredis tries again by itself
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
  return token && createHash('sha256').update(token).digest('base64url')
}

/** Maximum number of clients. When there are more, the oldest are removed. */
const maxClients = 100_000

// (The type of @fastify/rate-limit would add its decorators to the types of every host.)
type Done = (error: null, result: { current: number, ttl: number }) => void

/**
 * Counts requests in memory. The `LocalStore` of @fastify/rate-limit returns the counter object itself, so that
 * simultaneous requests all see the highest count. This class can go when it returns a copy.
 */
export class MemoryStore {
  /** In the order of their start, which is that of their end. */
  readonly #windows = new Map<string, { current: number, end: number }>()

  incr (key: string, done: Done, timeWindow: number) {
    const now = Math.round(performance.now()) // a fraction could make the time window a second longer
    for (const [oldest, { end }] of this.#windows) {
      if (end > now && (this.#windows.size < maxClients || this.#windows.has(key))) break
      this.#windows.delete(oldest)
    }
    const window = this.#windows.get(key) ?? { current: 0, end: now + timeWindow }
    this.#windows.set(key, window)
    done(null, { current: ++window.current, ttl: window.end - now })
  }

  read (key: string, done: Done) {
    const { current = 0, end = 0 } = { ...this.#windows.get(key) }
    const ttl = Math.max(end - Math.round(performance.now()), 0)
    done(null, { current: ttl > 0 ? current : 0, ttl })
  }

  /** A separate store for a route with its own limit. */
  child () {
    return new MemoryStore()
  }
}
