import fp from 'fastify-plugin'
import { rateHeaders } from '../http/responses.js'

export interface CorsOptions {
  /** The origins whose pages may read the answers, or `*` for all. */
  origins: string[]
}

/** Lets the pages of other origins use the service, and read the headers that it answers with. */
export default fp<CorsOptions>(async function cors (app, { origins }) {
  await app.register(import('@fastify/cors'), {
    origin: origins.includes('*') ? '*' : origins,
    methods: ['GET', 'HEAD', 'POST', 'DELETE'],
    exposedHeaders: ['Link', 'Location', 'Retry-After', ...Object.keys(rateHeaders)],
    maxAge: 600,
    strictPreflight: false // what is no preflight would be refused in another shape than ours
  })
}, { fastify: '5.x', name: 'fastify-items-users/cors' })
