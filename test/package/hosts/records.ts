// The record of a collection of the host has a type in `stores`, and the host need not provide all stores.
import { Type, type Static } from '@sinclair/typebox'
import Fastify from 'fastify'
import itemsUsers, { collection, memory, stores, Item, User, type OwnStores, type Stores } from 'fastify-items-users'

const Order = Type.Object({ id: Type.Integer(), quantity: Type.Integer() })
declare module 'fastify-items-users' {
  interface Records {
    orders: Static<typeof Order>
  }
}

const app = Fastify()
await app.register(stores)
app.register(collection, { prefix: '/orders', name: 'orders', schema: Order })
app.get('/import', async () => app.getDecorator<Stores>('stores').orders.append({ quantity: 1 }))
// @ts-expect-error the quantity is a number
app.get('/wrong', async () => app.getDecorator<Stores>('stores').orders.append({ quantity: '1' }))
const own: OwnStores = {
  items: memory<Item>({ schema: Item, seed: [] }), users: memory<User>({ schema: User, seed: [] })
}
app.register(itemsUsers, { prefix: '/api', store: own })
