import { Type, type Static } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { methodsOf } from '../http/not-found.js'
import { rateHeaders, totalHeader } from '../http/responses.js'
import { checkOptions, metadata } from '../plugin.js'

const CorsOptions = Type.Object({
  /** Origins whose pages may use the API, such as `https://example.com`, or `*` for all. */
  origins: Type.Array(Type.String())
})
export interface CorsOptions extends Static<typeof CorsOptions> {}

/** Allows pages of other origins to use the service and to read its response headers. */
export default fp<CorsOptions>(async function cors (app, options) {
  const { origins } = checkOptions(app, 'cors', CorsOptions, options)
  // @fastify/cors answers every OPTIONS request, also one that is not a preflight.
  app.addHook('onRequest', function setAllow (request, reply, done) {
    if (request.method === 'OPTIONS') reply.header('allow', methodsOf(app, request).join(', '))
    done()
  })

  await app.register(import('@fastify/cors'), {
    origin: origins.includes('*') ? '*' : origins,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposedHeaders: ['ETag', 'Link', 'Location', 'Retry-After', 'X-Request-Id', ...Object.keys({ ...totalHeader, ...rateHeaders })],
    maxAge: 600,
    strictPreflight: false // @fastify/cors would answer an OPTIONS request that is not a preflight in its own format
  })
}, metadata('cors'))
