import fp from 'fastify-plugin'
import { checkOptions, metadata, NoOptions } from '../http/plugin.js'

/** Adds the security headers of helmet, for JSON, to all routes of its scope. */
export default fp(async function securityHeaders (app, options) {
  checkOptions('securityHeaders', NoOptions, options)
  await app.register(import('@fastify/helmet'), {
    contentSecurityPolicy: { useDefaults: false, directives: { 'default-src': ["'none'"], 'frame-ancestors': ["'none'"] } }
  })
}, metadata('security-headers'))
