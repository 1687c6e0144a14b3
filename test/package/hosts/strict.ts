// A host in TypeScript, compiled strictly, and with the types of all its packages checked.
import Fastify, { type FastifyRequest } from 'fastify'
import itemsUsers, { auth, docs, health, items, rateLimit, httpServerOptions, type Store, type Item } from 'fastify-items-users'

declare module 'fastify' {
  interface FastifyInstance {
    stores: 'of the host'
  }
}

const found: Item = { id: 1, name: 'Lamp', price: 42.5 }

const store: Store<Item> = {
  append: record => JSON.stringify(record),
  first: id => id === found.id ? JSON.stringify(found) : undefined,
  list: async () => '[]',
  page: () => ({ list: '[]' }),
  removeFirst: () => false,
  size: () => 0
}

const app = Fastify({ ...httpServerOptions })
app.register(docs)
app.register(health)
app.register(auth, { check: async (token: string, request: FastifyRequest) => token === request.method })
app.register(rateLimit, { max: 10 })
app.register(itemsUsers, { prefix: '/api', idSource: 'server', store: 'memory' })
app.register(items, { prefix: '/things', store })
