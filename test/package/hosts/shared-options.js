// A host that passes the same options to all plugins, and registers them in an unusual order.
import Fastify from 'fastify'
import itemsUsers, { docs, health, memory, items, users } from 'fastify-items-users'

export async function build ({ store } = {}) {
  const app = Fastify()
  const shared = { config: { own: true }, databaseTimeout: 300 }
  app.setErrorHandler(({ statusCode, code, message, errors }, _request, reply) =>
    reply.code(statusCode).send({ own: message, code, errors }))
  await app.register(docs, { ...shared, prefix: '/manual' })
  app.register(itemsUsers, { ...shared, prefix: '/api', store })
  app.register(itemsUsers, { ...shared, prefix: '/own-errors', errorHandler: false })
  app.register(itemsUsers, {
    ...shared,
    prefix: '/tenants',
    store: async ({ headers }) => {
      if (headers.tenant !== 'acme') throw Object.assign(new Error('Unknown tenant'), { statusCode: 404 })
      return { items: memory(items), users: memory(users) }
    }
  })
  app.register(async scope => scope.register(health, { ...shared, prefix: '/ops' }))
  return app
}
