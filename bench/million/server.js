// The built service with a million items, put into the store directly; says its port, and its memory when asked.
import Fastify from 'fastify'
import errors from '../../dist/plugins/errors.js'
import items from '../../dist/plugins/items.js'
import stores from '../../dist/plugins/stores.js'
import users from '../../dist/plugins/users.js'
import validation from '../../dist/plugins/validation.js'

const app = Fastify()
await app.register(validation)
await app.register(errors)
await app.register(stores)
for (const store of [app.stores.items, app.stores.users]) {
  for (let id = 2; id <= 1_000_000; id++) store.append({ id, name: `Number ${id}`, price: id + 0.25 })
}
app.register(items, { prefix: '/api/items' })
app.register(users, { prefix: '/api/users' })
await app.listen({ port: 0 })

process.on('message', () => {
  globalThis.gc()
  process.send(process.memoryUsage())
})
process.send(app.server.address().port)
