import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { details, failsWith } from '../schemas/http.js'
import errors from './errors.js'
import validation from './validation.js'

const Status = Type.Object({ status: Type.Literal('ok') }, { examples: [{ status: 'ok' }] })

/** Tells an orchestrator whether the process is up (`/livez`) and whether it can serve (`/readyz`). */
const health: FastifyPluginAsyncTypebox = async function health (app) {
  let closing = false
  await app.register(validation)
  await app.register(errors)

  app.addHook('preClose', async function turnUnready () {
    closing = true
  })

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
        ...failsWith(503)
      }
    }
  }, async function isReady (_request, reply) {
    if (!closing) return { status: 'ok' as const }
    reply.code(503)
    return { detail: details[503] }
  })
}

export default health
