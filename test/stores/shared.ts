import { deepEqual, equal, ok, rejects } from 'node:assert/strict'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { Type, type Static } from '@sinclair/typebox'
import type { HasId, List, MaybePromise, Page, Store } from '../../plugins/stores/store.js'
import { Id } from '../../schemas/fields.js'
import type { Query } from '../../schemas/query.js'

export const Sample = Type.Object({ id: Id, name: Type.String(), price: Type.Number(), note: Type.Optional(Type.String()) })
export type Sample = Static<typeof Sample>

export interface StoreTestsOptions {
  /** `test` of node:test, or another function that runs a test. */
  test (name: string, run: () => Promise<void>): unknown
  /** Opens a new store with these records. */
  open (seed: Sample[]): MaybePromise<Store<Sample>>
  /** Whether the store is for a collection with filters: then the conditions and orders of `name`, `price` and `note` are tested. */
  hasFilters?: boolean
}

const sample = (id: number, name = `number ${id}`): Sample => ({ id, name, price: id / 4 })

/**
 * Tests a store: order, ids, pages, keys, concurrent changes, and queries.
 *
 * @example storeTests({ test, open: seed => ownStore(Sample, seed) })
 */
export function storeTests (options: StoreTestsOptions) {
  testRecords(options)
  testAppends(options)
  testChanges(options)
  testLists(options)
  if (options.hasFilters) testQueries(options)
}

function testRecords ({ test, open }: StoreTestsOptions) {
  test('a store behaves like an array, whatever is appended, replaced and removed', async () => {
    const model = [sample(0, 'first')]
    const store = await open([...model])
    let seed = 1
    const random = (below: number) => (seed = seed * 48271 % 2147483647) % below
    for (let n = 0; n < 400; n++) {
      const id = random(5)
      const index = model.findIndex(record => record.id === id)
      const record = sample(id, String(n))
      const kind = random(4)
      if (kind < 2) {
        equal(await store.append(record), JSON.stringify(record))
        model.push(record)
      } else if (kind === 2) {
        equal(await store.change(id, () => record) ?? undefined, index >= 0 ? JSON.stringify(record) : undefined)
        if (index >= 0) model[index] = record
      } else {
        equal(await store.change(id, () => undefined) ?? undefined, JSON.stringify(model[index]))
        if (index >= 0) model.splice(index, 1)
      }
      equal(await store.first(id) ?? undefined, JSON.stringify(model.find(record => record.id === id)))
      if (n % 50 === 0) await isList(store, model)
    }
    await isList(store, model)
    equal(await store.count({}), model.length)
  })

  test('an optional field can be absent, and a text can be anything that is well-formed', async () => {
    const records: Sample[] = [sample(1, ''), { ...sample(2, 'Zoë "x" \\ \n \u2028 🫖'), note: '' }, { ...sample(-3), price: 5e-324 }, { ...sample(4), price: -1e300 }]
    const store = await open([])
    for (const record of records) equal(await store.append(record), JSON.stringify(record))
    for (const record of records) equal(await store.first(record.id), JSON.stringify(record))
    await isList(store, records)
  })

  test('an id that no record has is not found, however large it is', async () => {
    const store = await open([sample(1)])
    for (const id of [2, -1, 2 ** 53, -1e300, Number.MAX_VALUE]) {
      equal(await store.first(id) ?? undefined, undefined)
      for (const record of [sample(id), undefined]) equal(await store.change(id, () => record) ?? undefined, undefined)
    }
    await isList(store, [sample(1)])
  })

  test('a record without an id gets a new one after the largest up to 2^52, and an id is never used again', async () => {
    const store = await open([sample(1), sample(-7), sample(40), sample(2 ** 53 - 1)])
    const fields = { name: 'y', price: 1 }
    const ids: number[] = []
    for (const key of [undefined, 'key', 'key', undefined]) ids.push(JSON.parse(await store.append(fields, key)).id)
    equal(ids[0], 41)
    equal(ids[1], ids[2], 'a retry with its key')
    ok(Number(ids[3]) > Number(ids[1]))
    await store.change(Number(ids[3]), () => undefined)
    ok(JSON.parse(await store.append(fields)).id > Number(ids[3]), 'the id of a deleted record is not used again')
  })
}

