import type { FastifyPluginAsync } from 'fastify'
import type { Definition } from '../plugins/definition/definition.js'
import collection from '../plugins/collection/routes.js'
import { definitions } from '../plugins/definitions.js'
import api from '../plugins/http/api.js'
import { unknownPaths } from '../plugins/http/not-found.js'
import { repeatable } from '../plugins/common/plugin.js'
import stores, { type StoresOptions } from '../plugins/stores.js'

export interface ItemsUsersOptions extends StoresOptions {
  /** Path of the collections, such as `/api`. */
  prefix?: string | undefined
  /** Who chooses the id of a new record: `client` or `server`. Default: `client`. */
  idSource?: 'client' | 'server' | undefined
  /** Whether to answer unknown paths below the prefix. Default: true. */
  notFound?: boolean | undefined
  /** Whether to answer errors. With `false`, the error handler of your app does. Default: true. */
  errorHandler?: boolean | undefined
}

/**
 * Serves items and users under a prefix. It is encapsulated: it does not change the app that registers it.
 *
 * @example app.register(itemsUsers, { prefix: '/api' })
 */
const itemsUsers: FastifyPluginAsync<ItemsUsersOptions> = async function itemsUsers (app, options) {
  const { prefix = '', idSource, notFound = true, errorHandler, ...storesOptions } = options
  await app.register(api, { errorHandler })
  app.register(stores, storesOptions)
  // Without a prefix, unknown paths belong to the host.
  if (notFound && prefix.length > 1) app.register(unknownPaths)
  for (const definition of definitions as readonly Definition[]) {
    const own = { prefix: `/${definition.name}`, errorHandler, ...idSource && { idSource } }
    app.register(collection, { ...definition, ...own })
  }
}

export default repeatable(itemsUsers)
export { default as api } from '../plugins/http/api.js'
export { default as auth, type AuthOptions } from '../plugins/guards/auth.js'
export { default as cors, type CorsOptions } from '../plugins/guards/cors.js'
export {
  default as crossOriginProtection, type CrossOriginProtectionOptions
} from '../plugins/guards/cross-origin-protection.js'
export { default as docs, type DocsOptions } from '../plugins/docs/openapi.js'
export { default as errors } from '../plugins/http/errors.js'
export { default as securityHeaders } from '../plugins/guards/security-headers.js'
export { default as health, type Health, type HealthOptions } from '../plugins/operations/health.js'
export { default as collection } from '../plugins/collection/routes.js'
export { defineCollection, type Definition, type Operation } from '../plugins/definition/definition.js'
export { items } from '../plugins/items.js'
export { default as rateLimit, type RateLimiter, type RateLimitOptions } from '../plugins/guards/rate-limit.js'
export { default as metrics, type Metrics, type MetricsOptions } from '../plugins/operations/metrics.js'
export { default as notFound } from '../plugins/http/not-found.js'
export { default as loadShedding, type LoadSheddingOptions } from '../plugins/guards/load-shedding.js'
export { default as stores, type StoresOptions } from '../plugins/stores.js'
export type { OwnStores, Stores } from '../plugins/host-stores.js'
export type * from '../plugins/definitions.js'
export { users } from '../plugins/users.js'
export { memory } from '../plugins/memory-store.js'
export {
  ConflictError,
  IdempotencyKeyReusedError,
  NoIdLeftError,
  NotStorableError,
  StoreUnavailableError
} from '../plugins/stores/store-errors.js'
export { Item } from '../schemas/item.js'
export { User } from '../schemas/user.js'
export type { IdempotencyKey, OwnStore, Page, Store } from '../plugins/stores/store.js'
