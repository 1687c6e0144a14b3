import { Type, type TObject } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { databaseDefaults } from '../schemas/config.js'
import { problemsOfRecords, type CheckedDefinition, type Definition } from './collection/definition.js'
import type { Records } from './definitions.js'
import { hostStores, refuseConstraints, type HostStores, type Stores } from './host-stores.js'
import { invalid } from './http/errors.js'
import { checksOf } from './operations/health.js'
import type { Metrics } from './operations/metrics.js'
import { checkerOf } from './http/validation.js'
import { metadata, ownDecorator } from './plugin.js'
import { StartupError } from './startup.js'
import { StoreUnavailableError } from './stores/errors.js'
import { memoryEngine } from './stores/memory.js'
import { logOutages } from './stores/outages.js'
import {
  uniqueFields, type Engine, type EngineOptions, type HasId, type MaybePromise, type Store, type StoreDefinition
} from './stores/store.js'

/** The initial records of new collections, by the name of the collection. */
export interface Seed extends Partial<{ [K in keyof Records]: readonly Records[K][] }> {
  [collection: string]: readonly object[] | undefined
}

export interface StoresOptions {
  /**
   * Where data is stored: `memory`, `sqlite:PATH` or `postgres://…`; your own stores; a function that returns the
   * stores of a request; or the decorator `stores` of another scope, to share its stores. Default: `memory`.
   */
  store?: string | HostStores | undefined
  /** Maximum time for the database operations of a request, in milliseconds. Default: 5000. */
  databaseTimeout?: number | undefined
  /** Maximum number of connections to PostgreSQL. Default: 10. */
  databasePoolSize?: number | undefined
  /** The records of new collections, such as `{ items: [], users: [] }`. Default: those of the definitions. */
  seed?: Seed | undefined
}

/** Adds the decorator `stores`. A database that it opens is closed with the app. */
const stores = fp<StoresOptions>(async function stores (app, options) {
  const { store = 'memory', databaseTimeout, databasePoolSize, seed } = options
  // Each collection adds its store when it is registered.
  app.decorate('stores', (typeof store === 'string' ? await databaseStores(store) : hostStores(store)) as Stores)

  async function databaseStores (address: string) {
    const outages = logOutages(app.log)
    let checking: Promise<void> | undefined
    const engine = await openEngine(address, {
      timeout: databaseTimeout ?? databaseDefaults.timeout,
      poolSize: databasePoolSize ?? databaseDefaults.poolSize,
      checkerOf,
      log: app.log,
      onUnavailable: cause => outages.failed(cause, check)
    }).catch(cannotOpen)
    const metrics = ownDecorator<Metrics>(app, 'metrics', 'observeStore')
    const opened = new Map<string, { schema: string, store: Store<HasId>, collection: StoreDefinition<HasId> }>()
    const unused = new Set(Object.keys({ ...seed }))
    const problems: string[] = []
    let isReady = false
    let closing: MaybePromise<void> | undefined
    const stores = new Proxy({ open }, { get: storeWhenReady })
    app.addHook('onReady', async function startEngine () {
      try {
        for (const name of unused) problems.push(`  /${name} is not a collection`)
        if (problems.length > 0) throw new StartupError(['Invalid records in the option seed:', ...problems].join('\n'))
        checkReferences(Array.from(opened.values(), ({ collection }) => collection))
        await engine.start()
        isReady = true
      } catch (error) {
        await close()
        cannotOpen(error as Error)
      }
    })
    app.addHook('onClose', close)
    checksOf(app).push(check)
    metrics?.observeConnections(engine.connections)
    return stores

    async function open<T extends HasId> (collection: StoreDefinition<T>) {
      const { name } = collection
      const schema = JSON.stringify(collection.schema)
      const known = opened.get(name)
      if (known && known.schema !== schema) {
        throw new StartupError(`The collection ${name} is registered with two different schemas.`)
      }
      if (known) return known.store as Store<T>
      const own = engine.open({ ...collection, seed: recordsOf(collection) })
      const store = metrics?.observeStore(name, own) ?? own
      opened.set(name, { schema, store: store as Store<HasId>, collection })
      Object.assign(stores, { [name]: validatingStore(collection, store) })
      return store
    }

    async function close () {
      outages.stop()
      closing ??= engine.close()
      await closing
    }

    /** The store of a collection. It cannot be used before the app is ready, because it may not be open yet. */
    function storeWhenReady (stores: object, name: string | symbol) {
      if (isReady || name === 'open' || typeof name === 'symbol') return Reflect.get(stores, name)
      return new Proxy({}, {
        get (_, method) {
          if (!isReady) throw new StartupError(`stores.${name} can be used when the app is ready.`)
          return Reflect.get(Object(Reflect.get(stores, name)), method)
        }
      })
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
      const records = seed === undefined ? own : seed[name] ?? []
      unused.delete(name)
      const found = problemsOfRecords(collection, records)
      problems.push(...found.map(({ path, message }) => `  /${name}${path} ${message}`))
      return found.length === 0 ? records as T[] : []
    }
  }
}, metadata('stores'))

