import { deepEqual, equal, ok, rejects } from 'node:assert/strict'
import { Type, type Static } from '@sinclair/typebox'
import type { MaybePromise, NewRecord, OwnStore, Page } from '../../plugins/stores/store.js'
import { Id } from '../../schemas/fields.js'
import type { Query } from '../../schemas/query.js'

export const Sample = Type.Object({ id: Id, name: Type.String(), price: Type.Number(), note: Type.Optional(Type.String()) })
export type Sample = Static<typeof Sample>

export interface StoreTestsOptions {
  /** `test` of node:test, or another function that runs a test. */
  test (name: string, run: () => Promise<void>): unknown
  /** Opens a new store with these records. */
  open (seed: Sample[]): MaybePromise<OwnStore<Sample>>
  /** Whether `name`, `price` and `note` are filters. */
  hasFilters?: boolean
}

const sample = (id: number, name = `number ${id}`): Sample => ({ id, name, price: id / 4 })
const keyOf = (key: string, given: object) => ({ key, digest: JSON.stringify(given) })
const reused = { code: 'ERR_IDEMPOTENCY_KEY_REUSED', statusCode: 422 }

/** Tests a store of an engine or of a host: order, ids, pages, keys, simultaneous changes, and queries. */
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
        deepEqual(await store.append([record]), [record])
        model.push(record)
      } else if (kind === 2) {
        deepEqual(await store.change(id, () => record) ?? undefined, index >= 0 ? record : undefined)
        if (index >= 0) model[index] = record
      } else {
        deepEqual(await store.change(id, () => undefined) ?? undefined, model[index])
        if (index >= 0) model.splice(index, 1)
      }
      deepEqual(await store.first(id) ?? undefined, model.find(record => record.id === id))
      if (n % 50 === 0) deepEqual(await list(store), model)
    }
    deepEqual(await list(store), model)
    equal(await store.count({}), model.length)
  })

  test('an optional field can be absent, and a text can be anything that is well-formed', async () => {
    const records: Sample[] = [
      sample(1, ''), { ...sample(2, 'Zoë "x" \\ \n \u2028 🫖'), note: '' }, { ...sample(-3), price: 5e-324 }, { ...sample(4), price: -1e300 }
    ]
    const store = await open([])
    for (const record of records) deepEqual(await store.append([record]), [record])
    for (const record of records) deepEqual(await store.first(record.id), record)
    deepEqual(await list(store), records)
  })

  test('an id that no record has is not found, however large it is', async () => {
    const store = await open([sample(1)])
    for (const id of [2, -1, 2 ** 53, -1e300, Number.MAX_VALUE]) {
      equal(await store.first(id) ?? undefined, undefined)
      equal(await store.change(id, () => undefined) ?? undefined, undefined)
    }
    deepEqual(await list(store), [sample(1)])
  })

  test('a record without an id gets a new one after the largest up to 2^52, and an id is never used again', async () => {
    const store = await open([sample(1), sample(-7), sample(40), sample(2 ** 53 - 1)])
    const fields = { name: 'y', price: 1 }
    const ids: number[] = []
    for (const key of [undefined, 'key', 'key', undefined]) ids.push(first(await store.append([fields], key ? keyOf(key, fields) : undefined)).id)
    equal(ids[0], 41)
    equal(ids[1], ids[2], 'a retry with its key')
    ok(Number(ids[3]) > Number(ids[1]))
    await store.change(Number(ids[3]), () => undefined)
    ok(first(await store.append([fields])).id > Number(ids[3]), 'the id of a deleted record is not used again')
  })
}

function testAppends ({ test, open }: StoreTestsOptions) {
  test('an idempotency key creates one record, also if it is used at the same time', async () => {
    const store = await open([])
    const append = async (record: Sample, key: string) => first(await store.append([record], keyOf(key, record)))
    const created = await Promise.all(Array.from({ length: 20 }, () => append(sample(1), 'a')))
    for (const record of created) deepEqual(record, sample(1))
    await rejects(append(sample(2), 'a'), reused)
    await append(sample(2), 'b')
    deepEqual(await list(store), [sample(1), sample(2)])
  })

  test('many records are appended next to each other, all of them once', async () => {
    const store = await open([sample(1)])
    const many = [sample(5), { ...sample(5, 'again'), note: '' }, sample(-2)]
    deepEqual(await store.append(many), many)
    const more = Array.from({ length: 1000 }, (_, n) => ({ name: String(n), price: n }))
    const [created, ...others] = await Promise.all([store.append(more), ...more.slice(0, 20).map(async record => first(await store.append([record])))])
    deepEqual(created.map(({ id, ...fields }) => fields), more)
    equal(new Set([...created, ...others].map(({ id }) => id)).size, 1020)
    const records = await list(store)
    deepEqual(records.slice(0, 4), [sample(1), ...many])
    const place = records.findIndex(({ id }) => id === created[0]?.id)
    deepEqual(records.slice(place, place + 1000), created)
    equal(records.length, 1024)
  })

  test('an idempotency key is for all records of a call', async () => {
    const store = await open([sample(7)])
    const append = async (records: NewRecord<Sample>[], key: string) => store.append(records, keyOf(key, records))
    const withIds = [sample(3), sample(3, 'again'), sample(1)]
    const without = [{ name: 'x', price: 1 }, { name: 'y', price: 2 }, { name: 'x', price: 1 }]
    for (const [key, records] of [['a', withIds], ['b', without]] as const) {
      const created = await append(records, key)
      await store.change(created[1]?.id ?? 0, () => undefined)
      deepEqual(await append(records, key), created, 'also if a record was removed meanwhile')
      for (const others of [records.slice(1), [...records, ...records], records.toReversed()]) await rejects(append(others.slice(1), key), reused)
    }
    deepEqual((await list(store)).map(({ name }) => name), ['number 7', 'again', 'number 1', 'x', 'x'])
  })
}

