import { setTimeout as sleep } from 'node:timers/promises'
import { Type, type Static } from '@sinclair/typebox'
import type { Test } from 'tap'
import collection from '../../plugins/collection/routes.js'
import type { Stores } from '../../plugins/host-stores.js'
import stores from '../../plugins/stores.js'
import { onEveryEngine } from '../support/engines.js'
import { host } from '../support/helper.js'

const Tool = Type.Object({ id: Type.Integer(), name: Type.String(), loaned: Type.Optional(Type.Boolean()) })
const Rental = Type.Object({ id: Type.Integer(), tool_id: Type.Integer(), days: Type.Integer({ minimum: 1 }) })
type Shop = Stores<{ tools: Static<typeof Tool>, rentals: Static<typeof Rental> }>

/** Opens a shop with a tool. */
async function open (t: Test, store: string, databaseTimeout = 60_000) {
  const app = host(t)
  await app.register(stores, { store, databaseTimeout })
  app.register(collection,
    { prefix: '/tools', name: 'tools', schema: Tool, unique: ['name'], seed: [{ id: 1, name: 'saw' }] })
  app.register(collection, { prefix: '/rentals', name: 'rentals', schema: Rental, references: { tool_id: 'tools' } })
  await app.ready()
  return app.getDecorator<Shop>('stores')
}

