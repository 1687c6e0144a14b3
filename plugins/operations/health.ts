import { posix } from 'node:path'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema } from 'fastify'
import fp from 'fastify-plugin'
import api from '../http/api.js'
import { httpError } from '../http/errors.js'
import { errorResponses, routeDefaults, setHeaders } from '../http/responses.js'
import { metadata, shared } from '../common/plugin.js'

export interface Health {
  /** Adds a check to `/readyz`, which answers 503 while the check throws. */
  addReadinessCheck (check: Check): void
  /** Makes `/readyz` answer 503 from now on, because the app will close. */
  markNotReady (): void
}

type Check = () => unknown

export interface HealthOptions {
  /** Path of the probes, such as `/ops`. Default: none. */
  prefix?: string | undefined
}

/** The readiness checks of an app. */
export const checksOf = shared((): Check[] => [])

/**
 * Adds the probes `/livez` (the process runs) and `/readyz` (the service can serve requests). `/readyz` checks the
 * databases of all scopes of the app, in whatever order they are registered.
 */
export default fp<HealthOptions>(async function health (app, { prefix = '' }) {
  const checks = checksOf(app)

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
  app.addHook('preClose', markNotReady)
  app.register(probes)

  function markNotReady () {
    checks.unshift(function isClosing () {
      throw httpError(503, 'Shutting down')
    })
  }

  async function probes (app: FastifyInstance) {
    await app.register(api)
    addProbe('livez', 'The process runs', [], {
      operationId: 'isLive',
      summary: 'Liveness probe',
      description: 'If it does not answer, the process should be restarted.'
    })
    addProbe('readyz', 'The service can serve requests', checks, {
      operationId: 'isReady',
      summary: 'Readiness probe',
      description: 'It answers 503 while the database is unavailable and during shutdown.'
    })

    /** Adds the route of a probe. Successful probes are not logged. */
    function addProbe (name: string, description: string, checks: Check[], schema: FastifySchema) {
      const ok = { ...Type.Object({ status: Type.Literal('ok') }, { examples: [{ status: 'ok' }] }), description }
      const documented = { ...schema, tags: ['health'], response: { 200: ok, ...errorResponses() } }
      const options = { ...routeDefaults, logLevel: 'warn', schema: documented } as const
      app.get(posix.join('/', prefix, name), options, async function probe (request, reply) {
        for (const check of checks) await check()
        setHeaders(request, reply)
        return { status: 'ok' }
      })
    }
  }
}, metadata('health'))