function testAppends ({ test, open }: StoreTestsOptions) {
  test('an idempotency key creates one record, also if it is used at the same time', async () => {
    const store = await open([])
    const created = await Promise.all(Array.from({ length: 20 }, async () => store.append(sample(1), 'a')))
    ok(created.every(json => json === JSON.stringify(sample(1))))
    await rejects(async () => store.append(sample(2), 'a'), { code: 'ERR_IDEMPOTENCY_KEY_REUSED' })
    await store.append(sample(2), 'b')
    await isList(store, [sample(1), sample(2)])
  })

  test('many records are appended next to each other, all of them once', async () => {
    const store = await open([sample(1)])
    const many = [sample(5), { ...sample(5, 'again'), note: '' }, sample(-2)]
    equal(await store.appendAll(many), JSON.stringify(many))
    const more = Array.from({ length: 1000 }, (_, n) => ({ name: String(n), price: n }))
    const [json, ...others] = await Promise.all([store.appendAll(more), ...more.slice(0, 20).map(async record => store.append(record))])
    const created: Sample[] = JSON.parse(json)
    deepEqual(created.map(({ id, ...fields }) => fields), more)
    equal(new Set([...created, ...others.map(json => JSON.parse(json) as Sample)].map(({ id }) => id)).size, 1020)
    const list: Sample[] = JSON.parse(await textOf((await store.select({})).list))
    deepEqual(list.slice(0, 4), [sample(1), ...many])
    const place = list.findIndex(({ id }) => id === created[0]?.id)
    deepEqual(list.slice(place, place + 1000), created)
    equal(list.length, 1024)
  })

  test('an idempotency key is for all records of a call', async () => {
    const store = await open([sample(7)])
    const appendAll = async (records: Parameters<typeof store.append>[0][], key: string) => store.appendAll(records, key)
    for (const [key, first, ...rest] of [['a', sample(3), sample(3, 'again'), sample(1)], ['b', { name: 'x', price: 1 }, { name: 'y', price: 2 }, { name: 'x', price: 1 }]] as const) {
      const records = [first, ...rest]
      const json = await appendAll(records, key)
      await store.change(JSON.parse(String(json))[1].id, () => undefined)
      equal(await appendAll(records, key), json, 'also if a record was removed meanwhile')
      for (const others of [records.slice(1), [...records, ...records], records.toReversed().slice(1)]) await rejects(appendAll(others, key), { code: 'ERR_IDEMPOTENCY_KEY_REUSED' })
      await rejects(async () => store.append(first, key), { code: 'ERR_IDEMPOTENCY_KEY_REUSED' })
    }
    await store.append(sample(9), 'one')
    await rejects(appendAll([sample(9)], 'one'), { code: 'ERR_IDEMPOTENCY_KEY_REUSED' })
    deepEqual(JSON.parse(await textOf((await store.select({})).list)).map(({ name }: Sample) => name), ['number 7', 'again', 'number 1', 'x', 'x', 'number 9'])
  })
}

function testChanges ({ test, open }: StoreTestsOptions) {
  test('records are stored in order of acknowledgement, and simultaneous removals each remove one', async () => {
    const store = await open([])
    for (let wave = 0; wave < 10; wave++) {
      const records = Array.from({ length: 30 }, (_, n) => sample((wave * 30 + n) % 7, `${wave} ${n}`))
      deepEqual(await Promise.all(records.map(async record => store.append(record))), records.map(record => JSON.stringify(record)))
    }
    const model: Sample[] = JSON.parse(await textOf((await store.select({})).list))
    deepEqual(model.map(({ name }) => parseInt(name)), Array.from({ length: 300 }, (_, n) => Math.floor(n / 30)))
    const removed = await Promise.all([0, 1, 0, 99, 0].map(async id => store.change(id, () => undefined)))
    deepEqual(removed.map(json => json && JSON.parse(json).id), [0, 1, 0, undefined, 0])
    equal(new Set(removed).size, 5)
    for (const id of [0, 1, 0, 0]) model.splice(model.findIndex(record => record.id === id), 1)
    await isList(store, model)
  })

  test('changes of a record are not lost, and a change that throws changes nothing', async () => {
    const store = await open([sample(1), { ...sample(2), price: 0 }, sample(3)])
    const add = (json: string): Sample => ({ ...JSON.parse(json), price: JSON.parse(json).price + 1 })
    await Promise.all(Array.from({ length: 20 }, async () => store.change(2, add)))
    const refusal = new Error('refused')
    await rejects(async () => store.change(2, () => { throw refusal }), refusal)
    await isList(store, [sample(1), { ...sample(2), price: 20 }, sample(3)])
  })
}

