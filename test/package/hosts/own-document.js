// A host that documents its routes itself, and has an Item of another shape.
import swagger from '@fastify/swagger'
import Fastify from 'fastify'
import itemsUsers from 'fastify-items-users'

export async function build () {
  const app = Fastify()
  await app.register(swagger, {
    openapi: { openapi: '3.1.0', info: { title: 'Host', version: '1.0.0' } },
    refResolver: { buildLocalReference: schema => String(schema.$id) }
  })
  app.addSchema({ $id: 'Item', type: 'object', properties: { colour: { type: 'string' } } })
  app.get('/own', { schema: { tags: ['own'], response: { 200: { $ref: 'Item#' } } } }, async () => ({ colour: 'red' }))
  app.register(itemsUsers, { prefix: '/api' })
  return app
}
