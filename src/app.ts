import Fastify, { type FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { Definition } from '../plugins/collection/definition.js'
import collection from '../plugins/collection/routes.js'
import { definitions as ownDefinitions } from '../plugins/definitions.js'
import docs from '../plugins/docs/openapi.js'
import auth from '../plugins/guards/auth.js'
import cors from '../plugins/guards/cors.js'
import crossOriginProtection from '../plugins/guards/cross-origin-protection.js'
import loadShedding from '../plugins/guards/load-shedding.js'
import rateLimit from '../plugins/guards/rate-limit.js'
import securityHeaders from '../plugins/guards/security-headers.js'
import { applyApiDefaults } from '../plugins/http/api-defaults.js'
import errors from '../plugins/http/errors.js'
import jsonBody from '../plugins/http/json-body.js'
import notFound from '../plugins/http/not-found.js'
import { setHeaders } from '../plugins/http/responses.js'
import health from '../plugins/operations/health.js'
import metrics from '../plugins/operations/metrics.js'
import { readObject } from '../plugins/startup.js'
import stores, { type Seed } from '../plugins/stores.js'
import type { Config } from '../schemas/config.js'
import connections from './http-server/connections.js'
import { genReqId } from './http-server/request-id.js'
import { httpServerOptions } from './http-server/server.js'
import type { LoggerOptions } from './logger.js'

/** Builds the standalone service: a Fastify app with the plugin and the features that are configured. */
export function buildApp (config: Config, logger?: LoggerOptions) {
  const app = Fastify({
    ...httpServerOptions,
    ...logger,
    genReqId,
    bodyLimit: config.BODY_LIMIT,
    trustProxy: config.TRUST_PROXY,
    routerOptions: { ignoreTrailingSlash: true },

    requestTimeout: 60_000,
    http: { headersTimeout: 30_000, connectionsCheckingInterval: 5000 },
    keepAliveTimeout: 72_000,
    // The database has its own timeouts, and an upgrade of its tables can take long.
    pluginTimeout: 0,
    // Requests that arrive during shutdown are still served.
    return503OnClosing: false
  })

  let definitions: Definition[] = ownDefinitions.map((definition: Definition) => ({ ...definition, idSource: config.ID_SOURCE }))

  app.register(fp(readCollections))
  app.register(connections, { stalledAfter: 120_000 + config.DATABASE_TIMEOUT })
  app.register(errors)
  app.register(jsonBody)
  app.register(notFound)
  const origins = config.CORS_ORIGIN?.split(',')
  if (origins) app.register(cors, { origins })
  app.register(crossOriginProtection, { origins })
  app.register(fp(home))
  if (config.DOCS) app.register(docs, describeApi)
  app.register(health)
  if (config.METRICS_PORT !== undefined) app.register(metrics, { port: config.METRICS_PORT, host: config.METRICS_HOST })
  app.register(stores, {
    store: config.DATABASE_URL,
    databaseTimeout: config.DATABASE_TIMEOUT,
    databasePoolSize: config.DATABASE_POOL_SIZE,
    seed: seedOf(config)
  })
  app.register(api)

  return app

  /** Reads the file with collections. Few services have one, so the code is loaded only then. */
  async function readCollections (app: FastifyInstance) {
    if (config.COLLECTIONS_FILE !== undefined) {
      const { readDefinitions } = await import('../plugins/collection/file.js')
      definitions = readDefinitions(config.COLLECTIONS_FILE, definitions)
    }
    app.decorate('collections', definitions.map(({ name }) => name))
  }

  /** With collections of a file, the title names all collections. */
  function describeApi () {
    const title = config.API_TITLE ?? (config.COLLECTIONS_FILE === undefined ? undefined : titleOf(definitions))
    return { title, version: config.API_VERSION, description: config.API_DESCRIPTION }
  }

  /**
   * Answers `GET /`: browsers are redirected to the documentation, and other clients get links to all pages and all
   * documented routes without parameters, by collection or tag. Also answers browsers that request an icon.
   */
  async function home (app: FastifyInstance) {
    const links: Record<string, string[]> = config.DOCS ? { docs: ['./docs', './redoc', './openapi.json'] } : {}

    app.addHook('onRoute', function addLink ({ method, url, schema, config }) {
      if (method !== 'GET' || url.includes(':')) return
      const name: string | undefined = Object(config).collection ?? schema?.tags?.[0]
      if (name !== undefined) (links[name] ??= []).push(`.${url}`)
    })

    app.get('/', { schema: { hide: true } }, async function sendLinks (request, reply) {
      reply.header('vary', 'accept')
      if (config.DOCS && request.headers.accept?.includes('text/html')) return reply.redirect('./docs')
      setHeaders(request, reply)
      return links
    })

    app.get('/favicon.ico', { schema: { hide: true }, logLevel: 'warn' }, async function noIcon (_request, reply) {
      return reply.code(204).header('cache-control', 'public, max-age=86400').send()
    })
  }

  /** The collections under each prefix, and their guards. */
  async function api (app: FastifyInstance) {
    const { AUTH_TOKENS, AUTH_TOKENS_FILE, MAX_EVENT_LOOP_DELAY, PUBLIC_SCOPES, RATE_LIMIT_MAX } = config
    if (config.SECURITY_HEADERS) app.register(securityHeaders)
    if (MAX_EVENT_LOOP_DELAY) app.register(loadShedding, { maxEventLoopDelay: MAX_EVENT_LOOP_DELAY })
    if (RATE_LIMIT_MAX) app.register(rateLimit, { max: RATE_LIMIT_MAX, timeWindow: config.RATE_LIMIT_WINDOW, redis: config.REDIS_URL })
    if (AUTH_TOKENS ?? AUTH_TOKENS_FILE ?? PUBLIC_SCOPES) app.register(auth, { tokens: AUTH_TOKENS?.split(','), file: AUTH_TOKENS_FILE, publicScopes: PUBLIC_SCOPES?.split(',') })
    for (const prefix of prefixesOf(config)) app.register(collectionsAndOtherPaths, { prefix })
  }

  async function collectionsAndOtherPaths (app: FastifyInstance) {
    await applyApiDefaults(app)
    for (const definition of definitions) app.register(collection, { ...definition, prefix: `/${definition.name}` })
    // Unknown paths need the same token as the collections.
    app.register(notFound)
  }
}

/** The initial records, unless they are those of the collections. */
function seedOf ({ SEED, SEED_FILE }: Config) {
  if (!SEED) return {}
  return SEED_FILE === undefined ? undefined : readObject('SEED_FILE', SEED_FILE, '{"items":[],"users":[]}') as Seed
}

/** The title of the document, such as `Items, users, and orders`. */
function titleOf (definitions: readonly Definition[]) {
  const title = new Intl.ListFormat('en').format(definitions.map(({ name }) => name.replaceAll('_', ' ')))
  return title.charAt(0).toUpperCase() + title.slice(1)
}

export function prefixesOf ({ API_PREFIX }: Config) {
  return [...new Set(API_PREFIX.split(','))]
}
