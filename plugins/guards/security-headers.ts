import fp from 'fastify-plugin'

/** Adds the security headers of helmet, for JSON, to all routes of its scope. */
export default fp(async function securityHeaders (app) {
  await app.register(import('@fastify/helmet'), {
    contentSecurityPolicy: { useDefaults: false, directives: { 'default-src': ["'none'"], 'frame-ancestors': ["'none'"] } }
  })
}, { fastify: '5.x', name: 'fastify-items-users/security-headers' })
