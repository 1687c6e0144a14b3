import type { FastifyPluginAsync } from 'fastify'
import { standOnContract } from '../plugins/contract.js'
import items from '../plugins/items.js'
import notFound from '../plugins/not-found.js'
import stores, { type CollectionOptions, type StoresOptions } from '../plugins/stores.js'
import users from '../plugins/users.js'

export interface ItemsUsersOptions extends StoresOptions, Pick<CollectionOptions<never>, 'ids'> {
  /** Where to serve, such as `/api`. */
  prefix?: string
}

/**
 * Serves items and users under the prefix it is registered with. What it sets up is its own: nothing of it is
 * seen outside, and nothing outside changes it.
 *
 * @example app.register(itemsUsers, { prefix: '/api' })
 */
const itemsUsers: FastifyPluginAsync<ItemsUsersOptions> = async function itemsUsers (app, { prefix = '', ids, ...options }) {
  await standOnContract(app)
  app.register(stores, options)
  // Without a prefix, the paths we do not know are the host's.
  if (prefix.length > 1) app.register(notFound)
  app.register(items, { prefix: '/items', ids })
  app.register(users, { prefix: '/users', ids })
}

export default itemsUsers
export { default as auth, type AuthOptions } from '../plugins/auth.js'
export { default as cors, type CorsOptions } from '../plugins/cors.js'
export { default as docs } from '../plugins/docs.js'
export { default as errors } from '../plugins/errors.js'
export { default as headers } from '../plugins/headers.js'
export { default as health } from '../plugins/health.js'
export { default as items } from '../plugins/items.js'
export { default as limits, type LimitsOptions } from '../plugins/limits.js'
export { default as metrics, type MetricsOptions } from '../plugins/metrics.js'
export { default as notFound } from '../plugins/not-found.js'
export { default as overload, type OverloadOptions } from '../plugins/overload.js'
export { default as stores, type OwnStores, type StoreFor, type Stores } from '../plugins/stores.js'
export { default as users } from '../plugins/users.js'
export { default as wire, wireOptions } from '../plugins/wire.js'
export { memory } from '../plugins/stores/memory.js'
export { Item } from '../schemas/item.js'
export { User } from '../schemas/user.js'
export type { List, Page, Store } from '../plugins/stores/store.js'
