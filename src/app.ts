import Fastify, { type FastifyInstance } from 'fastify'
import type { Definition } from '../plugins/definition/definition.js'
import { readDefinitions } from '../plugins/definition/collections-file.js'
import collection from '../plugins/collection/routes.js'
import { definitions as ownDefinitions } from '../plugins/definitions.js'
import home from '../plugins/docs/home.js'
import docs from '../plugins/docs/openapi.js'
import auth from '../plugins/guards/auth.js'
import cors from '../plugins/guards/cors.js'
import crossOriginProtection from '../plugins/guards/cross-origin-protection.js'
import loadShedding from '../plugins/guards/load-shedding.js'
import rateLimit from '../plugins/guards/rate-limit.js'
import securityHeaders from '../plugins/guards/security-headers.js'
import errors from '../plugins/http/errors.js'
import notFound from '../plugins/http/not-found.js'
import health from '../plugins/operations/health.js'
import metrics from '../plugins/operations/metrics.js'
import { readObject } from '../plugins/common/startup.js'
import stores, { type Seed } from '../plugins/stores.js'
import type { Config } from '../schemas/config.js'
import checkRequest, { httpServerOptions } from './http-server.js'
import type { LoggerOptions } from './logger.js'
import { batchRequests } from './request-batches.js'

/** Builds the standalone service: a Fastify app with the plugin and the features that are configured. */
export function buildApp (config: Config, logger?: LoggerOptions) {
  const definitions = definitionsOf(config)
  const origins = config.CORS_ORIGIN?.split(',')
  const app = Fastify({
    ...httpServerOptions,
    ...logger,
    bodyLimit: config.BODY_LIMIT,
    trustProxy: config.TRUST_PROXY,
    connectionTimeout: 120_000 + config.DATABASE_TIMEOUT,
    // An id has at most 255 characters, each of which can have twelve in a path.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 255 * 12 },
    // The database has its own timeouts, and a change of the schema of many records can take long.
    pluginTimeout: 0
  })

  batchRequests(app.server)
  app.decorate('collections', definitions.map(({ name }) => name))
  app.register(checkRequest)
  app.register(errors)
  app.register(notFound)
  if (origins) app.register(cors, { origins })
  app.register(crossOriginProtection, { origins })
  app.register(home, { hasDocs: config.DOCS })
  if (config.DOCS) app.register(docs, describeApi(config, definitions))
  app.register(health)
  if (config.METRICS_PORT !== undefined) app.register(metrics, { port: config.METRICS_PORT, host: config.METRICS_HOST })
  app.register(stores, {
    store: config.DATABASE_URL,
    databaseTimeout: config.DATABASE_TIMEOUT,
    databasePoolSize: config.DATABASE_POOL_SIZE,
    seed: seedOf(config)
  })
  app.register(guardedApi, { config, definitions })
  return app
}

interface ApiOptions {
  config: Config
  definitions: Definition[]
}

/** The collections under each prefix, and their guards. */
async function guardedApi (app: FastifyInstance, { config, definitions }: ApiOptions) {
  const { AUTH_TOKENS, AUTH_TOKENS_FILE, MAX_EVENT_LOOP_DELAY, PUBLIC_SCOPES, RATE_LIMIT_MAX } = config
  if (config.SECURITY_HEADERS) app.register(securityHeaders)
  if (MAX_EVENT_LOOP_DELAY) app.register(loadShedding, { maxEventLoopDelay: MAX_EVENT_LOOP_DELAY })
  if (RATE_LIMIT_MAX) {
    app.register(rateLimit, { max: RATE_LIMIT_MAX, timeWindow: config.RATE_LIMIT_WINDOW, redis: config.REDIS_URL })
  }
  if (AUTH_TOKENS ?? AUTH_TOKENS_FILE ?? PUBLIC_SCOPES) {
    app.register(auth, {
      tokens: AUTH_TOKENS?.split(','),
      file: AUTH_TOKENS_FILE,
      publicScopes: PUBLIC_SCOPES?.split(',')
    })
  }
  for (const prefix of prefixesOf(config)) app.register(collectionsUnder, { prefix, definitions })
}

async function collectionsUnder (app: FastifyInstance, { definitions }: Pick<ApiOptions, 'definitions'>) {
  for (const definition of definitions) app.register(collection, { ...definition, prefix: `/${definition.name}` })
  // Unknown paths need the same token as the collections.
  app.register(notFound)
}

/** Our collections, and those of the file. */
function definitionsOf ({ ID_SOURCE, COLLECTIONS_FILE }: Config) {
  const definitions = ownDefinitions.map((definition: Definition) => ({ ...definition, idSource: ID_SOURCE }))
  return COLLECTIONS_FILE === undefined ? definitions : readDefinitions(COLLECTIONS_FILE, definitions)
}

/** With collections of a file, the title names all collections, such as `Items, users, and orders`. */
function describeApi (config: Config, definitions: readonly Definition[]) {
  const names = new Intl.ListFormat('en').format(definitions.map(({ name }) => name.replaceAll('_', ' ')))
  const ofFile = config.COLLECTIONS_FILE === undefined ? undefined : names.charAt(0).toUpperCase() + names.slice(1)
  return { title: config.API_TITLE ?? ofFile, version: config.API_VERSION, description: config.API_DESCRIPTION }
}

/** The initial records, unless they are those of the collections. */
function seedOf ({ SEED, SEED_FILE }: Config) {
  if (!SEED) return {}
  return SEED_FILE === undefined ? undefined : readObject('SEED_FILE', SEED_FILE, '{"items":[],"users":[]}') as Seed
}

export function prefixesOf ({ API_PREFIX }: Config) {
  return [...new Set(API_PREFIX.split(','))]
}
