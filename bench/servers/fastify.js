import Fastify from 'fastify'
import { items, notFound, port, refusal, stored } from './contract.js'

const Item = {
  type: 'object',
  required: ['id', 'name', 'price'],
  properties: { id: { type: 'integer' }, name: { type: 'string' }, price: { type: 'number' } }
}

const app = Fastify({ logger: process.env.LOG === 'true', ajv: { customOptions: { allErrors: true, coerceTypes: false } } })

app.setErrorHandler((_invalid, request, reply) => reply.code(400).send(refusal(request.body)))

app.get('/api/items', { schema: { response: { 200: { type: 'array', items: Item } } } }, async () => items)

app.get('/api/items/:id', {
  schema: { params: { type: 'object', properties: { id: { type: 'string' } } }, response: { 200: Item } }
}, async (request, reply) => {
  const id = Number(request.params.id)
  const item = items.find(item => item.id === id)
  if (item) return item
  return reply.code(404).send(notFound)
})

app.post('/api/items', { schema: { body: Item, response: { 201: Item } } }, async (request, reply) => {
  reply.code(201)
  return stored(request.body)
})

app.listen({ port })
