// The built service with a million items. It prints its port, and its memory on request.
import Fastify from 'fastify'
import itemsUsers, { Item, memory, User } from '../../dist/src/index.js'

const app = Fastify()
const store = { items: memory({ schema: Item, seed: [] }), users: memory({ schema: User, seed: [] }) }
for (const collection of Object.values(store)) {
  for (let id = 1; id <= 1_000_000; id++) collection.append({ id, name: `Number ${id}`, price: id + 0.25 })
}
app.register(itemsUsers, { prefix: '/api', store })
await app.listen({ port: 0 })

process.on('message', () => {
  globalThis.gc()
  process.send(process.memoryUsage())
})
process.send(app.server.address().port)
