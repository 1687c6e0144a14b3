import fp from 'fastify-plugin'
import { rateHeaders } from '../http/responses.js'

/** Options of the plugin `cors`. */
export interface CorsOptions {
  /** Origins whose pages may use the API, such as `https://example.com`, or `*` for all. */
  origins: string[]
}

/** Allows pages of other origins to use the service and to read its response headers. */
export default fp<CorsOptions>(async function cors (app, { origins }) {
  await app.register(import('@fastify/cors'), {
    origin: origins.includes('*') ? '*' : origins,
    methods: ['GET', 'HEAD', 'POST', 'DELETE'],
    exposedHeaders: ['Link', 'Location', 'Retry-After', ...Object.keys(rateHeaders)],
    maxAge: 600,
    strictPreflight: false // @fastify/cors would answer an OPTIONS request that is not a preflight in its own format
  })
}, { fastify: '5.x', name: 'fastify-items-users/cors' })
