import { AsyncLocalStorage } from 'node:async_hooks'
import { Type, type Static } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Config, databaseDefaults } from '../schemas/config.js'
import { problemsOfRecords, type CheckedDefinition, type Definition } from './collection/definition.js'
import type { Records } from './definitions.js'
import { hostStores, refuseConstraints, type HostStores, type Stores } from './host-stores.js'
import { invalid } from './http/errors.js'
import { checksOf } from './operations/health.js'
import type { Metrics } from './operations/metrics.js'
import { checkOptions, custom, metadata, optional, ownDecorator } from './plugin.js'
import { knownFieldsOf } from './schema/access.js'
import { checkerOf, problemsOfEach } from './schema/validation.js'
import { StartupError } from './startup.js'
import { StoreUnavailableError } from './stores/errors.js'
import { memoryEngine } from './stores/memory/store.js'
import { logOutages } from './stores/outages.js'
import { uniqueFields, type Engine, type EngineOptions, type HasId, type Store, type StoreDefinition } from './stores/store.js'

/** The initial records of new collections, by the name of the collection. */
export interface Seed extends Partial<{ [K in keyof Records]: readonly Records[K][] }> {
  [collection: string]: readonly object[] | undefined
}

export const StoresOptions = Type.Object({
  /**
   * Where data is stored: `memory`, `sqlite:PATH` or `postgres://…`; your own stores; a function that returns the stores
   * of a request; or the decorator `stores` of another scope, to share its stores. Default: `memory`.
   */
  store: optional(custom<string | HostStores>('a string, an object with stores, or a function',
    value => typeof value === 'string' || Object(value) === value)),
  /** Maximum time for the database operations of a request, in milliseconds. Default: 5000. */
  databaseTimeout: optional(Config.properties.DATABASE_TIMEOUT),
  /** Maximum number of connections to PostgreSQL. Default: 10. */
  databasePoolSize: optional(Config.properties.DATABASE_POOL_SIZE),
  /** The records of new collections, such as `{ items: [], users: [] }`; a collection without records starts empty. Default: those of the definitions. */
  seed: optional(custom<Seed>('an object with a list of records per collection', value => Object(value) === value))
})
export interface StoresOptions extends Static<typeof StoresOptions> {}

/** Adds the decorator `stores`. A database that it opens is closed with the app. */
const stores = fp<StoresOptions>(async function stores (app, options) {
  checkOptions(app, 'stores', StoresOptions, options)
  const { store = 'memory', databaseTimeout, databasePoolSize, seed } = options
  // Each collection adds its store when it is registered.
  app.decorate('stores', (typeof store === 'string' ? await databaseStores(store) : hostStores(store)) as Stores)

  async function databaseStores (address: string) {
    const outages = logOutages(app.log)
    const deadlines = new AsyncLocalStorage<number>()
    const timeout = databaseTimeout ?? databaseDefaults.timeout
    let checking: Promise<void> | undefined
    const engine = await openEngine(address, {
      timeout,
      poolSize: databasePoolSize ?? databaseDefaults.poolSize,
      deadline: () => deadlines.getStore(),
      onWarning: message => app.log.warn(message),
      onUnavailable: cause => outages.failed(cause, check)
    }).catch(cannotOpen)
    const metrics = ownDecorator<Metrics>(app, 'metrics', 'observeStore')
    const opened = new Map<string, { schema: string, store: Store<HasId>, collection: StoreDefinition<HasId> }>()
    const unused = new Set(Object.keys({ ...seed }))
    const problems: string[] = []
    let isReady = false
    const stores = new Proxy({ open }, { get: storeWhenReady })
    if (address.startsWith('postgres')) {
      // A request may need several operations. Together, they have the time of one. It starts just before the handler, because
      // other hooks may continue in another async context, with the deadline of another request.
      app.addHook('onRoute', function limitTime (route) {
        route.preHandler = [route.preHandler ?? [], startTimeout].flat()
      })
    }
    app.addHook('onReady', async function startEngine () {
      for (const name of unused) problems.push(`  /${name} is not a collection`)
      if (problems.length > 0) throw new StartupError(['Invalid records in the option seed:', ...problems].join('\n'))
      checkReferences(Array.from(opened.values(), ({ collection }) => collection))
      await Promise.resolve().then(engine.start).catch(cannotOpen)
      isReady = true
    })
    app.addHook('onClose', async function closeStores () {
      outages.stop()
      await engine.close()
    })
    checksOf(app).push(check)
    if (engine.connections) metrics?.observeConnections(engine.connections)
    return stores

    async function open<T extends HasId> (collection: StoreDefinition<T>) {
      const { name } = collection
      const schema = JSON.stringify(collection.schema)
      const known = opened.get(name)
      if (known && known.schema !== schema) throw new StartupError(`The collection ${name} is registered with two different schemas.`)
      if (known) return known.store as Store<T>
      const own = engine.open({ ...collection, seed: recordsOf(collection) })
      const store = metrics?.observeStore(name, own) ?? own
      opened.set(name, { schema, store: store as Store<HasId>, collection })
      Object.assign(stores, { [name]: validatingStore(collection, store) })
      return store
    }

    /** The store of a collection. Before the app is ready, the collection may not be registered yet, and the use of its store is an error. */
    function storeWhenReady (stores: object, name: string | symbol) {
      if (isReady || name === 'open' || typeof name === 'symbol') return Reflect.get(stores, name)
      return new Proxy({}, {
        get (_, method) {
          if (!isReady) throw new StartupError(`stores.${name} can be used when the app is ready.`)
          return Reflect.get(Object(Reflect.get(stores, name)), method)
        }
      })
    }

    function startTimeout (_request: FastifyRequest, _reply: FastifyReply, done: () => void) {
      deadlines.run(Date.now() + timeout, done)
    }

    /** Checks the engine. Simultaneous calls share one check. */
    function check () {
      checking ??= Promise.resolve().then(engine.check).catch(unavailable).finally(() => { checking = undefined })
      return checking
    }

    function unavailable (cause: unknown): never {
      if (cause instanceof StoreUnavailableError) throw cause // the engine has reported it
      outages.failed(cause, check)
      throw new StoreUnavailableError(cause)
    }

    /** The records of a new collection: those in the seed if there is one, otherwise its own. */
    function recordsOf<T extends HasId> (collection: StoreDefinition<T>) {
      const { name, seed: own } = collection
      const records = seed === undefined ? own : unused.delete(name) ? seed[name] : []
      const found = problemsOfRecords(collection, records)
      problems.push(...found.map(({ path, message }) => `  /${name}${path} ${message}`))
      return found.length === 0 ? records as T[] : []
    }
  }
}, metadata('stores'))

