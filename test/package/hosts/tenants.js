// Hooks of the host on the routes of the plugin: who asks, and for each tenant stores of its own.
import Fastify from 'fastify'
import itemsUsers, { Item, memory, User } from 'fastify-items-users'

export function build () {
  const app = Fastify()
  const tenants = new Map(['red', 'blue'].map(name => [name, {
    items: memory({ schema: Item, seed: [] }),
    users: memory({ schema: User, seed: [] })
  }]))

  app.decorateRequest('tenant')
  app.addHook('onRequest', async request => {
    request.tenant = request.headers['x-tenant'] ?? request.params.tenant
    if (!tenants.has(request.tenant)) throw Object.assign(new Error('Who are you?'), { statusCode: 401 })
  })
  app.register(itemsUsers, { prefix: '/:tenant/api', store: request => tenants.get(request.tenant) })
  return app
}
