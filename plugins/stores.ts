import fp from 'fastify-plugin'
import { databaseDefaults } from '../schemas/config.js'
import { Item } from '../schemas/item.js'
import { User } from '../schemas/user.js'
import { engineAt } from './stores/engines.js'
import { CannotOpen, type Collection, type Store } from './stores/store.js'

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

export interface StoresOptions {
  /** What the collections are kept in: `memory`, `sqlite:PATH`, `postgres://…`, or stores of your own. */
  store?: string | Stores
  /** How long a database may take to answer, in milliseconds. */
  databaseTimeout?: number
  /** How many connections to PostgreSQL there may be. */
  databaseConnections?: number
  /** Who gives a record its id: the client that creates it, or the service. */
  ids?: 'client' | 'server'
}

const items: Collection<Item> = {
  name: 'items',
  schema: Item,
  start: [{ id: 1, name: 'Lamp', price: 42.5 }]
}

const users: Collection<User> = {
  name: 'users',
  schema: User,
  start: [{ id: 1, name: 'Ada' }]
}

/** Decorates the app with its collections. Those that it opens itself it closes with the app. */
export default fp<StoresOptions>(async function stores (app, options) {
  const {
    store = 'memory',
    databaseTimeout: timeout = databaseDefaults.timeout,
    databaseConnections: connections = databaseDefaults.connections,
    ids = 'client'
  } = options
  app.decorate('stores', typeof store === 'string' ? await openStores(store) : store)

  async function openStores (address: string): Promise<Stores> {
    try {
      const engine = await engineAt(address, { timeout, connections })
      app.addHook('onClose', async function closeStores () {
        await engine.close()
      })
      if (app.hasDecorator('readyWhen')) app.readyWhen(engine.check)
      const numbered = ids === 'server'
      const stores = {
        items: await engine.open({ ...items, numbered }),
        users: await engine.open({ ...users, numbered })
      }
      return app.hasDecorator('observed') ? app.observed(stores, engine.connections) : stores
    } catch (error) {
      throw error instanceof CannotOpen ? error : new CannotOpen(`Cannot open the database: ${reason(error)}.`)
    }
  }
}, { fastify: '5.x', name: 'stores' })

/** What went wrong, in one line. A host that has several addresses fails with an error for each. */
function reason (error: unknown) {
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  return (first as Error).message.split('\n', 1)[0]
}
