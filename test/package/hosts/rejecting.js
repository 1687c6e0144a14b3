// Hooks and plugins of the host that reject requests in ways of their own.
import rateLimit from '@fastify/rate-limit'
import Fastify from 'fastify'
import { collection, items } from 'fastify-items-users'

export async function build ({ jwt }) {
  const app = Fastify()
  app.register(collection, { ...items, prefix: '/unpaid', routes: { list: { onRequest: async () => { throw { statusCode: 402, message: 'Pay first' } } } } }) // eslint-disable-line no-throw-literal
  await app.register(async scope => {
    await scope.register(rateLimit, { max: 1, errorResponseBuilder: (_request, { statusCode, after }) => ({ statusCode, error: 'Slow down', message: `Wait ${after}` }) })
    scope.register(collection, { ...items, prefix: '/limited' })
  })
  if (jwt) {
    await app.register(jwt, { secret: 'a-long-random-secret' })
    app.register(collection, { ...items, prefix: '/signed', routes: { list: { onRequest: request => request.jwtVerify() } } })
  }
  return app
}
