import { AsyncLocalStorage } from 'node:async_hooks'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { schemaName } from '../schemas/fields.js'
import type { Records } from './definitions.js'
import { StartupError } from './startup.js'
import { fieldsOf } from './stores/fields.js'
import { requiredMethods, type HasId, type MaybePromise, type Store, type StoreDefinition } from './stores/store.js'

/** Stores by the name of their collection. A host can provide its own. */
export type OwnStores<R extends { [K in keyof R]: HasId } = Records> = { [K in keyof R]: Store<R[K]> }

/** The decorator `stores`: the stores of the registered collections. */
export type Stores<R extends { [K in keyof R]: HasId } = Records> = OwnStores<R> & {
  /** Opens the store of a collection. Later calls return the same store. */
  open<T extends HasId> (collection: StoreDefinition<T>): Promise<Store<T>>
}

/** Where a host stores data: in the stores of another scope, in its own, or in those of each request. */
export type HostStores = Stores | OwnStores | ((request: FastifyRequest) => MaybePromise<OwnStores>)

/** The stores of a host, as the decorator `stores`. */
export function hostStores (app: FastifyInstance, given: HostStores) {
  if (typeof Reflect.get(given, 'open') === 'function') return given
  return {
    ...typeof given !== 'function' && given,
    async open<T extends HasId> (collection: StoreDefinition<T>) {
      const { name } = collection
      const select = (stores: object) => (stores as Record<string, Store<T>>)[name] ?? missing(name)
      if (typeof given === 'function') return storeOfRequest(app, async request => select(await given(request)))
      return assertSameSchema(collection, select(given))
    }
  }
}

/** Returns a store that a host has provided for a collection, unless it is the store of another collection. */
export function assertSameSchema<T extends HasId> ({ name, schema }: StoreDefinition<T>, store: Store<T>) {
  if (!isStore(store)) missing(name)
  if (store.schema && JSON.stringify(fieldsOf(store.schema)) !== JSON.stringify(fieldsOf(schema))) {
    throw new StartupError(`The option store has a store of ${schemaName(store.schema.$id) || 'other'} records for the collection ${name}.`)
  }
  return store
}

/** Returns a store that forwards each call to the store of the current request. */
export function storeOfRequest<T extends HasId> (app: FastifyInstance, storeFor: (request: FastifyRequest) => MaybePromise<Store<T>>): Store<T> {
  const stores = new AsyncLocalStorage<Store<T>>()
  app.addHook('onRequest', function enterStore (request, _reply, done) {
    Promise.resolve(request).then(storeFor).then(store => stores.run(store, done), done)
  })
  const store = () => stores.getStore() ?? missing('of a request')
  return {
    append: (...args) => store().append(...args),
    change: (...args) => store().change(...args),
    first: id => store().first(id),
    list: () => store().list(),
    page: (...args) => store().page(...args),
    size: () => store().size(),
    version: () => store().version?.()
  }
}

function missing (name: string): never {
  throw new StartupError(`The option store has no store for the collection ${name}.`)
}

export function isStore (value: unknown) {
  return requiredMethods.every(method => typeof Object(value)[method] === 'function')
}
