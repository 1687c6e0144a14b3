// Tenants whose hooks continue a request in the async context of another one.
import { createServer, connect } from 'node:net'
import Fastify from 'fastify'
import { collection, memory } from 'fastify-items-users'

const Order = { type: 'object', required: ['id', 'quantity'], properties: { id: { type: 'integer' }, quantity: { type: 'integer' } } }

/** Collects the callbacks of two requests, and calls both in the context of the last one. */
function collectCallbacks (app) {
  const waiting = []
  app.addHook('preHandler', (_request, _reply, done) => {
    if (waiting.push(done) === 2) for (const proceed of waiting.splice(0).reverse()) proceed()
  })
}

/** Asks a server on one connection, which the first request opens, so that all answers arrive in its context (as with redis@3). */
function askServer (app) {
  const server = createServer(socket => socket.pipe(socket)).listen(0, '127.0.0.1')
  const waiting = []
  let connection
  app.addHook('preHandler', (_request, _reply, done) => {
    connection ??= connect(server.address().port, '127.0.0.1').on('data', answers => {
      for (const proceed of waiting.splice(0, answers.length)) proceed()
    })
    waiting.push(done)
    connection.write('?')
  })
  app.addHook('onClose', async () => {
    connection?.destroy()
    server.close()
  })
}

export async function build ({ way, requestContext }) {
  const app = Fastify()
  if (way === 'request-context') app.register(requestContext)
  if (way === 'collected') collectCallbacks(app)
  if (way === 'connection') askServer(app)
  const tenants = new Map(['red', 'blue'].map(name => [name, memory({ schema: Order, seed: [] })]))
  app.register(collection, { prefix: '/orders', name: 'orders', schema: Order, store: async ({ headers }) => tenants.get(headers.tenant) })
  return app
}
