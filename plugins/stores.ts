import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { databaseDefaults } from '../schemas/config.js'
import type { CheckedDefinition, Definition } from './definition/definition.js'
import { problemsOfRecords } from './definition/definition-problems.js'
import { recordRules } from './definition/record-rules.js'
import type { Records } from './definitions.js'
import {
  hostStores, refuseConstraints, type HostStores, type StoreOrFunction, type Stores
} from './host-stores.js'
import { checkerOf } from './http/validation.js'
import { jsonStore, objectStore } from './object-store.js'
import { checksOf } from './operations/health.js'
import type { Metrics } from './operations/metrics.js'
import { metadata, ownDecorator } from './common/plugin.js'
import { StartupError } from './common/startup.js'
import { collectionOf, uniqueFields, type Collections } from './stores/collection.js'
import type { Engine, Transaction } from './stores/engine.js'
import { engineStore, transactionStore } from './stores/engine-store.js'
import { fieldsOf } from './stores/indexed-fields.js'
import { openEngine } from './stores/open-engine.js'
import { StoreUnavailableError } from './stores/store-errors.js'
import type { HasId, JsonStore, MaybePromise, OwnStore, Store, StoreDefinition } from './stores/store.js'
import { within } from './stores/time-limits.js'

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
  const { store = 'memory' } = options
  const stores = typeof store === 'string' ? await databaseStores(app, store, options) : hostStores(store)
  app.decorate('stores', stores as Stores)
}, metadata('stores'))

export default stores

/** A collection that is registered. */
interface Registered {
  definition: StoreDefinition<HasId>
  store: JsonStore
  inTransaction (transaction: Transaction): Store<HasId>
}

/** The stores of an engine. Each collection adds its store when it is registered. */
async function databaseStores (app: FastifyInstance, address: string, options: StoresOptions) {
  const timeout = options.databaseTimeout ?? databaseDefaults.timeout
  const poolSize = options.databasePoolSize ?? databaseDefaults.poolSize
  const collections: Collections = new Map()
  const registered = new Map<string, Registered>()
  const engineOptions = { collections, timeout, poolSize, checkerOf, log: app.log }
  const engine = await openEngine(address, engineOptions).catch(cannotOpen)
  // In memory, only the transactions of a host take time, and have their own limit.
  const storeOptions = { collections, timeout: address === 'memory' ? Infinity : timeout }
  const metrics = ownDecorator<Metrics>(app, 'metrics', 'observeStore')
  const seeds = seedsOf(options.seed)
  let isReady = false
  const stores: Pick<Stores, 'open' | 'expandable' | 'transaction'> = {
    open,
    expandable (name) {
      const { definition, store } = registered.get(name) ?? {}
      return definition?.isExpandable ? store : undefined
    },
    transaction: transactionsOn(engine, registered, timeout)
  }

  startAndClose(app, engine, async function startEngine () {
    seeds.check(registered)
    checkReferences(Array.from(registered.values(), ({ definition }) => definition))
    await engine.start()
    isReady = true
  })
  checksOf(app).push(checkOf(engine))
  metrics?.observeConnections(engine.connections)
  return stores

  function open (definition: StoreDefinition<HasId>): StoreOrFunction {
    const { name, schema } = definition
    const known = registered.get(name)
    if (known && JSON.stringify(known.definition.schema) !== JSON.stringify(schema)) {
      throw new StartupError(`The collection ${name} is registered with two different schemas.`)
    }
    if (known) return known.store
    const collection = collectionOf({ ...definition, seed: seeds.validSeed(definition) })
    const json = engineStore(engine, collection, storeOptions)
    const store = metrics?.observeStore(name, json) ?? json
    const rules = recordRules(schema)
    const inTransaction = (transaction: Transaction) =>
      objectStore(transactionStore(transaction, collection, storeOptions), rules)
    collections.set(name, collection)
    registered.set(name, { definition, store, inTransaction })
    Object.assign(stores, { [name]: guarded(objectStore(store, rules), checkReady) })
    return store
  }

  function checkReady () {
    if (!isReady) throw new StartupError('The stores can be used when the app is ready.')
  }
}

/** Starts an engine with the app, and closes it with the app, or if it cannot start. */
function startAndClose (app: FastifyInstance, engine: Engine, start: () => Promise<void>) {
  let closing: MaybePromise<void> | undefined

  async function close () {
    closing ??= engine.close()
    await closing
  }

  app.addHook('onClose', close)
  app.addHook('onReady', async function startEngine () {
    try {
      await start()
    } catch (error) {
      await close()
      cannotOpen(error as Error)
    }
  })
}

