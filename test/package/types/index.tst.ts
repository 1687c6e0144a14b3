import { Type, type Static } from '@sinclair/typebox'
import Fastify, { type FastifyRequest } from 'fastify'
import { describe, expect, test } from 'tstyche'
import itemsUsers, {
  auth, collection, defineCollection, items, rateLimit, memory, metrics, stores, users, Item, User,
  type Definition, type Health, type Page, type Metrics, type Store, type Stores
} from '../../../src/index.js'
import { createClient } from '../../../src/client/index.js'

const app = Fastify()
declare const itemStore: Store<Item>
declare const userStore: Store<User>
const Order = Type.Object({ id: Type.Integer(), quantity: Type.Integer(), note: Type.Optional(Type.String()) })

describe('records', () => {
  test('an item and a user are what their schemas say', () => {
    expect<Item>().type.toBe<{ id: number, name: string, price: number }>()
    expect<User>().type.toBe<{ id: number, name: string }>()
    expect(Item.$id).type.toBe<string | undefined>()
  })
})

describe('a store', () => {
  test('takes records, with or without an id, and gives JSON', () => {
    expect(itemStore.append).type.toBeCallableWith({ id: 1, name: 'Lamp', price: 1 })
    expect(itemStore.append).type.toBeCallableWith({ name: 'Lamp', price: 1 }, 'key')
    expect(itemStore.append).type.not.toBeCallableWith({ id: 1, name: 'Lamp' })
    expect(itemStore.append).type.not.toBeCallableWith({ id: '1', name: 'Lamp', price: 1 })
    expect(itemStore.first(1)).type.toBe<string | null | undefined | Promise<string | null | undefined>>()
    expect(itemStore.select({ limit: 1 })).type.toBe<Page | Promise<Page>>()
    expect(itemStore.select).type.toBeCallableWith({ where: { name: ['a', 'b'], 'price.gte': 1, 'name.prefix': 'L' }, sort: '-price' })
    expect(itemStore.select).type.not.toBeCallableWith({ where: { nam: 'a' } })
    expect(itemStore.select).type.not.toBeCallableWith({ where: { 'price.prefix': 'a' } })
    expect(itemStore.select).type.not.toBeCallableWith({ where: { 'price.gte': 'a' } })
    expect(itemStore.select).type.not.toBeCallableWith({ where: { 'price.exists': true } })
    expect(itemStore.select).type.not.toBeCallableWith({ sort: 'nam' })
    expect(itemStore.change(1, () => undefined)).type.toBe<string | null | undefined | Promise<string | null | undefined>>()
    expect(itemStore.change).type.not.toBeCallableWith(1, () => ({ id: 1 }))
  })

  test('can be made in memory', () => {
    expect(memory<Item>({ schema: Item, seed: [] })).type.toBe<Required<Store<Item>>>()
    expect(memory<Item>).type.not.toBeCallableWith({ schema: Item, seed: [{ id: 1 }] })
  })
})

