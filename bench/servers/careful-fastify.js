// Fastify with what a careful user adds by hand, for the same responses and headers as those of the service.
import Fastify from 'fastify'
import etag from '@fastify/etag'
import swagger from '@fastify/swagger'
import { find, invalid, items, notFound, port, stored } from './contract.js'

const { MIN_SAFE_INTEGER: minimum, MAX_SAFE_INTEGER: maximum } = Number
const Item = {
  $id: 'Item',
  type: 'object',
  required: ['id', 'name', 'price'],
  properties: { id: { type: 'integer', minimum, maximum }, name: { type: 'string' }, price: { type: 'number' } },
  additionalProperties: false
}
const item = { $ref: 'Item#' }
const params = { type: 'object', required: ['id'], properties: { id: { type: 'string', pattern: '^-?\\d{1,16}$' } } }
const list = { response: { 200: { type: 'array', items: item } } }
const one = { params, response: { 200: item } }
const create = { body: item, response: { 201: item } }

const app = Fastify({ ajv: { customOptions: { strict: true, allErrors: true, coerceTypes: false } } })
await app.register(swagger, { openapi: { openapi: '3.1.0', info: { title: 'Items', version: '1.0.0' } } })
app.addSchema(Item)

app.addHook('onRequest', function cacheControl (_request, reply, done) {
  reply.header('cache-control', 'no-cache')
  done()
})

app.setNotFoundHandler((request, reply) => {
  reply.code(404).header('x-request-id', request.id).send({ detail: 'Path not found' })
})

app.setErrorHandler((error, request, reply) => {
  const { statusCode = 500, validation } = error
  reply.code(statusCode).header('x-request-id', request.id)
  if (validation) reply.send(invalid(validation.map(problem)))
  else reply.send({ detail: statusCode < 500 ? error.message : 'Internal server error' })
})

function problem ({ keyword, instancePath, message, params }) {
  if (keyword === 'required') return { in: 'body', path: `/${params.missingProperty}`, message: 'is required' }
  const article = params.type === 'integer' ? 'an' : 'a'
  return { in: 'body', path: instancePath, message: keyword === 'type' ? `must be ${article} ${params.type}` : message }
}

// As in the service, a response to POST has no ETag.
app.register(async function reading (app) {
  app.register(etag, { algorithm: 'sha256' })

  app.get('/api/items', { schema: list }, async () => items)

  app.get('/api/items/:id', { schema: one }, async (request, reply) => {
    const found = find(request.params.id)
    if (found) return found
    return reply.code(404).header('x-request-id', request.id).send(notFound)
  })
})

app.post('/api/items', { schema: create }, async (request, reply) => {
  const created = stored(request.body)
  reply.code(201).header('location', `./items/${created.id}`)
  return created
})

app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())

app.listen({ port })
