import { AsyncLocalStorage } from 'node:async_hooks'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Config, databaseDefaults } from '../schemas/config.js'
import type { CheckedDefinition, Definition } from './definition.js'
import { checkOptions, custom, metadata, ownDecorator, type OptionSchemas } from './http/plugin.js'
import { checksOf } from './operations/health.js'
import type { Metrics } from './operations/metrics.js'
import { checkedSeed, type Seed } from './seed.js'
import { memory } from './stores/memory.js'
import { StartupError } from './startup.js'
import { assertSameCollection, hostStores, missingMethod, storeOfRequest, type HostStores, type Stores } from './stores/host-stores.js'
import { logOutages } from './stores/outages.js'
import type { Collection, Engine, EngineOptions, HasId, Store } from './stores/store.js'

/** Options of the plugin `stores`. */
export interface StoresOptions {
  /**
   * Where data is stored: `memory`, `sqlite:PATH` or `postgres://…`; your own stores; a function that returns the stores
   * of a request; or the decorator `stores` of another scope, to share its stores. Default: `memory`.
   */
  store?: string | HostStores | undefined
  /** Maximum time for the database operations of a request, in milliseconds. Default: 5000. */
  databaseTimeout?: number | undefined
  /** Maximum number of connections to PostgreSQL. Default: 10. */
  databasePoolSize?: number | undefined
  /** The records of new collections, such as `{ items: [], users: [] }`; a collection without records starts empty. Default: those of the definitions. */
  seed?: Seed | undefined
}

export const storesOptions: OptionSchemas<StoresOptions> = {
  store: Type.Optional(custom('a string, an object with stores, or a function', value => ['string', 'function'].includes(typeof value) || Object(value) === value)),
  databaseTimeout: Type.Optional(Config.properties.DATABASE_TIMEOUT),
  databasePoolSize: Type.Optional(Config.properties.DATABASE_POOL_SIZE),
  seed: Type.Optional(custom('an object with a list of records per collection', value => Object(value) === value))
}

/** Adds the decorator `stores`. A database that it opens is closed with the app. */
const stores = fp<StoresOptions>(async function stores (app, options) {
  checkOptions(app, 'stores', storesOptions, options)
  const { store = 'memory', databaseTimeout, databasePoolSize, seed } = options
  // Each collection adds its store when it is registered.
  app.decorate('stores', (typeof store === 'string' ? await databaseStores(store) : hostStores(app, store)) as Stores)

  async function databaseStores (address: string) {
    const outages = logOutages(app.log)
    const deadlines = new AsyncLocalStorage<number>()
    const timeout = databaseTimeout ?? databaseDefaults.timeout
    const engine = await orStartupError(() => openEngine(address, {
      timeout,
      poolSize: databasePoolSize ?? databaseDefaults.poolSize,
      timeLeft () {
        const deadline = deadlines.getStore()
        return deadline && deadline - Date.now()
      },
      onWarning: message => app.log.warn(message),
      onUnavailable: cause => outages.failed(cause, engine.check)
    }))
    const metrics = ownDecorator<Metrics>(app, 'metrics', 'observeStore')
    const opened = new Map<string, { schema: string, store: Store<HasId> }>()
    const { recordsOf, assertValid } = checkedSeed(seed)
    const stores = { open }
    if (address.startsWith('postgres')) {
      // A request may need several operations. Together, they have the time of one.
      app.addHook('preHandler', function startTimeout (_request, _reply, done) {
        deadlines.run(Date.now() + timeout, done)
      })
    }
    app.addHook('onReady', async function startEngine () {
      assertValid()
      await orStartupError(async () => engine.start())
    })
    app.addHook('onClose', async function closeStores () {
      outages.stop()
      await engine.close()
    })
    checksOf(app).push(engine.check)
    if (engine.connections) metrics?.observeConnections(engine.connections)
    return stores

    async function open<T extends HasId> (collection: Collection<T>) {
      const { name } = collection
      const schema = JSON.stringify(collection.schema)
      const known = opened.get(name)
      if (known && known.schema !== schema) throw new StartupError(`The collection ${name} is registered with two different schemas.`)
      if (known) return known.store as Store<T>
      const own = engine.open({ ...collection, seed: recordsOf(collection) })
      const store = metrics?.observeStore(name, own) ?? own
      opened.set(name, { schema, store: store as Store<HasId> })
      Object.assign(stores, { [name]: store })
      return store
    }
  }
}, metadata('stores'))

export default stores

/** Opens the store of a collection: the given one, or that of the decorator `stores`. */
export async function openStore (app: FastifyInstance, collection: CheckedDefinition, given: Definition['store']): Promise<Store<HasId>> {
  if (typeof given === 'function') return storeOfRequest(app, given)
  if (given === undefined && !ownDecorator<Stores>(app, 'stores', 'open')) await app.register(stores)
  const store = given === undefined ? await app.getDecorator<Stores>('stores').open(collection) : assertSameCollection(collection, given)
  if (!store.replaceFirst && collection.operations.some(operation => operation === 'replace' || operation === 'update')) missingMethod()
  return store
}

async function orStartupError<T> (open: () => Promise<T>) {
  try {
    return await open()
  } catch (error) {
    const [reason] = (error as Error).message.split('\n', 1)
    throw error instanceof StartupError ? error : new StartupError(`Cannot open the database in the option store: ${reason}`)
  }
}

/** Opens the engine for an address. Drivers are loaded only if they are needed. */
export async function openEngine (address: string, limits: EngineOptions): Promise<Engine> {
  if (address === 'memory') return { open: memory, start () {}, check () {}, close () {} }
  if (address.startsWith('sqlite:')) return (await import('./stores/sqlite.js')).sqlite(address.slice('sqlite:'.length), limits)
  if (/^postgres(ql)?:\/\//.test(address)) return (await import('./stores/postgres.js')).postgres(address, limits)
  throw new StartupError('The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.')
}