describe('options', () => {
  test('of the plugin', () => {
    for (const store of ['memory', { items: itemStore, users: userStore }, (_request: FastifyRequest) => ({ items: itemStore, users: userStore })]) {
      expect(app.register(itemsUsers, { prefix: '/api', idSource: 'server', store })).type.not.toRaiseError()
    }
    expect(app.register(itemsUsers, { errorHandler: false, seed: { items: [{ id: 1, name: 'Lamp', price: 1 }], orders: [{ id: 1 }] } })).type.not.toRaiseError()
    expect(app.register(itemsUsers, { seed: { items: [{ id: 1 }] } })).type.toRaiseError()
    expect(app.register(itemsUsers, { store: 5 })).type.toRaiseError()
    expect(app.register(itemsUsers, { store: { items: itemStore } })).type.not.toRaiseError()
    expect(app.register(itemsUsers, { store: { items: 5 } })).type.toRaiseError()
    expect(app.register(itemsUsers, { idSource: 'nobody' })).type.toRaiseError()
    expect(app.register(itemsUsers, { databaseTimeout: '5' })).type.toRaiseError()
  })

  test('of one collection', () => {
    expect(app.register(collection, { ...items, prefix: '/items' })).type.not.toRaiseError()
    expect(app.register(collection, { prefix: '/orders', name: 'orders', schema: Order, routes: { delete: { onRequest: async () => {} } } })).type.not.toRaiseError()
    expect(app.register(collection, { name: 'orders' })).type.toRaiseError()
    expect(app.register(collection, { name: 'orders', schema: Order, operations: ['steal'] })).type.toRaiseError()
    expect(app.register(collection, { name: 'orders', schema: Order, store: 'memory' })).type.toRaiseError()
  })

  test('the record of a definition is that of its schema', () => {
    expect(defineCollection({ ...items, store: itemStore })).type.toBe<Definition<typeof Item>>()
    expect(defineCollection({ ...users, store: async (_request: FastifyRequest) => userStore })).type.toBe<Definition<typeof User>>()
    expect(defineCollection<typeof Order>).type.toBeCallableWith({ name: 'orders', schema: Order, seed: [{ id: 1, quantity: 2 }] })
    expect(defineCollection<typeof Order>).type.not.toBeCallableWith({ name: 'orders', schema: Order, seed: [{ id: 1, quantity: '2' }] })
    expect(defineCollection<typeof Order>).type.not.toBeCallableWith({ name: 'orders', schema: Order, store: userStore })
  })

  test('of what goes around it', () => {
    expect(app.register(auth, { tokens: ['sesame'] })).type.not.toRaiseError()
    expect(app.register(auth, { check: async (token: string, request: FastifyRequest) => token === request.id })).type.not.toRaiseError()
    expect(app.register(auth, { tokens: 'sesame' })).type.toRaiseError()
    expect(app.register(auth, { tokens: ['sesame', { token: 'open', scopes: ['read'] }], publicScopes: ['items:read'] })).type.not.toRaiseError()
    expect(app.register(auth, { tokens: [{ token: 'open' }] })).type.toRaiseError()
    expect(app.register(auth, { check: async (token: string) => token === 'open' && ['read'] })).type.not.toRaiseError()
    expect(app.register(rateLimit, { max: 1, timeWindow: 1000 })).type.not.toRaiseError()
    expect(app.register(rateLimit, {})).type.toRaiseError()
    expect(app.register(metrics, { port: '9464' })).type.toRaiseError()
  })
})

describe('decorators', () => {
  test('of the stores', () => {
    app.register(stores, { store: 'memory' })
    expect(app.getDecorator<Stores>('stores').open<Item>).type.toBeCallableWith({ name: 'items', schema: Item, seed: [] })
    expect(app.getDecorator<Stores>('stores').items).type.toBe<Store<Item>>()
    expect(app.getDecorator<Stores<{ orders: Static<typeof Order> }>>('stores').orders).type.toBe<Store<Static<typeof Order>>>()
    expect(createClient('').collection<Static<typeof Order>>('orders').get(1)).type.toBe<Promise<Static<typeof Order>>>()
    expect(createClient('').collection<Static<typeof Order>>('orders').update).type.toBeCallableWith(1, { note: null })
    expect(createClient('').collection<Static<typeof Order>>('orders').update).type.not.toBeCallableWith(1, { quantity: null })
    expect(createClient('').users.delete).type.toBeCallableWith(1, { ifMatch: '"x"' })
    expect(createClient('').items.create).type.toBeCallableWith({ name: 'Teapot', price: 24.5 })
    expect(createClient('').items).type.not.toHaveProperty('delete')
    expect(createClient('').users).type.toHaveProperty('delete')
  })

  test('of the probes and the metrics', () => {
    expect(app.getDecorator<Health['addReadinessCheck']>('addReadinessCheck')).type.toBeCallableWith(async () => {})
    expect(app.getDecorator<Health['markNotReady']>('markNotReady')).type.toBe<() => void>()
    expect(app).type.not.toHaveProperty('markNotReady')
    expect(app.getDecorator<Metrics>('metrics').observeStore('items', itemStore)).type.toBe<Store<Item>>()
  })
})
