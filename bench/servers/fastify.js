import Fastify from 'fastify'
import { find, items, notFound, port, refusal, stored } from './contract.js'

const Item = {
  type: 'object',
  required: ['id', 'name', 'price'],
  properties: { id: { type: 'integer' }, name: { type: 'string' }, price: { type: 'number' } }
}
const list = { response: { 200: { type: 'array', items: Item } } }
const one = { params: { type: 'object', properties: { id: { type: 'string' } } }, response: { 200: Item } }
const create = { body: Item, response: { 201: Item } }

const app = Fastify({
  logger: process.env.LOG === 'true',
  ajv: { customOptions: { allErrors: true, coerceTypes: false } }
})

app.setErrorHandler((_invalid, request, reply) => reply.code(400).send(refusal(request.body)))

app.get('/api/items', { schema: list }, async () => items)

app.get('/api/items/:id', { schema: one }, async (request, reply) => {
  const item = find(request.params.id)
  if (item) return item
  return reply.code(404).send(notFound)
})

app.post('/api/items', { schema: create }, async (request, reply) => {
  reply.code(201)
  return stored(request.body)
})

app.listen({ port })
