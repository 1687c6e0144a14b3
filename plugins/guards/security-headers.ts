import fp from 'fastify-plugin'

/** Tells browsers, on every route of its scope, to make nothing of an answer but what it is: JSON. */
export default fp(async function securityHeaders (app) {
  await app.register(import('@fastify/helmet'), {
    contentSecurityPolicy: { useDefaults: false, directives: { 'default-src': ["'none'"], 'frame-ancestors': ["'none'"] } }
  })
}, { fastify: '5.x', name: 'fastify-items-users/security-headers' })
