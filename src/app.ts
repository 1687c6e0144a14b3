import Fastify from 'fastify'
import docs from '../plugins/docs.js'
import errors from '../plugins/errors.js'
import health from '../plugins/health.js'
import json from '../plugins/json.js'
import notFound from '../plugins/not-found.js'
import wire, { wireOptions } from '../plugins/wire.js'
import type { Config } from '../schemas/config.js'
import itemsUsers from './index.js'
import { OneLineARequest } from './log.js'

/** The service as a whole: a host of the plugin, with the pages and probes of a deployment around it. */
export function buildApp (config: Config, log?: { write (line: string): void }) {
  const app = Fastify({
    ...wireOptions,
    ...config.LOG_LEVEL !== 'silent' && {
      logger: { level: config.LOG_LEVEL, ...log && { stream: log } },
      logController: new OneLineARequest(),
      childLoggerFactory: logger => logger
    },
    bodyLimit: config.BODY_LIMIT,
    requestTimeout: 60_000,
    // A database has time-outs of its own, and to migrate may take long.
    pluginTimeout: 0,
    // What arrives while the service closes is still served; only /readyz says no.
    return503OnClosing: false
  })

  app.register(wire)
  app.register(errors)
  app.register(json)
  app.register(notFound)
  if (config.DOCS) app.register(docs)
  app.register(health)
  app.register(itemsUsers, {
    prefix: config.API_PREFIX,
    store: config.DATABASE_URL,
    databaseTimeout: config.DATABASE_TIMEOUT,
    databaseConnections: config.DATABASE_CONNECTIONS
  })

  return app
}
