import type { FastifyInstance, FastifyRequest } from 'fastify'
import { schemaName } from '../schemas/fields.js'
import type { CheckedDefinition } from './collection/definition.js'
import type { Records } from './definitions.js'
import { StartupError } from './startup.js'
import { fieldsOf } from './stores/fields.js'
import { methodNames, type HasId, type MaybePromise, type Store, type StoreDefinition } from './stores/store.js'

/** Stores by the name of their collection. A host can provide its own. */
export type OwnStores<R extends { [K in keyof R]: HasId } = Records> = { [K in keyof R]?: Store<R[K]> }

/** A store, or a function that returns the store of a request. */
export type StoreOrFunction<T extends HasId> = Store<T> | ((request: FastifyRequest) => MaybePromise<Store<T>>)

/** The decorator `stores`: the stores of the registered collections. */
export type Stores<R extends { [K in keyof R]: HasId } = Records> = Required<OwnStores<R>> & {
  /** Opens the store of a collection, once. If each request has its own store, it is a function of the request. */
  open<T extends HasId> (collection: StoreDefinition<T>): Promise<StoreOrFunction<T>>
}

/** Where a host stores data: in the stores of another scope, in its own, or in those of each request. */
export type HostStores = Stores | OwnStores | ((request: FastifyRequest) => MaybePromise<OwnStores>)

/** The stores of a host, as the decorator `stores`. */
export function hostStores (given: HostStores) {
  if (typeof Reflect.get(given, 'open') === 'function') return given
  return {
    ...typeof given !== 'function' && given,
    async open<T extends HasId> (collection: StoreDefinition<T>) {
      const { name } = collection
      refuseConstraints(collection)
      const select = (stores: object) => (stores as Record<string, Store<T>>)[name] ?? missing(name)
      if (typeof given !== 'function') return select(given)
      return async (request: FastifyRequest) => select(await given(request))
    }
  }
}

type Constrained = Pick<StoreDefinition<never>, 'name' | 'unique' | 'references'>

/** Stores of a host do not compare the records of a collection with others. */
export function refuseConstraints ({ name, unique = [], references = {} }: Constrained) {
  if (unique.length === 0 && Object.keys(references).length === 0) return
  throw new StartupError(`Invalid collection ${name}: unique and references do not work with a store of your own.`)
}

const storeOfRequest = Symbol('store')

type StoreOf = (request: FastifyRequest) => Store<HasId>

/**
 * Returns a function that returns the store of a request. The request keeps its store: an async context could be of
 * another request, because a hook of the host may call `done` from there.
 */
export function storeOf (app: FastifyInstance, collection: CheckedDefinition, store: StoreOrFunction<HasId>): StoreOf {
  if (typeof store !== 'function') {
    checkStore(collection, store)
    return () => store
  }
  const checked = new WeakSet<object>()
  app.decorateRequest(storeOfRequest)
  app.addHook('onRequest', async function findStore (request) {
    const own = await store(request)
    if (!checked.has(own)) checkStore(collection, own)
    checked.add(own)
    request.setDecorator(storeOfRequest, own)
  })
  return request => request.getDecorator(storeOfRequest)
}

/** Checks that a store of a host has all methods, and is not that of another collection. */
function checkStore ({ name, schema }: CheckedDefinition, store: Store<HasId>) {
  if (!isStore(store)) missing(name)
  if (store.schema && JSON.stringify(fieldsOf(store.schema)) !== JSON.stringify(fieldsOf(schema))) {
    const kind = schemaName(store.schema.$id) || 'other'
    throw new StartupError(`The option store has a store of ${kind} records for the collection ${name}.`)
  }
}

function missing (name: string): never {
  throw new StartupError(`The option store has no store for the collection ${name}.`)
}

export function isStore (value: unknown) {
  return methodNames.every(method => typeof Object(value)[method] === 'function')
}
