import fp from 'fastify-plugin'
import { metadata } from '../common/plugin.js'

/** Adds the security headers of helmet, for JSON, to all routes of its scope. */
export default fp(async function securityHeaders (app) {
  await app.register(import('@fastify/helmet'), {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: { 'default-src': ["'none'"], 'frame-ancestors': ["'none'"] }
    }
  })
}, metadata('security-headers'))
