// A host in TypeScript, compiled strictly, and with the types of all its packages checked.
import Fastify, { type FastifyRequest } from 'fastify'
import itemsUsers, { auth, collection, docs, health, items, rateLimit } from 'fastify-items-users'
import type { Health, Item, OwnStore, Store, Stores } from 'fastify-items-users'

declare module 'fastify' {
  interface FastifyInstance {
    stores: 'of the host'
    addReadinessCheck: 'of the host'
    metrics: 'of the host'
    observe: 'of the host'
    rateLimiter: 'of the host'
  }
}

const found: Item = { id: 1, name: 'Lamp', price: 42.5 }

const store: OwnStore<Item> = {
  append: records => records.map(record => ({ id: 1, ...record })),
  first: id => id === found.id ? found : undefined,
  select: async () => ({ records: [] }),
  change: () => undefined,
  count: () => 0
}

const app = Fastify()
const securitySchemes = { token: { type: 'http', scheme: 'bearer' } } as const
app.register(docs, { title: 'Shop', servers: [{ url: '/' }], securitySchemes, redoc: false })
app.register(health)
app.register(auth, { check: async (token: string, request: FastifyRequest) => token === request.method })
app.register(rateLimit, { max: 10 })
app.register(itemsUsers, { prefix: '/api', idSource: 'server', store: 'memory' })
app.register(collection, { ...items, prefix: '/things', store })

// The decorators have types for those who know that they are there, and no others.
app.getDecorator<Health['markNotReady']>('markNotReady')()
export const stored: Store<Item> = app.getDecorator<Stores>('stores').items
// @ts-expect-error health may not be registered
app.markNotReady()
// @ts-expect-error docs may not be registered
app.swagger()
// @ts-expect-error rateLimit may not be registered
app.createRateLimit()
// @ts-expect-error loadShedding may not be registered
app.isUnderPressure()
