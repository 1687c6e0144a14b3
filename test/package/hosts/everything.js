// A host that uses all plugins.
import Fastify from 'fastify'
import itemsUsers, {
  auth, cors, crossOriginProtection, docs, errors, health, loadShedding, metrics, notFound, rateLimit, securityHeaders,
  stores
} from 'fastify-items-users'

export async function build () {
  const app = Fastify()
  app.register(errors)
  app.register(notFound)
  app.register(cors, { origins: ['https://example.com'] })
  await app.register(docs)
  app.register(health)
  app.register(metrics, { port: 0 })
  await app.register(stores)
  app.register(async scope => {
    scope.register(securityHeaders)
    scope.register(loadShedding, { maxEventLoopDelay: 10_000 })
    scope.register(rateLimit, { max: 1000 })
    scope.register(crossOriginProtection)
    scope.register(auth, { tokens: ['one'] })
    scope.register(itemsUsers, { prefix: '/api', store: app.stores })
  })
  return app
}