function testChanges ({ test, open }: StoreTestsOptions) {
  test('records are stored in order of acknowledgement, and simultaneous removals each remove one', async () => {
    const store = await open([])
    for (let wave = 0; wave < 10; wave++) {
      const records = Array.from({ length: 30 }, (_, n) => sample((wave * 30 + n) % 7, `${wave} ${n}`))
      deepEqual(await Promise.all(records.map(async record => first(await store.append([record])))), records)
    }
    const model = await list(store)
    deepEqual(model.map(({ name }) => parseInt(name)), Array.from({ length: 300 }, (_, n) => Math.floor(n / 30)))
    const removed = await Promise.all([0, 1, 0, 99, 0].map(async id => store.change(id, () => undefined)))
    deepEqual(removed.map(record => record?.id), [0, 1, 0, undefined, 0])
    equal(new Set(removed.map(record => record?.name)).size, 5)
    for (const id of [0, 1, 0, 0]) model.splice(model.findIndex(record => record.id === id), 1)
    deepEqual(await list(store), model)
  })

  test('changes of a record are not lost, and a change that throws changes nothing', async () => {
    const store = await open([sample(1), { ...sample(2), price: 0 }, sample(3)])
    await Promise.all(Array.from({ length: 20 }, async () => store.change(2, record => ({ ...record, price: record.price + 1 }))))
    const refusal = new Error('refused')
    await rejects(async () => store.change(2, () => { throw refusal }), refusal)
    deepEqual(await list(store), [sample(1), { ...sample(2), price: 20 }, sample(3)])
  })
}

function testLists ({ test, open }: StoreTestsOptions) {
  test('pages follow each other, also if records around them are added, replaced and removed', async () => {
    const model = Array.from({ length: 25 }, (_, id) => sample(id))
    const store = await open([...model])
    const seen: number[] = []
    for (let after: string | undefined, page: Page<Sample> | undefined; !page || after !== undefined; after = page.next) {
      page = await store.select({ limit: 10, after })
      seen.push(...page.records.map(({ id }) => id))
      if (after === undefined) {
        await store.change(3, () => undefined)
        await store.change(15, () => undefined)
        await store.change(16, () => sample(16, 'changed'))
        await store.append([sample(25)])
      }
    }
    deepEqual(seen, [...model.map(({ id }) => id).filter(id => id !== 15), 25])
    equal((await store.select({ limit: 100 })).next, undefined)
  })
}

function testQueries ({ test, open }: StoreTestsOptions) {
  test('a query selects the records that meet all conditions, in its order, also in pages', async () => {
    const texts = ['b', 'B', '\u{1f600}', '\ufffd', 'ba', 'b']
    const model = texts.map((name, n): Sample =>
      ({ id: n, name, price: [2, -1, 0.5][n % 3] as number, ...n % 2 > 0 && { note: `note ${n}` } }))
    const store = await open(model)
    for (const [query, ids] of [
      [{ where: { name: 'b' } }, [0, 5]], [{ where: { name: ['B', 'ba'] } }, [1, 4]],
      [{ where: { 'name.prefix': 'b' } }, [0, 4, 5]], [{ where: { 'name.gt': 'ba' } }, [2, 3]],
      [{ where: { 'price.gte': 0.5 } }, [0, 2, 3, 5]], [{ where: { 'price.lt': 2, 'note.exists': true } }, [1, 5]],
      [{ where: { 'note.exists': false } }, [0, 2, 4]], [{ where: { note: 'none' } }, []],
      [{ where: { id: [1, 4, 9] } }, [1, 4]], [{ sort: '-id' }, [5, 4, 3, 2, 1, 0]],
      [{ sort: 'name' }, [1, 0, 5, 4, 3, 2]], [{ sort: '-name' }, [2, 3, 4, 5, 0, 1]],
      [{ sort: 'note' }, [0, 2, 4, 1, 3, 5]], [{ sort: '-note' }, [5, 3, 1, 4, 2, 0]],
      [{ where: { 'name.prefix': 'b' }, sort: 'price' }, [4, 5, 0]]
    ] as [Query<Sample>, number[]][]) {
      const pages: number[] = []
      for (let page: Page<Sample> | undefined; !page || page.next !== undefined;) {
        page = await store.select({ ...query, limit: 2, after: page?.next })
        pages.push(...page.records.map(({ id }) => id))
      }
      deepEqual(pages, ids, JSON.stringify(query))
      deepEqual((await store.select(query)).records, ids.map(id => model[id]))
      equal(await store.count({ where: query.where }), ids.length)
    }
    const { next } = await store.select({ sort: 'name', limit: 1 })
    await rejects(async () => store.select({ sort: '-name', limit: 1, after: next }), { code: 'ERR_INVALID_QUERY', statusCode: 400 })
  })
}

const first = <T>([record]: readonly T[]) => record as T

async function list (store: OwnStore<Sample>) {
  return [...(await store.select({})).records]
}
