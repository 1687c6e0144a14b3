import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import fp from 'fastify-plugin'
import { failsWith, shuttingDown, Type } from '../schemas/http.js'
import errors from './errors.js'
import { Unavailable } from './stores/store.js'
import validation from './validation.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Has `/readyz` fail while this check does. */
    readyWhen (check: Check): void
    /** Has `/readyz` fail from now on, since the app will close. */
    turnUnready (): void
  }
}

type Check = () => unknown

const Status = Type.Object({ status: Type.Literal('ok') }, { examples: [{ status: 'ok' }] })

/** Tells an orchestrator whether the process is up (`/livez`) and whether it can serve (`/readyz`). */
export default fp(async function health (app) {
  const checks: Check[] = []

  app.decorate('readyWhen', function readyWhen (check) {
    checks.push(check)
  })

  app.decorate('turnUnready', function turnUnready () {
    checks.unshift(() => { throw new Unavailable(undefined, shuttingDown) })
  })

  app.addHook('preClose', async function turnUnreadyFirst () {
    app.turnUnready()
  })

  app.register(probes, { checks })
}, { fastify: '5.x', name: 'health' })

const probes: FastifyPluginAsyncTypebox<{ checks: Check[] }> = async function probes (app, { checks }) {
  await app.register(validation)
  await app.register(errors)

  app.get('/livez', {
    schema: {
      operationId: 'isLive',
      summary: 'Tell whether the process is up',
      tags: ['health'],
      response: {
        200: { ...Status, description: 'It is up' },
        ...failsWith()
      }
    }
  }, async function isLive () {
    return { status: 'ok' as const }
  })

  app.get('/readyz', {
    schema: {
      operationId: 'isReady',
      summary: 'Tell whether the service can take requests',
      tags: ['health'],
      response: {
        200: { ...Status, description: 'It can' },
        ...failsWith()
      }
    }
  }, async function isReady () {
    for (const check of checks) await check()
    return { status: 'ok' as const }
  })
}