/** The initial records: those of the option if there is one, otherwise those of each collection. */
function seedsOf (given: Seed | undefined) {
  const problems: string[] = []

  return {
    validSeed (definition: StoreDefinition<HasId>) {
      const { name, seed: own } = definition
      const seed = given === undefined ? own : given[name] ?? []
      const found = problemsOfRecords(definition, seed)
      problems.push(...found.map(({ path, message }) => `  /${name}${path} ${message}`))
      return found.length > 0 ? [] : seed as HasId[]
    },

    check (registered: Map<string, unknown>) {
      const unknown = Object.keys(given ?? {}).filter(name => !registered.has(name))
      const all = [...problems, ...unknown.map(name => `  /${name} is not a collection`)]
      if (all.length > 0) throw new StartupError(['Invalid records in the option seed:', ...all].join('\n'))
    }
  }
}

/** Returns the method `transaction` of the stores. */
function transactionsOn (engine: Engine, registered: Map<string, Registered>, timeout: number) {
  return function transaction<T> (work: (stores: never) => Promise<T>) {
    const deadline = Date.now() + timeout
    return engine.transaction(async function runWork (opened) {
      let isOver = false
      // The work may go on after its time is over.
      const transaction = guarded(opened, () => {
        if (isOver) throw new Error('The transaction has ended')
      })
      const stores = Array.from(registered, ([name, { inTransaction }]) => [name, inTransaction(transaction)] as const)
      try {
        return await within(deadline - Date.now(), work(Object.fromEntries(stores) as never))
      } finally {
        isOver = true
      }
    }, { deadline })
  }
}

/** An object that checks something when it is used. */
function guarded<T extends object> (target: T, check: () => void): T {
  return new Proxy(target, {
    get (_, name) {
      check()
      return Reflect.get(target, name)
    }
  })
}

/** Everybody can ask for readiness, and each check is a write. */
const checkInterval = 1000

/** Returns a function that checks an engine. Calls within a second share one check. */
function checkOf (engine: Engine) {
  let checking: Promise<void> | undefined
  return function check () {
    checking ??= Promise.resolve().then(engine.check).catch(unavailable).finally(forgetSoon)
    return checking
  }

  function forgetSoon () {
    setTimeout(() => { checking = undefined }, checkInterval).unref()
  }
}

function unavailable (cause: unknown): never {
  throw cause instanceof StoreUnavailableError ? cause : new StoreUnavailableError(cause)
}

/** Checks that the collections that others refer to exist, and that their ids are unique. */
function checkReferences (definitions: StoreDefinition<HasId>[]) {
  const problems = definitions.flatMap(definition =>
    Object.entries(definition.references ?? {}).flatMap(([field, target]) => {
      const reason = problemOfTarget(definition, field, definitions.find(other => other.name === target), target)
      const rule = `references/${field} must be a collection with unique ids`
      return reason === undefined ? [] : [`Invalid collection ${definition.name}: ${rule}, but ${reason}.`]
    }))
  if (problems.length > 0) throw new StartupError(problems.join('\n'))
}

type Referring = StoreDefinition<HasId>

function problemOfTarget (definition: Referring, field: string, other: Referring | undefined, target: string) {
  if (!other) return `there is no collection ${target} in the same store`
  const typeOf = ({ schema }: Referring, name: string) => fieldsOf(schema).find(field => field.name === name)?.type
  if (typeOf(definition, field) !== typeOf(other, 'id')) return `the ids of ${target} have another type than ${field}`
  if (uniqueFields(other).includes('id')) return
  return `the ids of ${target} may repeat. Add "id" to its unique, or let the server choose its ids`
}

/** The store of a collection, or a function of the request: the given one, or that of the decorator `stores`. */
export async function openStore (app: FastifyInstance, definition: CheckedDefinition, given: Definition['store']) {
  if (given === undefined) {
    if (!ownDecorator<Stores>(app, 'stores', 'open')) await app.register(stores)
    return app.getDecorator<Stores>('stores').open(definition)
  }
  refuseConstraints(definition)
  if (typeof given !== 'function') return jsonStore(given as OwnStore<HasId>)
  return async (request: Parameters<typeof given>[0]) => jsonStore(await given(request) as OwnStore<HasId>)
}

function cannotOpen (error: Error): never {
  const [reason] = error.message.split('\n', 1)
  if (error instanceof StartupError) throw error
  throw new StartupError(`Cannot open the database in the option store: ${reason}`)
}