onEveryEngine((t, address, engine) => {
  t.test('code of a host reads and writes objects, which are validated like those of clients', async t => {
    const { tools, rentals } = await open(t, address())
    t.same(await tools.first(1), { id: 1, name: 'saw' })
    t.equal(await tools.first(9), undefined)
    t.same(await rentals.append([{ tool_id: 1, days: 2 }, { tool_id: 1, days: 3 }]),
      [{ id: 1, tool_id: 1, days: 2 }, { id: 2, tool_id: 1, days: 3 }])
    t.same(await rentals.change(2, rental => ({ ...rental, days: rental.days + 1 })), { id: 2, tool_id: 1, days: 4 })
    t.same((await rentals.select({ where: { tool_id: 1 }, sort: '-tool_id', limit: 1 })).records,
      [{ id: 2, tool_id: 1, days: 4 }])
    t.equal(await rentals.count({}), 2)
    t.same(await rentals.change(2, () => undefined), { id: 2, tool_id: 1, days: 4 })
  })

  t.test('a list that a transaction has read between its writes is not kept', async t => {
    const { tools, transaction } = await open(t, address())
    await transaction(async ({ tools }) => {
      await tools.append({ name: 'axe' })
      t.equal((await tools.select({})).records.length, 2)
      await tools.append({ name: 'drill' })
    })
    t.equal((await tools.select({})).records.length, 3)
  })

  t.test('an error of a store has a status, and names the field', async t => {
    const { tools, rentals } = await open(t, address())
    await t.rejects(rentals.append({ tool_id: 1, days: 0 }),
      { statusCode: 400, message: 'Invalid body: days must be at least 1.' })
    await t.rejects(rentals.append({ tool_id: 7, days: 1 }), {
      statusCode: 409, code: 'ERR_CONFLICT', message: 'Conflict: tool_id must be the id of a record of tools.'
    })
    await t.rejects(tools.append([{ name: 'axe' }, { name: 'saw' }, { name: 'axe' }]), {
      statusCode: 409, message: 'Conflict: 1/name is already used, 2/name is already used.'
    })
    await rentals.append({ tool_id: 1, days: 1 })
    await t.rejects(async () => tools.change(1, () => undefined),
      { statusCode: 409, message: 'Conflict: it is referred to by rentals.' })
    await t.rejects(async () => tools.change(1, tool => ({ ...tool, name: 5 }) as never),
      { statusCode: 400, message: 'Invalid body: name must be a string.' })
    await t.rejects(async () => tools.change(1, tool => ({ ...tool, id: 2 })),
      { message: 'A change cannot give a record another id' })
    t.same(await tools.first(1), { id: 1, name: 'saw' })
  })

  t.test('a transaction writes several collections, and reads what it has written', async t => {
    const shop = await open(t, address())
    const id = await shop.transaction(async ({ tools, rentals }) => {
      await tools.change(1, tool => ({ ...tool, loaned: true }))
      t.same(await tools.first(1), { id: 1, name: 'saw', loaned: true })
      const axe = await tools.append({ name: 'axe' })
      const rental = await rentals.append({ tool_id: axe.id, days: 2 })
      t.equal(await rentals.count({}), 1)
      t.same((await tools.select({ sort: '-name' as never })).records.map(({ name }) => name), ['saw', 'axe'])
      return rental.id
    })
    t.same(await shop.rentals.first(id), { id, tool_id: 2, days: 2 })
    t.same(await shop.tools.first(1), { id: 1, name: 'saw', loaned: true })
  })

  t.test('a transaction that fails writes nothing, whatever fails', async t => {
    const shop = await open(t, address())
    await t.rejects(shop.transaction(async ({ tools, rentals }) => {
      await tools.append({ name: 'axe' })
      await rentals.append({ tool_id: 2, days: 1 })
      await tools.change(1, () => undefined)
      throw new Error('no')
    }), { message: 'no' })
    await t.rejects(shop.transaction(async ({ tools, rentals }) => {
      await tools.change(1, tool => ({ ...tool, loaned: true }))
      await rentals.append({ tool_id: 9, days: 1 })
    }), { code: 'ERR_CONFLICT' })
    t.same((await shop.tools.select({})).records, [{ id: 1, name: 'saw' }])
    t.equal(await shop.rentals.count({}), 0)
    t.same(await shop.tools.append({ name: 'axe' }), { id: 2, name: 'axe' })
  })

  t.test('an error that the work handles does not end the transaction', async t => {
    const shop = await open(t, address())
    await shop.transaction(async ({ tools }) => {
      await t.rejects(tools.append({ name: 'saw' }), { code: 'ERR_CONFLICT' })
      await tools.append({ name: 'axe' })
    })
    t.equal(await shop.tools.count({}), 2)
  })

  t.test('nobody else reads what a transaction has not finished, and others go on afterwards', async t => {
    const shop = await open(t, address())
    let isDone = false
    const done = shop.transaction(async ({ tools }) => {
      await tools.change(1, tool => ({ ...tool, name: 'drill' }))
      await tools.append({ name: 'axe' })
      await sleep(200)
      isDone = true
    })
    await sleep(100)
    t.same(await shop.tools.first(1), { id: 1, name: 'saw' })
    t.same((await shop.tools.select({})).records, [{ id: 1, name: 'saw' }])
    const [added] = await Promise.all([shop.tools.append({ name: 'nail' }), done])
    t.ok(isDone)
    t.same(added, { id: 3, name: 'nail' })
    t.same((await shop.tools.select({})).records.map(({ name }) => name), ['drill', 'axe', 'nail'])
  })

  t.test('simultaneous transactions that change the same records lose nothing', async t => {
    const shop = await open(t, address())
    await shop.rentals.append([{ tool_id: 1, days: 1 }, { tool_id: 1, days: 1 }])
    await Promise.all(Array.from({ length: 10 }, (_, n) => shop.transaction(async ({ rentals }) => {
      for (const id of n % 2 ? [1, 2] : [2, 1]) {
        await rentals.change(id, rental => ({ ...rental, days: rental.days + 1 }))
      }
    })))
    t.same((await shop.rentals.select({})).records.map(({ days }) => days), [11, 11])
  })

  t.test('a transaction has the time of a request, and cannot be used later', async t => {
    const shop = await open(t, address(), 1000)
    let late: Promise<unknown> | undefined
    await t.rejects(shop.transaction(async ({ tools }) => {
      await tools.append({ name: 'axe' })
      await sleep(1500)
      late = (async () => tools.append({ name: 'nail' }))()
      await late.catch(() => {})
    }), { statusCode: 503, code: 'ERR_STORE_UNAVAILABLE' })
    await sleep(1000)
    await t.rejects(late ?? Promise.resolve(), { message: 'The transaction has ended' })
    t.equal(await shop.tools.count({}), 1)
    t.same(await shop.tools.append({ name: 'axe' }), { id: 2, name: 'axe' })
  })

  if (engine === 'PostgreSQL') {
    t.test('two instances run transactions at the same time, and both succeed', async t => {
      const url = address()
      const shops = [await open(t, url), await open(t, url)]
      await Promise.all(Array.from({ length: 20 }, (_, n) => shops[n % 2]?.transaction(async ({ tools, rentals }) => {
        const { id } = await tools.append({ name: `tool ${n}` })
        await rentals.append({ tool_id: id, days: 1 })
      })))
      t.equal(await shops[0]?.tools.count({}), 21)
      t.equal(await shops[1]?.rentals.count({}), 20)
    })
  }
})