export default stores

/** Checks that the collections that others refer to exist, and that their ids are unique. */
function checkReferences (collections: StoreDefinition<HasId>[]) {
  const problems = collections.flatMap(({ name, references = {} }) => Object.entries(references).flatMap(([field, target]) => {
    const other = collections.find(({ name }) => name === target)
    if (other && uniqueFields(other).includes('id')) return []
    const reason = other ? `the ids of ${target} may repeat. Add "id" to its unique, or let the server choose its ids` : `there is no collection ${target} in the same store`
    return [`Invalid collection ${name}: references/${field} must be a collection with unique ids, but ${reason}.`]
  }))
  if (problems.length > 0) throw new StartupError(problems.join('\n'))
}

/** Opens the store of a collection, or the function that returns the store of a request: the given one, or that of the decorator `stores`. */
export async function openStore (app: FastifyInstance, collection: CheckedDefinition, given: Definition['store']) {
  if (given === undefined && !ownDecorator<Stores>(app, 'stores', 'open')) await app.register(stores)
  if (given !== undefined) refuseConstraints(collection)
  return given ?? app.getDecorator<Stores>('stores').open<HasId>(collection)
}

/** The store of a collection for code of the host, whose records are validated like those of clients. */
function validatingStore<T extends HasId> ({ schema }: StoreDefinition<T>, store: Required<Store<T>>): Store<T> {
  const problemsIn = checkerOf({ ...schema, required: schema.required?.filter(name => name !== 'id') })
  const knownFields = knownFieldsOf(schema)
  return {
    ...store,
    async append (record, key) {
      const problems = problemsIn(record)
      if (problems) throw invalid('body', problems)
      return store.append(knownFields(record), key)
    },
    async appendAll (records, key) {
      const problems = problemsOfEach(records, problemsIn)
      if (problems) throw invalid('body', problems)
      return store.appendAll(records.map(knownFields), key)
    }
  }
}

function cannotOpen (error: Error): never {
  const [reason] = error.message.split('\n', 1)
  throw error instanceof StartupError ? error : new StartupError(`Cannot open the database in the option store: ${reason}`)
}

/** Opens the engine for an address. Drivers are loaded only if they are needed. */
export async function openEngine (address: string, options: EngineOptions): Promise<Engine> {
  if (address === 'memory') return memoryEngine(options)
  if (address.startsWith('sqlite:')) return (await import('./stores/sqlite/engine.js')).sqlite(address.slice('sqlite:'.length), options)
  if (/^postgres(ql)?:\/\//.test(address)) return (await import('./stores/postgres/engine.js')).postgres(address, options)
  throw new StartupError('The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.')
}
