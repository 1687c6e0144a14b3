import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { databaseDefaults } from '../schemas/config.js'
import type { Item } from '../schemas/item.js'
import type { User } from '../schemas/user.js'
import { engineAt } from './stores/engines.js'
import { StartupError, type Collection, type HasId, type Store } from './stores/store.js'

/** What collections are kept in. This is what the decorator `stores` is. */
export interface Stores {
  /** Opens a collection, once, and gives what tells the store of a request: one for all, unless a host has many. */
  open<T extends HasId> (collection: Collection<T>): Promise<StoreFor<T>>
}

export type StoreFor<T extends HasId> = (request: FastifyRequest) => Store<T>

/** Stores that a host has made itself, by the names of the collections. */
export interface OwnStores extends Record<string, Store<HasId>> {
  items: Store<Item>
  users: Store<User>
}

export interface StoresOptions {
  /**
   * What the collections are kept in: `memory`, `sqlite:PATH`, `postgres://…`, stores of your own, what gives those of
   * a request, or the decorator `stores`, to share what is open already.
   */
  store?: string | Stores | OwnStores | ((request: FastifyRequest) => OwnStores)
  /** How long a database may take to answer, in milliseconds. */
  databaseTimeout?: number
  /** How many connections to PostgreSQL there may be. */
  databasePoolSize?: number
}

export interface CollectionOptions<T extends HasId> {
  /** Who gives a record its id: the client that creates it, or the service. */
  idSource?: 'client' | 'server'
  /** A store of your own for this collection, or what gives that of a request. */
  store?: Store<T> | StoreFor<T>
}

const name = 'fastify-items-users/stores'

/** Decorates the app with what its collections are kept in. A database that it opens itself, it closes with the app. */
const stores = fp<StoresOptions>(async function stores (app, options) {
  const {
    store = 'memory',
    databaseTimeout: timeout = databaseDefaults.timeout,
    databasePoolSize: poolSize = databaseDefaults.poolSize
  } = options
  app.decorate('stores', typeof store === 'string' ? await storesAt(store) : given(store))

  async function storesAt (address: string): Promise<Stores> {
    const engine = await orStartupError(engineAt(address, { timeout, poolSize }))
    const opened = new Map<string, unknown>()
    app.addHook('onClose', async function closeStores () {
      await engine.close()
    })
    if (app.hasPlugin('fastify-items-users/health')) app.addReadinessCheck(engine.check)
    if (app.hasPlugin('fastify-items-users/metrics') && engine.connections) app.observe.connections(engine.connections)

    return {
      async open<T extends HasId> (collection: Collection<T>) {
        if (!opened.has(collection.name)) opened.set(collection.name, orStartupError(openOnce(collection)))
        return opened.get(collection.name) as Promise<StoreFor<T>>
      }
    }

    async function openOnce<T extends HasId> (collection: Collection<T>) {
      const opened = await engine.open(collection)
      const store = app.hasPlugin('fastify-items-users/metrics') ? app.observe.store(collection.name, opened) : opened
      return () => store
    }
  }
}, { fastify: '5.x', name })

export default stores

/** Opens a collection in a store of a host's own or, where there is none, in what the app around it has, or in memory. */
export async function storeFor<T extends HasId> (
  app: FastifyInstance, collection: Collection<T>, { store }: CollectionOptions<T>
): Promise<StoreFor<T>> {
  if (typeof store === 'function') return store
  if (store !== undefined) return () => store
  if (!app.hasPlugin(name)) await app.register(stores)
  return app.getDecorator<Stores>('stores').open(collection)
}

/** What a host gives: something that is open already, its own stores, or those of each request. */
function given (store: Exclude<StoresOptions['store'], string | undefined>): Stores {
  if (isOpen(store)) return store
  const storesOf = typeof store === 'function' ? store : () => store
  return {
    async open<T extends HasId> ({ name }: Collection<T>) {
      return (request: FastifyRequest) => storesOf(request)[name] as Store<T>
    }
  }
}

function isOpen (store: object): store is Stores {
  return 'open' in store
}

async function orStartupError<T> (opening: Promise<T>) {
  try {
    return await opening
  } catch (error) {
    throw error instanceof StartupError ? error : new StartupError(`Cannot open the database: ${reason(error)}.`)
  }
}

/** What went wrong, in one line. A host that has several addresses fails with an error for each. */
function reason (error: unknown) {
  const { errors: [first] = [error] } = error as Partial<AggregateError>
  return (first as Error).message.split('\n', 1)[0]
}
