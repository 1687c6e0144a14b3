// The plugin twice in one app, with collections of its own each time or with the same ones.
import Fastify from 'fastify'
import itemsUsers, { docs, stores } from 'fastify-items-users'

export async function build ({ share }) {
  const app = Fastify()
  await app.register(docs)
  if (share) await app.register(stores)
  const store = share ? app.stores : 'memory'
  app.register(itemsUsers, { prefix: '/api/v1', store })
  app.register(itemsUsers, { prefix: '/api/v2', store })
  return app
}
