import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { applyApiDefaults } from '../http/api-defaults.js'
import { unavailable } from '../http/errors.js'
import { errorResponses, setHeaders } from '../http/responses.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Has `/readyz` fail while this check does. */
    addReadinessCheck (check: Check): void
    /** Has `/readyz` fail from now on, since the app will close. */
    markNotReady (): void
  }
}

type Check = () => unknown

/** A probe that succeeds is not worth a line, many times a minute. */
const logLevel = 'warn'

const Status = Type.Object({ status: Type.Literal('ok') }, { examples: [{ status: 'ok' }] })

/** Tells an orchestrator whether the process is up (`/livez`) and whether it can serve (`/readyz`). */
export default fp(async function health (app) {
  const checks: Check[] = [isClosing]
  let closing = false

  app.decorate('addReadinessCheck', function addReadinessCheck (check) {
    checks.push(check)
  })

  app.decorate('markNotReady', markNotReady)
  app.addHook('preClose', async function markNotReadyFirst () {
    markNotReady()
  })
  app.register(probes, { checks })

  function markNotReady () {
    closing = true
  }

  function isClosing () {
    if (closing) throw unavailable('Shutting down')
  }
}, { fastify: '5.x', name: 'fastify-items-users/health' })

const probes: FastifyPluginAsyncTypebox<{ checks: Check[] }> = async function probes (app, { checks }) {
  await applyApiDefaults(app)

  app.get('/livez', {
    logLevel,
    schema: {
      operationId: 'isLive',
      summary: 'Tell whether the process is up',
      description: 'One that does not answer is to be started anew.',
      tags: ['health'],
      response: {
        200: { ...Status, description: 'It is up' },
        ...errorResponses()
      }
    }
  }, async function isLive (request, reply) {
    setHeaders(request, reply)
    return { status: 'ok' as const }
  })

  app.get('/readyz', {
    logLevel,
    schema: {
      operationId: 'isReady',
      summary: 'Tell whether the service can take requests',
      description: 'It cannot while its database is lost, nor when it is about to end.',
      tags: ['health'],
      response: {
        200: { ...Status, description: 'It can' },
        ...errorResponses()
      }
    }
  }, async function isReady (request, reply) {
    for (const check of checks) await check()
    setHeaders(request, reply)
    return { status: 'ok' as const }
  })
}
