import { Type, type Static, type TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Config, databaseDefaults } from '../schemas/config.js'
import { oneOf } from '../schemas/fields.js'
import type { Item } from '../schemas/item.js'
import type { User } from '../schemas/user.js'
import { isObject, isStore, ofCollection, storeOfRequest, storesOf } from './host-stores.js'
import { applyApiDefaults } from './http/api-defaults.js'
import { checkOptions, custom, metadata, ownDecorator } from './http/plugin.js'
import type { Health } from './operations/health.js'
import type { Metrics } from './operations/metrics.js'
import { checkedSeed, type Seed } from './seed.js'
import { engineAt } from './stores/engines.js'
import { logOutages } from './stores/outages.js'
import { StartupError, storeMethods, type Collection, type HasId, type Store } from './stores/store.js'

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
export const StoresOptions = Type.Object({
  /**
   * Where data is stored: `memory`, `sqlite:PATH` or `postgres://…`; your own stores; a function that returns the stores
   * of a request; or the decorator `stores` of another scope, to share its stores. Default: `memory`.
   */
  store: Type.Optional(custom<string | Stores | OwnStores | ((request: FastifyRequest) => OwnStores)>(
    'a string, an object with stores, or a function', value => ['string', 'function'].includes(typeof value) || isObject(value))),
  /** Maximum time for a database operation, in milliseconds. Default: 5000. */
  databaseTimeout: Type.Optional(Config.properties.DATABASE_TIMEOUT),
  /** Maximum number of connections to PostgreSQL. Default: 10. */
  databasePoolSize: Type.Optional(Config.properties.DATABASE_POOL_SIZE),
  /** The records of new collections, such as `{ items: [], users: [] }`; a collection without records starts empty. Default: one record each. */
  seed: Type.Optional(custom<Seed>('an object with a list of records per collection', isObject))
})
export type StoresOptions = Static<typeof StoresOptions>

/** Options of the plugins `items` and `users`. */
export const CollectionOptions = Type.Object({
  /** Who chooses the id of a new record: the client, or the server. Default: `client`. */
  idSource: Type.Optional(oneOf(['client', 'server'])),
  /** Your own store for this collection, or a function that returns the store of a request. */
  store: Type.Optional(custom<unknown>(
    `a store with the methods ${storeMethods.join(', ')}, or a function`, value => typeof value === 'function' || isStore(value)))
})
export interface CollectionOptions<T extends HasId> extends Pick<Static<typeof CollectionOptions>, 'idSource'> {
  store?: Store<T> | ((request: FastifyRequest) => Store<T>)
}

/** Adds the decorator `stores`. A database that it opens is closed with the app. */
const stores = fp<StoresOptions>(async function stores (app, options) {
  checkOptions('stores', StoresOptions, options)
  const { store = 'memory', databaseTimeout, databasePoolSize, seed } = options
  app.decorate('stores', typeof store === 'string' ? await storesAt(store) : storesOf(app, store))

  async function storesAt (address: string) {
    const outages = logOutages(app.log)
    const engine = await orStartupError(() => engineAt(address, {
      timeout: databaseTimeout ?? databaseDefaults.timeout,
      poolSize: databasePoolSize ?? databaseDefaults.poolSize,
      onUnavailable: cause => outages.failed(cause, engine.check)
    }))
    const metrics = ownDecorator<Metrics>(app, 'metrics', 'observeStore')
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
    if (app.hasDecorator('addReadinessCheck')) app.getDecorator<Health['addReadinessCheck']>('addReadinessCheck')(engine.check)
    if (engine.connections) metrics?.observeConnections(engine.connections)
    return stores

    async function open<T extends HasId> (collection: Collection<T>) {
      const { name } = collection
      if (!opened.has(name)) {
        const store = { ...engine.open({ ...collection, seed: recordsOf(collection) }), schema: collection.schema }
        opened.set(name, metrics?.observeStore(name, store) ?? store)
        Object.assign(stores, { [name]: opened.get(name) })
      }
      return opened.get(name) as Store<T>
    }
  }
}, metadata('stores'))

export default stores

/** Prepares a scope for the routes of a collection: API defaults, schemas and store. */
export async function openCollection<T extends HasId> (
  app: FastifyInstance, collection: Collection<T>, body: TSchema, options: CollectionOptions<T>
): Promise<Store<T>> {
  checkOptions(collection.name, CollectionOptions, options)
  const { store } = options
  await applyApiDefaults(app)
  for (const schema of new Set([collection.schema, body])) app.addSchema(schema)
  if (typeof store === 'function') return storeOfRequest(app, store)
  if (store !== undefined) return ofCollection(collection, store)
  if (!ownDecorator<Stores>(app, 'stores', 'open')) await app.register(stores)
  return app.getDecorator<Stores>('stores').open(collection)
}

async function orStartupError<T> (open: () => Promise<T>) {
  try {
    return await open()
  } catch (error) {
    const [reason] = (error as Error).message.split('\n', 1)
    throw error instanceof StartupError ? error : new StartupError(`Cannot open the database in DATABASE_URL: ${reason}`)
  }
}
