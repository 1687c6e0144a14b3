import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import fp from 'fastify-plugin'
import { failsWith, shuttingDown, Type } from '../schemas/http.js'
import { standOnContract } from './contract.js'
import { Unavailable } from './stores/store.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Has `/readyz` fail while this check does. */
    readyWhen (check: Check): void
    /** Has `/readyz` fail from now on, since the app will close. */
    turnUnready (): void
  }
}

type Check = () => unknown

/** A probe that succeeds is not worth a line, many times a minute. */
const logLevel = 'warn'

const Status = Type.Object({ status: Type.Literal('ok') }, { examples: [{ status: 'ok' }] })

/** Tells an orchestrator whether the process is up (`/livez`) and whether it can serve (`/readyz`). */
export default fp(async function health (app) {
  const checks: Check[] = [turnedUnready]
  let closing = false

  app.decorate('readyWhen', function readyWhen (check) {
    checks.push(check)
  })

  app.decorate('turnUnready', turnUnready)
  app.addHook('preClose', async function turnUnreadyFirst () {
    turnUnready()
  })
  app.register(probes, { checks })

  function turnUnready () {
    closing = true
  }

  function turnedUnready () {
    if (closing) throw new Unavailable(undefined, shuttingDown)
  }
}, { fastify: '5.x', name: 'fastify-items-users/health' })

const probes: FastifyPluginAsyncTypebox<{ checks: Check[] }> = async function probes (app, { checks }) {
  await standOnContract(app)

  app.get('/livez', {
    logLevel,
    schema: {
      operationId: 'isLive',
      summary: 'Tell whether the process is up',
      description: 'One that does not answer is to be started anew.',
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
    logLevel,
    schema: {
      operationId: 'isReady',
      summary: 'Tell whether the service can take requests',
      description: 'It cannot while its database is lost, nor when it is about to end.',
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
