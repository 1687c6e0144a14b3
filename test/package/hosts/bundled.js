// A host that is bundled into one file. It prints the status of its own request.
import Fastify from 'fastify'
import itemsUsers from 'fastify-items-users'

async function start () {
  const app = Fastify()
  app.register(itemsUsers, { prefix: '/api' })
  console.log('/api/items', (await app.inject('/api/items')).statusCode)
  await app.close()
}

start()
