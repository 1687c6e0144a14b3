import { Type, type Static } from '@sinclair/typebox'
import type { FastifyPluginAsync } from 'fastify'
import fp from 'fastify-plugin'
import { applyApiDefaults } from '../plugins/http/api-defaults.js'
import { checkOptions, metadata } from '../plugins/http/plugin.js'
import { unknownPaths } from '../plugins/http/not-found.js'
import items from '../plugins/items.js'
import stores, { CollectionOptions, StoresOptions } from '../plugins/stores.js'
import users from '../plugins/users.js'

/** Options of the plugin. */
const ItemsUsersOptions = Type.Object({
  ...StoresOptions.properties,
  idSource: CollectionOptions.properties.idSource,
  /** Path of the collections, such as `/api`. */
  prefix: Type.Optional(Type.String()),
  /** Whether to answer unknown paths below the prefix. Default: true. */
  notFound: Type.Optional(Type.Boolean())
})
export type ItemsUsersOptions = Static<typeof ItemsUsersOptions>

/**
 * Serves items and users under a prefix. It is encapsulated: it does not change the app that registers it.
 *
 * @example app.register(itemsUsers, { prefix: '/api' })
 */
const itemsUsers: FastifyPluginAsync<ItemsUsersOptions> = async function itemsUsers (app, options) {
  checkOptions('itemsUsers', ItemsUsersOptions, options)
  const { prefix = '', idSource, notFound = true, store, databaseTimeout, databasePoolSize, seed } = options
  await applyApiDefaults(app)
  app.register(stores, { store, databaseTimeout, databasePoolSize, seed })
  // Without a prefix, unknown paths belong to the host.
  if (notFound && prefix.length > 1) app.register(unknownPaths)
  app.register(items, { prefix: '/items', idSource })
  app.register(users, { prefix: '/users', idSource })
}

export default fp(itemsUsers, { ...metadata('items-users'), encapsulate: true })
export { default as auth, type AuthOptions } from '../plugins/guards/auth.js'
export { default as cors, type CorsOptions } from '../plugins/guards/cors.js'
export { default as crossOriginProtection, type CrossOriginProtectionOptions } from '../plugins/guards/cross-origin-protection.js'
export { default as docs } from '../plugins/docs/openapi.js'
export type { DocsOptions } from '../plugins/docs/options.js'
export { default as errors } from '../plugins/http/errors.js'
export { default as securityHeaders } from '../plugins/guards/security-headers.js'
export { default as health, type Health } from '../plugins/operations/health.js'
export { default as items } from '../plugins/items.js'
export { default as rateLimit, type RateLimiter, type RateLimitOptions } from '../plugins/guards/rate-limit.js'
export { default as metrics, type Metrics, type MetricsOptions } from '../plugins/operations/metrics.js'
export { default as notFound } from '../plugins/http/not-found.js'
export { default as loadShedding, type LoadSheddingOptions } from '../plugins/guards/load-shedding.js'
export { default as stores, type CollectionOptions, type OwnStores, type Stores, type StoresOptions } from '../plugins/stores.js'
export { default as users } from '../plugins/users.js'
export { default as connections, type ConnectionsOptions } from './connections.js'
export { httpServerOptions } from './http-server.js'
export { memory } from '../plugins/stores/memory.js'
export {
  IdempotencyKeyInUseError, IdempotencyKeyReusedError, NoIdLeftError, NotStorableError, RecordChangedError, StoreUnavailableError
} from '../plugins/stores/store.js'
export { Item } from '../schemas/item.js'
export { User } from '../schemas/user.js'
export type { List, Page, Store } from '../plugins/stores/store.js'
