// A host that does everything its own way, with the plugin or without it.
import cors from '@fastify/cors'
import helmet from '@fastify/helmet'
import Fastify from 'fastify'
import itemsUsers from 'fastify-items-users'

export function build ({ withPlugin = true } = {}) {
  const app = Fastify({
    exposeHeadRoutes: false,
    ajv: { customOptions: { coerceTypes: 'array', removeAdditional: false } }
  })
  app.register(helmet)
  app.register(cors, { origin: 'https://example.com' })
  app.decorate('stores', 'of the host')
  app.addSchema({ $id: 'Item', type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] })
  app.addContentTypeParser('text/special', { parseAs: 'string' }, async () => ({ n: 42 }))
  app.setErrorHandler((error, _request, reply) => reply.code(418).send({ own: error.message }))
  app.setNotFoundHandler((_request, reply) => reply.code(410).send('gone'))
  app.setSchemaErrorFormatter(() => new Error('formatted by the host'))
  app.post('/own', { schema: { body: { $ref: 'Item#' } } }, async ({ body }) => ({ ...body, stores: app.stores }))
  app.get('/fails', async () => { throw new Error('of the host') })
  if (withPlugin) app.register(itemsUsers, { prefix: '/api' })
  return app
}
