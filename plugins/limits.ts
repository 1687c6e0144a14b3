import { createHash } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { rateHeaders } from '../schemas/http.js'
import { describeFailure, tooManyRequests, type RouteSchema } from './errors.js'
import { withDriver } from './stores/engines.js'

export interface LimitsOptions {
  /** How many requests a client may make in a window. */
  max: number
  /** How long a window is, in milliseconds. */
  window?: number
  /** The URL of a Redis server, where many instances count together. */
  redis?: string
}

/** How long Redis may take, in milliseconds; what it does not answer by then goes uncounted. */
const patience = 500

/** Holds every client to a rate, on all routes of its scope: by its token, where it has a good one, else by its address. */
export default fp<LimitsOptions>(async function limits (app, { max, window, redis }) {
  const { default: rateLimit, normalizeIP } = await import('@fastify/rate-limit')
  await app.register(rateLimit, {
    max,
    timeWindow: window,
    redis: redis && await connect(app, redis),
    nameSpace: 'fastify-items-users:',
    skipOnError: true,
    keyGenerator: ({ bearerToken, ip }) => bearerToken === undefined ? normalizeIP(ip) : digestOf(bearerToken),
    errorResponseBuilder: tooManyRequests
  })

  // Who looks for paths that are not there is held to the same rate.
  const limitUnknown = app.rateLimit()
  app.addHook('onRequest', async function limitNotFound (request, reply) {
    if (request.is404) await limitUnknown.call(app, request, reply)
  })

  describeFailure(app, 429, addRateHeaders)
}, { fastify: '5.x', name: 'limits' })

async function connect (app: FastifyInstance, url: string) {
  const { Redis } = await withDriver('ioredis', () => import('ioredis'))
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    connectTimeout: patience,
    commandTimeout: patience,
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

/** A token as others may see it. */
function digestOf (token: string) {
  return createHash('sha256').update(token).digest('base64url')
}

/** Has the document say that every success tells what is left of the rate. */
function addRateHeaders (schema: RouteSchema) {
  const responses = Object.entries(schema.response).map(([status, response]) =>
    [status, status.startsWith('2') ? { ...response, headers: { ...response.headers, ...rateHeaders } } : response])
  return { ...schema, response: Object.fromEntries(responses) }
}
