import { Type, type Static } from '@sinclair/typebox'
import type { FastifyPluginAsync } from 'fastify'
import collection from '../plugins/collection/routes.js'
import { definitions } from '../plugins/definitions.js'
import type { Definition } from '../plugins/collection/definition.js'
import { applyApiDefaults } from '../plugins/http/api-defaults.js'
import { unknownPaths } from '../plugins/http/not-found.js'
import { checkOptions, optional, repeatable } from '../plugins/plugin.js'
import stores, { StoresOptions } from '../plugins/stores.js'
import { oneOf } from '../schemas/fields.js'

const OwnOptions = Type.Object({
  /** Path of the collections, such as `/api`. */
  prefix: optional(Type.String()),
  /** Who chooses the id of a new record: `client` or `server`. Default: `client`. */
  idSource: optional(oneOf(['client', 'server'])),
  /** Whether to answer unknown paths below the prefix. Default: true. */
  notFound: optional(Type.Boolean()),
  /** Whether to answer errors. With `false`, the error handler of your app does. Default: true. */
  errorHandler: optional(Type.Boolean())
})
const AllOptions = Type.Object({ ...StoresOptions.properties, ...OwnOptions.properties })
export interface ItemsUsersOptions extends StoresOptions, Static<typeof OwnOptions> {}

/**
 * Serves items and users under a prefix. It is encapsulated: it does not change the app that registers it.
 *
 * @example app.register(itemsUsers, { prefix: '/api' })
 */
const itemsUsers: FastifyPluginAsync<ItemsUsersOptions> = async function itemsUsers (app, options) {
  checkOptions(app, 'itemsUsers', AllOptions, options)
  const { prefix = '', idSource, notFound = true, errorHandler, store, databaseTimeout, databasePoolSize, seed } = options
  await applyApiDefaults(app, errorHandler)
  app.register(stores, { store, databaseTimeout, databasePoolSize, seed })
  // Without a prefix, unknown paths belong to the host.
  if (notFound && prefix.length > 1) app.register(unknownPaths)
  for (const definition of definitions as readonly Definition[]) {
    app.register(collection, { ...definition, prefix: `/${definition.name}`, ...idSource && { idSource } })
  }
}

export default repeatable(itemsUsers)
export { default as auth, type AuthOptions } from '../plugins/guards/auth.js'
export { default as cors, type CorsOptions } from '../plugins/guards/cors.js'
export { default as crossOriginProtection, type CrossOriginProtectionOptions } from '../plugins/guards/cross-origin-protection.js'
export { default as docs, type DocsOptions } from '../plugins/docs/openapi.js'
export { default as errors } from '../plugins/http/errors.js'
export { default as securityHeaders } from '../plugins/guards/security-headers.js'
export { default as health, type Health, type HealthOptions } from '../plugins/operations/health.js'
export { default as collection } from '../plugins/collection/routes.js'
export { defineCollection, type Definition, type Operation } from '../plugins/collection/definition.js'
export { items } from '../plugins/items.js'
export { default as rateLimit, type RateLimiter, type RateLimitOptions } from '../plugins/guards/rate-limit.js'
export { default as metrics, type Metrics, type MetricsOptions } from '../plugins/operations/metrics.js'
export { default as notFound } from '../plugins/http/not-found.js'
export { default as loadShedding, type LoadSheddingOptions } from '../plugins/guards/load-shedding.js'
export { default as stores, type StoresOptions } from '../plugins/stores.js'
export type { OwnStores, Stores } from '../plugins/host-stores.js'
export type * from '../plugins/definitions.js'
export { users } from '../plugins/users.js'
export { default as connections, type ConnectionsOptions } from './http-server/connections.js'
export { httpServerOptions } from './http-server/server.js'
export { memory } from '../plugins/stores/memory/store.js'
export {
  ConflictError, IdempotencyKeyInUseError, IdempotencyKeyReusedError, NoIdLeftError, NotStorableError, StoreUnavailableError
} from '../plugins/stores/errors.js'
export { Item } from '../schemas/item.js'
export { User } from '../schemas/user.js'
export type { List, Page, Store } from '../plugins/stores/store.js'