export default stores

/** Checks that the collections that others refer to exist, and that their ids are unique. */
function checkReferences (collections: StoreDefinition<HasId>[]) {
  const problems = collections.flatMap(({ name, references = {} }) =>
    Object.entries(references).flatMap(([field, target]) => {
      const reason = problemOfTarget(target)
      if (reason === undefined) return []
      return [`Invalid collection ${name}: references/${field} must be a collection with unique ids, but ${reason}.`]
    }))
  if (problems.length > 0) throw new StartupError(problems.join('\n'))

  function problemOfTarget (target: string) {
    const other = collections.find(({ name }) => name === target)
    if (!other) return `there is no collection ${target} in the same store`
    if (uniqueFields(other).includes('id')) return
    return `the ids of ${target} may repeat. Add "id" to its unique, or let the server choose its ids`
  }
}

/** The store of a collection, or a function of the request: the given one, or that of the decorator `stores`. */
export async function openStore (app: FastifyInstance, collection: CheckedDefinition, given: Definition['store']) {
  if (given === undefined && !ownDecorator<Stores>(app, 'stores', 'open')) await app.register(stores)
  if (given !== undefined) refuseConstraints(collection)
  return given ?? app.getDecorator<Stores>('stores').open<HasId>(collection)
}

/** The store of a collection for code of the host, whose records are validated like those of clients. */
function validatingStore<T extends HasId> ({ schema }: StoreDefinition<T>, store: Store<T>): Store<T> {
  const required = schema.required?.filter(name => name !== 'id')
  const record = { ...schema, required, additionalProperties: false } as TObject
  const problemsInOne = checkerOf(record)
  const problemsInAll = checkerOf(Type.Array(record))
  return {
    ...store,
    append: async (record, ...key) => store.append(checked(record, problemsInOne), ...key),
    appendAll: async (records, ...key) => store.appendAll(checked(records, problemsInAll), ...key)
  }
}

/** A valid copy without unknown fields. */
function checked<V> (value: V, problemsIn: ReturnType<typeof checkerOf>): V {
  const copy = structuredClone(value)
  const problems = problemsIn(copy)
  if (problems) throw invalid('body', problems)
  return copy
}

function cannotOpen (error: Error): never {
  const [reason] = error.message.split('\n', 1)
  if (error instanceof StartupError) throw error
  throw new StartupError(`Cannot open the database in the option store: ${reason}`)
}

/** Opens the engine for an address. Drivers are loaded only if they are needed. */
export async function openEngine (address: string, options: EngineOptions): Promise<Engine> {
  if (address === 'memory') return memoryEngine()
  if (address.startsWith('sqlite:')) {
    const { sqlite } = await import('./stores/sqlite/engine.js')
    return sqlite(address.slice('sqlite:'.length), options)
  }
  if (/^postgres(ql)?:\/\//.test(address)) {
    const { postgres } = await import('./stores/postgres/engine.js')
    return postgres(address, options)
  }
  throw new StartupError('The option store must be memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.')
}
