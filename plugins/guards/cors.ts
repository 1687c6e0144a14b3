import fp from 'fastify-plugin'
import { methodsOf } from '../http/not-found.js'
import { totalHeader } from '../http/responses.js'
import { metadata } from '../common/plugin.js'
import { rateHeaders } from './rate-limit.js'

export interface CorsOptions {
  /** Origins whose pages may use the API, such as `https://example.com`, or `*` for all. */
  origins: string[]
}

const ownHeaders = Object.keys({ ...totalHeader, ...rateHeaders })

/** Allows pages of other origins to use the service and to read its response headers. */
export default fp<CorsOptions>(async function cors (app, { origins }) {
  // @fastify/cors answers every OPTIONS request, also one that is not a preflight.
  app.addHook('onRequest', function setAllow (request, reply, done) {
    if (request.method === 'OPTIONS') reply.header('allow', methodsOf(app, request).join(', '))
    done()
  })

  await app.register(import('@fastify/cors'), {
    origin: origins.includes('*') ? '*' : origins,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposedHeaders: ['ETag', 'Link', 'Location', 'Retry-After', 'X-Request-Id', ...ownHeaders],
    maxAge: 600,
    strictPreflight: false // @fastify/cors would answer an OPTIONS request that is not a preflight in its own format
  })
}, metadata('cors'))
