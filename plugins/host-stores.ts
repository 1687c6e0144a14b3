import { AsyncLocalStorage } from 'node:async_hooks'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { idOf, nameOf } from '../schemas/component.js'
import type { Stores, StoresOptions } from './stores.js'
import { StartupError, storeMethods, type Collection, type HasId, type Store } from './stores/store.js'

/** The stores that a host provides: those of another scope, its own, or those of each request. */
export function storesOf (app: FastifyInstance, store: Exclude<StoresOptions['store'], string | undefined>) {
  if (isStores(store)) return store
  return {
    ...typeof store !== 'function' && store,
    async open<T extends HasId> (collection: Collection<T>) {
      const { name } = collection
      const named = (stores: object) => (stores as Record<string, Store<T>>)[name] ?? missing(name)
      return typeof store === 'function' ? storeOfRequest(app, request => named(store(request))) : ofCollection(collection, named(store))
    }
  }
}

/** Returns a store that a host has provided for a collection, unless it is the store of another collection. */
export function ofCollection<T extends HasId> ({ name, schema: { $id } }: Collection<T>, store: Store<T>) {
  if (!isStore(store)) missing(name)
  const actual = store.schema?.$id
  if (actual?.startsWith(idOf('')) && actual !== $id) {
    throw new StartupError(`The option store has a store of ${nameOf(actual)} records for the collection ${name}.`)
  }
  return store
}

/** Returns a store that forwards each call to the store of the current request. */
export function storeOfRequest<T extends HasId> (app: FastifyInstance, storeFor: (request: FastifyRequest) => Store<T>): Store<T> {
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
    removeFirst: (...args) => store().removeFirst(...args),
    size: () => store().size(),
    version: () => store().version?.()
  }
}

function missing (name: string): never {
  throw new StartupError(`The option store has no store for the collection ${name}.`)
}

/** Returns whether a value is an object. */
export function isObject (value: unknown) {
  return typeof value === 'object' && value !== null
}

/** Returns whether a value has the methods of a store. */
export function isStore (value: unknown) {
  return storeMethods.every(method => typeof Object(value)[method] === 'function')
}

/** Returns whether a value is the decorator `stores`. */
function isStores (value: unknown): value is Stores {
  return typeof Object(value).open === 'function'
}
