import { AsyncLocalStorage } from 'node:async_hooks'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { databaseDefaults } from '../schemas/config.js'
import type { Item } from '../schemas/item.js'
import type { User } from '../schemas/user.js'
import { applyApiDefaults } from './http/api-defaults.js'
import type { Metrics } from './operations/metrics.js'
import { checkedSeed, type Seed } from './seed.js'
import { engineAt } from './stores/engines.js'
import { logOutages } from './stores/outages.js'
import { StartupError, type Collection, type HasId, type Store } from './stores/store.js'

/** The stores of the collections. A host can provide its own. */
export interface OwnStores {
  items: Store<Item>
  users: Store<User>
}

/** The decorator `stores`: the stores of the registered collections. */
export interface Stores extends OwnStores {
  /** Opens the store of a collection. Later calls return the same store. */
  open<T extends HasId> (collection: Collection<T>): Promise<Store<T>>
}

/** Options of the plugin `stores`. */
export interface StoresOptions {
  /**
   * Where data is stored: `memory`, `sqlite:PATH` or `postgres://…`; your own stores; a function that returns the stores
   * of a request; or the decorator `stores` of another scope, to share its stores. Default: `memory`.
   */
  store?: string | Stores | OwnStores | ((request: FastifyRequest) => OwnStores)
  /** Maximum time for a database operation, in milliseconds. Default: 5000. */
  databaseTimeout?: number
  /** Maximum number of connections to PostgreSQL. Default: 10. */
  databasePoolSize?: number
  /** The records of new collections, such as `{ items: [], users: [] }`; a collection without records starts empty. Default: one record each. */
  seed?: Seed
}

/** Options of the plugins `items` and `users`. */
export interface CollectionOptions<T extends HasId> {
  /** Who chooses the id of a new record: the client, or the server. Default: `client`. */
  idSource?: 'client' | 'server'
  /** Your own store for this collection, or a function that returns the store of a request. */
  store?: Store<T> | ((request: FastifyRequest) => Store<T>)
}

/** Adds the decorator `stores`. A database that it opens is closed with the app. */
const stores = fp<StoresOptions>(async function stores (app, { store = 'memory', databaseTimeout, databasePoolSize, seed }) {
  app.decorate('stores', typeof store === 'string' ? await storesAt(store) : storesOf(app, store))

  async function storesAt (address: string) {
    const outages = logOutages(app.log)
    const engine = await orStartupError(() => engineAt(address, {
      timeout: databaseTimeout ?? databaseDefaults.timeout,
      poolSize: databasePoolSize ?? databaseDefaults.poolSize,
      onUnavailable: cause => outages.failed(cause, engine.check)
    }))
    const metrics = app.hasDecorator('metrics') ? app.getDecorator<Metrics>('metrics') : undefined
    const opened = new Map<string, unknown>()
    const { recordsOf, assertValid } = checkedSeed(seed)
    const stores = { open }
    app.addHook('onReady', async function startEngine () {
      assertValid()
      await orStartupError(async () => engine.start())
    })
    app.addHook('onClose', async function closeStores () {
      outages.stop()
      await engine.close()
    })
    if (app.hasDecorator('addReadinessCheck')) app.addReadinessCheck(engine.check)
    if (engine.connections) metrics?.observeConnections(engine.connections)
    return stores

    async function open<T extends HasId> (collection: Collection<T>) {
      const { name } = collection
      if (!opened.has(name)) {
        const store = engine.open({ ...collection, seed: recordsOf(collection) })
        opened.set(name, metrics?.observeStore(name, store) ?? store)
        Object.assign(stores, { [name]: opened.get(name) })
      }
      return opened.get(name) as Store<T>
    }
  }
}, { fastify: '5.x', name: 'fastify-items-users/stores' })

export default stores

/** Prepares a scope for the routes of a collection: API defaults, schemas and store. */
export async function openCollection<T extends HasId> (
  app: FastifyInstance, collection: Collection<T>, body: TSchema, { store }: CollectionOptions<T>
): Promise<Store<T>> {
  await applyApiDefaults(app)
  for (const schema of new Set([collection.schema, body])) app.addSchema(schema)
  if (typeof store === 'function') return storeOfRequest(app, store)
  if (store !== undefined) return store
  const around: unknown = app.hasDecorator('stores') && app.getDecorator('stores')
  if (!isStores(around)) await app.register(stores)
  return app.getDecorator<Stores>('stores').open(collection)
}

/** The stores that a host provides: those of another scope, its own, or those of each request. */
function storesOf (app: FastifyInstance, store: Exclude<StoresOptions['store'], string | undefined>) {
  if (isStores(store)) return store
  return {
    ...typeof store !== 'function' && store,
    async open<T extends HasId> ({ name }: Collection<T>) {
      const named = (stores: object) => (stores as Record<string, Store<T>>)[name] ?? missing(name)
      return typeof store === 'function' ? storeOfRequest(app, request => named(store(request))) : named(store)
    }
  }
}

/** Returns a store that forwards each call to the store of the current request. */
function storeOfRequest<T extends HasId> (app: FastifyInstance, storeFor: (request: FastifyRequest) => Store<T>): Store<T> {
  const stores = new AsyncLocalStorage<Store<T>>()
  app.addHook('onRequest', function enterStore (request, _reply, done) {
    stores.run(storeFor(request), done)
  })
  const store = () => stores.getStore() ?? missing('of a request')
  return {
    append: (...args) => store().append(...args),
    first: id => store().first(id),
    list: () => store().list(),
    page: (...args) => store().page(...args),
    removeFirst: id => store().removeFirst(id),
    size: () => store().size()
  }
}

function missing (name: string): never {
  throw new StartupError(`The option store has no store for the collection ${name}.`)
}

function isStores (value: unknown): value is Stores {
  return typeof Object(value).open === 'function'
}

async function orStartupError<T> (open: () => Promise<T>) {
  try {
    return await open()
  } catch (error) {
    const [reason] = (error as Error).message.split('\n', 1)
    throw error instanceof StartupError ? error : new StartupError(`Cannot open the database in DATABASE_URL: ${reason}`)
  }
}
