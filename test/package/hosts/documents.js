// A host that transforms the schemas of its own routes for the document, and one that has @fastify/swagger too.
import swagger from '@fastify/swagger'
import Fastify from 'fastify'
import itemsUsers, { docs } from 'fastify-items-users'

export async function build ({ both }) {
  const app = Fastify()
  const transform = ({ schema, url }) => ({ schema: { ...schema, summary: 'transformed' }, url })
  if (both) app.register(swagger)
  app.register(docs, { transform })
  app.register(async scope => scope.get('/own', { schema: { summary: 'own' } }, async () => 'own'))
  app.register(itemsUsers, { prefix: '/api' })
  return { app } // Fastify is a promise too
}
