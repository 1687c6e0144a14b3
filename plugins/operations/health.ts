import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema } from 'fastify'
import fp from 'fastify-plugin'
import { applyApiDefaults } from '../http/api-defaults.js'
import { httpError } from '../http/errors.js'
import { checkOptions, metadata, shared } from '../http/plugin.js'
import { errorResponses, routeDefaults, setHeaders } from '../http/responses.js'

/** The decorators of the plugin `health`. */
export interface Health {
  /** Adds a check to `/readyz`, which answers 503 while the check throws. */
  addReadinessCheck (check: Check): void
  /** Makes `/readyz` answer 503 from now on, because the app will close. */
  markNotReady (): void
}

type Check = () => unknown

/** Options of the plugin `health`. */
export interface HealthOptions {
  /** Path of the probes, such as `/ops`. */
  prefix?: string
}

/** The readiness checks of an app. */
export const checksOf = shared((): Check[] => [])

/**
 * Adds the probes `/livez` (the process runs) and `/readyz` (the service can serve requests). `/readyz` checks the databases
 * of all scopes of the app, in whatever order they are registered.
 */
export default fp<HealthOptions>(async function health (app, options) {
  const { prefix = '' } = checkOptions(app, 'health', { prefix: Type.Optional(Type.String()) }, options)
  const checks = checksOf(app)
  let closing = false

  checks.unshift(isClosing)
  app.decorate('addReadinessCheck', function addReadinessCheck (check: Check) {
    checks.push(async function checkOfHost () {
      try {
        await check()
      } catch (error) {
        app.log.warn({ err: error }, 'A readiness check failed')
        throw httpError(503, 'Not ready')
      }
    })
  })

  app.decorate('markNotReady', markNotReady)
  app.addHook('preClose', async function markNotReadyFirst () {
    markNotReady()
  })
  app.register(async function scope (app) {
    await applyApiDefaults(app)
    app.register(probes, { prefix })
  })

  function markNotReady () {
    closing = true
  }

  function isClosing () {
    if (closing) throw httpError(503, 'Shutting down')
  }

  async function probes (app: FastifyInstance) {
    app.get('/livez', probe('The process runs', {
      operationId: 'isLive',
      summary: 'Liveness probe',
      description: 'If it does not answer, the process should be restarted.'
    }), async function isLive (request, reply) {
      setHeaders(request, reply)
      return { status: 'ok' }
    })

    app.get('/readyz', probe('The service can serve requests', {
      operationId: 'isReady',
      summary: 'Readiness probe',
      description: 'It answers 503 while the database is unavailable and during shutdown.'
    }), async function isReady (request, reply) {
      for (const check of checks) await check()
      setHeaders(request, reply)
      return { status: 'ok' }
    })
  }
}, metadata('health'))

/** The options of the route of a probe. Successful probes are not logged. */
function probe (description: string, schema: FastifySchema) {
  const ok = { ...Type.Object({ status: Type.Literal('ok') }, { examples: [{ status: 'ok' }] }), description }
  const response = { 200: ok, ...errorResponses() }
  return { ...routeDefaults, logLevel: 'warn' as const, schema: { ...schema, tags: ['health'], response } }
}
