// A host that listens on a free port.
import Fastify from 'fastify'
import itemsUsers, { docs, health } from 'fastify-items-users'

const app = Fastify()
await app.register(docs)
app.register(health)
app.register(itemsUsers, { prefix: '/api' })
console.log(`API at ${await app.listen()}`)
