import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Records } from './definitions.js'
import { jsonStore } from './object-store.js'
import { StartupError } from './common/startup.js'
import type { HasId, JsonStore, MaybePromise, OwnStore, Store, StoreDefinition } from './stores/store.js'

type RecordsByName<R> = { [K in keyof R]: HasId }

/** Stores by the name of their collection. A host can provide its own. */
export type OwnStores<R extends RecordsByName<R> = Records> = { [K in keyof R]?: OwnStore<R[K]> }

type AllStores<R extends RecordsByName<R>> = { [K in keyof R]: Store<R[K]> }

/** The decorator `stores`: the stores of the registered collections. */
export type Stores<R extends RecordsByName<R> = Records> = AllStores<R> & {
  /**
   * Runs work that reads and writes several collections. All its writes are stored, or none if it fails. It may be
   * called several times. Nobody else reads what it writes before its end.
   */
  transaction<T> (work: (stores: AllStores<R>) => Promise<T>): Promise<T>
  /** Opens the store of a collection for its routes. */
  open (definition: StoreDefinition<HasId>): StoreOrFunction
  /** The store of another collection, if all who may read it can read its records in others. */
  expandable (name: string): JsonStore | undefined
}

/** A store, or a function that returns the store of a request. */
export type StoreOrFunction = JsonStore | ((request: FastifyRequest) => MaybePromise<JsonStore>)

/** Where a host stores data: in the stores of another scope, in its own, or in those of each request. */
export type HostStores = Stores | OwnStores | ((request: FastifyRequest) => MaybePromise<OwnStores>)

/** The stores of a host, as the decorator `stores`. */
export function hostStores (given: HostStores): Stores {
  if ('open' in given) return given // the decorator of another scope
  const stores: Pick<Stores, 'open' | 'expandable' | 'transaction'> = {
    expandable: () => undefined,
    transaction () {
      throw new Error('Stores of your own have no transactions')
    },
    open ({ name, ...definition }: StoreDefinition<HasId>): StoreOrFunction {
      refuseConstraints({ name, ...definition })
      const select = (stores: object) => jsonStore(Reflect.get(stores, name) ?? missing(name))
      if (typeof given !== 'function') return select(given)
      return async request => select(await given(request))
    }
  }
  return Object.assign({ ...typeof given !== 'function' && given }, stores) as Stores
}

function missing (name: string): never {
  throw new StartupError(`The option store has no store for the collection ${name}.`)
}

/** Stores of a host do not compare the records of a collection with others. */
export function refuseConstraints (definition: Omit<StoreDefinition<HasId>, 'schema' | 'seed'>) {
  const { name, unique = [], references = {}, timestamps = false } = definition
  if (unique.length === 0 && Object.keys(references).length === 0 && !timestamps) return
  throw new StartupError(
    `Invalid collection ${name}: unique, references and timestamps do not work with a store of your own.`)
}

const storeOfRequest = Symbol('store')

/**
 * Returns a function that returns the store of a request. The request keeps its store: an async context could be of
 * another request, because a hook of the host may call `done` from there.
 */
export function storeOf (app: FastifyInstance, store: StoreOrFunction): (request: FastifyRequest) => JsonStore {
  if (typeof store !== 'function') return () => store
  app.decorateRequest(storeOfRequest)
  app.addHook('onRequest', async function findStore (request) {
    request.setDecorator(storeOfRequest, await store(request))
  })
  return request => request.getDecorator(storeOfRequest)
}
