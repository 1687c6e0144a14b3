import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { rateHeaders } from '../../schemas/http.js'
import { describeFailure, tooManyRequests, type RouteSchema } from '../http/errors.js'
import { withDriver } from '../stores/engines.js'
import { digestOf } from '../stores/idempotency.js'
import { MemoryStore } from './rate-limit-store.js'

export interface RateLimitOptions {
  /** How many requests a client may make in a window. */
  max: number
  /** How long a window is, in milliseconds. */
  timeWindow?: number
  /** The URL of a Redis server, where many instances count together. */
  redis?: string
}

/** How long Redis may take, in milliseconds; what it does not answer by then goes uncounted. */
const redisTimeout = 500

/** Holds every client to a rate, on all routes of its scope: by its token, where it has a good one, else by its address. */
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

  // The package looks at routes alone. Who looks for paths that are not there, or is refused, is held to the same rate.
  const countRequest = app.rateLimit()
  app.decorate('countRequest', countRequest)
  app.addHook('preParsing', async function countNotFound (request, reply) {
    if (request.is404) await countRequest.call(app, request, reply)
  })

  describeFailure(app, 429, addRateHeaders)
}, { fastify: '5.x', name: 'fastify-items-users/rate-limit' })

async function connect (app: FastifyInstance, url: string) {
  const { Redis } = await withDriver('ioredis', () => import('ioredis'))
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    connectTimeout: redisTimeout,
    commandTimeout: redisTimeout,
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

/** The token of a request, where our `auth` has found it to be good, as others may see it. */
function tokenOf (request: FastifyRequest) {
  if (!request.server.hasPlugin('fastify-items-users/auth')) return
  const token = request.getDecorator<string | undefined>('bearerToken')
  return token && digestOf(token)
}

/** Has the document say that every success tells what is left of the rate. */
function addRateHeaders (schema: RouteSchema) {
  const responses = Object.entries(schema.response).map(([status, response]) =>
    [status, status.startsWith('2') ? { ...response, headers: { ...response.headers, ...rateHeaders } } : response])
  return { ...schema, response: Object.fromEntries(responses) }
}
