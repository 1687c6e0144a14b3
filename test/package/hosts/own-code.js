// Code of the host that uses the store of a collection: before the app is ready, and in a route of its own.
import Fastify from 'fastify'
import { collection, errors, stores } from 'fastify-items-users'

const Order = { type: 'object', required: ['id', 'quantity'], properties: { id: { type: 'integer' }, quantity: { type: 'integer', minimum: 1 } } }

export async function build () {
  const app = Fastify()
  app.register(errors)
  await app.register(stores, { store: `sqlite:${import.meta.dirname}/own-code.db` })
  const early = []
  const use = () => {
    try {
      return app.stores.orders.append({ quantity: 1 })
    } catch (error) {
      early.push(error.message)
    }
  }
  await app.register(collection, { prefix: '/orders', name: 'orders', schema: Order })
  use()
  const { orders } = app.stores
  app.post('/import', async ({ body }, reply) => reply.code(201).send(await orders.append(body)))
  app.get('/size', async () => String(await app.stores.orders.count({})))
  return Object.assign(app, { early })
}
