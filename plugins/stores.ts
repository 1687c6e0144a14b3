import fastJson from 'fast-json-stringify'
import fp from 'fastify-plugin'
import { Item } from '../schemas/item.js'
import { User } from '../schemas/user.js'
import { memory } from './stores/memory.js'
import type { Store } from './stores/store.js'

declare module 'fastify' {
  interface FastifyInstance {
    stores: Stores
  }
}

/** Where each collection is kept. */
export interface Stores {
  items: Store<Item>
  users: Store<User>
}

/** Decorates the app with its collections, each of which starts with one record. */
export default fp(async function stores (app) {
  app.decorate('stores', {
    items: memory<Item>(fastJson(Item), [{ id: 1, name: 'Lamp', price: 42.5 }]),
    users: memory<User>(fastJson(User), [{ id: 1, name: 'Ada' }])
  })
}, { fastify: '5.x', name: 'stores' })
