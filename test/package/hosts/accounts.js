// A host with a collection whose schema has keywords for requests, responses and the document.
import swagger from '@fastify/swagger'
import Fastify from 'fastify'
import { collection, docs } from 'fastify-items-users'

export const annotations = { 'x-unit': 'letters', example: 'Ada', externalDocs: { url: 'https://example.com' } }
const Account = {
  type: 'object',
  required: ['id', 'name', 'nick'],
  properties: {
    id: { type: 'integer' },
    name: { type: 'string', ...annotations },
    nick: { anyOf: [{ type: 'string' }, { type: 'null' }] },
    made: { type: 'integer', readOnly: true },
    role: { type: 'string', enum: ['user', 'admin'], default: 'user' },
    limit: { type: 'number', exclusiveMinimum: 0 },
    address: { type: 'object', required: ['city'], properties: { city: { type: 'string' }, zip: { type: 'string' } } }
  }
}

/** With `document`, the host has its own document. */
export async function build ({ document }) {
  const app = Fastify()
  await (document ? app.register(swagger, document) : app.register(docs))
  app.register(collection, { prefix: '/accounts', name: 'accounts', schema: Account, routes: { get: { schema: { operationId: 'readAccount', tags: ['mine'] } } } })
  await app.ready()
  return app
}