function testLists ({ test, open }: StoreTestsOptions) {
  test('pages follow each other, also if records around them are added, replaced and removed', async () => {
    const model = Array.from({ length: 25 }, (_, id) => sample(id))
    const store = await open([...model])
    const seen: number[] = []
    for (let after: string | undefined, page: Page | undefined; !page || after !== undefined; after = page.next) {
      page = await store.select({ limit: 10, after })
      seen.push(...JSON.parse(await textOf(page.list)).map(({ id }: HasId) => id))
      if (after === undefined) {
        await store.change(3, () => undefined)
        await store.change(15, () => undefined)
        await store.change(16, () => sample(16, 'changed'))
        await store.append(sample(25))
      }
    }
    deepEqual(seen, [...model.map(({ id }) => id).filter(id => id !== 15), 25])
    deepEqual((await store.select({ limit: 100 })).next, undefined)
  })

  test('a short list is the collection at the time of the call; a long one has each record that does not change exactly once', async () => {
    for (const [size, note] of [[3, ''], [3000, 'x'.repeat(800)]] as const) {
      const model = Array.from({ length: size }, (_, id) => ({ ...sample(id), note }))
      const store = await open([...model])
      const { list } = await store.select({})
      await store.change(size - 1, () => undefined)
      await store.append(sample(size, 'later'))
      const read: Sample[] = JSON.parse(await textOf(list))
      deepEqual(read.slice(0, size - 1), model.slice(0, -1))
      deepEqual(read.slice(size - 1), typeof list === 'string' ? model.slice(-1) : [])
    }
  })
}

function testQueries ({ test, open }: StoreTestsOptions) {
  test('a query selects the records that meet all conditions, in its order, also in pages', async () => {
    const texts = ['b', 'B', '\u{1f600}', '\ufffd', 'ba', 'b']
    const model = texts.map((name, n): Sample => ({ id: n, name, price: [2, -1, 0.5][n % 3] as number, ...n % 2 > 0 && { note: `note ${n}` } }))
    const store = await open(model)
    for (const [query, ids] of [
      [{ where: { name: 'b' } }, [0, 5]], [{ where: { name: ['B', 'ba'] } }, [1, 4]], [{ where: { 'name.prefix': 'b' } }, [0, 4, 5]], [{ where: { 'name.gt': 'ba' } }, [2, 3]],
      [{ where: { 'price.gte': 0.5 } }, [0, 2, 3, 5]], [{ where: { 'price.lt': 2, 'note.exists': true } }, [1, 5]], [{ where: { 'note.exists': false } }, [0, 2, 4]], [{ where: { note: 'none' } }, []],
      [{ sort: 'name' }, [1, 0, 5, 4, 3, 2]], [{ sort: '-name' }, [2, 3, 4, 5, 0, 1]], [{ sort: 'note' }, [0, 2, 4, 1, 3, 5]], [{ sort: '-note' }, [5, 3, 1, 4, 2, 0]], [{ where: { 'name.prefix': 'b' }, sort: 'price' }, [4, 5, 0]]
    ] as [Query<Sample>, number[]][]) {
      const pages: number[] = []
      for (let page: Page | undefined; !page || page.next !== undefined;) {
        page = await store.select({ ...query, limit: 2, after: page?.next })
        pages.push(...JSON.parse(await textOf(page.list)).map(({ id }: HasId) => id))
      }
      deepEqual(pages, ids, JSON.stringify(query))
      deepEqual(JSON.parse(await textOf((await store.select(query)).list)), ids.map(id => model[id]))
      equal(await store.count({ where: query.where }), ids.length)
    }
    const { next } = await store.select({ sort: 'name', limit: 1 })
    await rejects(async () => store.select({ sort: '-name', limit: 1, after: next }), { code: 'ERR_INVALID_CURSOR' })
  })
}

async function isList (store: Store<Sample>, records: Sample[]) {
  equal(await textOf((await store.select({})).list), JSON.stringify(records))
}

async function textOf (list: List) {
  return text(Readable.from(list))
}
