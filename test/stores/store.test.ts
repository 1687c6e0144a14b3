import { equal } from 'node:assert/strict'
import { createRequire } from 'node:module'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { Type } from '@sinclair/typebox'
import fastJson from 'fast-json-stringify'
import { test, type Test } from 'tap'
import { batch } from '../../plugins/stores/batch.js'
import { engineAt } from '../../plugins/stores/engines.js'
import { loadOptional } from '../../plugins/stores/optional-package.js'
import { memoryKeys } from '../../plugins/stores/idempotency.js'
import { memory } from '../../plugins/stores/memory.js'
import { segmentedJson } from '../../plugins/stores/segments.js'
import { StoreUnavailableError, type Store } from '../../plugins/stores/store.js'
import { databaseDefaults } from '../../schemas/config.js'
import { Item } from '../../schemas/item.js'
import { onEveryEngine, opened } from '../support/engines.js'

const encode = fastJson(Item)
const encodeList = fastJson(Type.Array(Item))
const item = (id: number, name: string): Item => ({ id, name, price: id / 3 })

async function read (list: ReturnType<Store<Item>['list']>) {
  return text(Readable.from(await list))
}

onEveryEngine((t, address, engine) => {
  async function open (t: Test, start: Item[]) {
    const engine = await engineAt(address(), databaseDefaults)
    t.teardown(engine.close)
    const store = await opened(engine, { name: 'things', schema: Item, seed: start.slice(0, 1) })
    await Promise.all(start.slice(1).map(record => store.append(record)))
    return store
  }

  t.test('a store behaves like an array, whatever is appended and removed', async t => {
    const model = [item(0, 'first')]
    const store = await open(t, model)
    let seed = 1
    const random = (below: number) => (seed = seed * 48271 % 2147483647) % below

    for (let n = 0; n < (engine === 'memory' ? 5000 : 500); n++) {
      const id = random(5)
      if (random(2)) {
        const record = item(id, String(n))
        equal(await store.append(record), JSON.stringify(record))
        model.push(record)
      } else {
        const index = model.findIndex(record => record.id === id)
        equal(await store.removeFirst(id), index >= 0)
        if (index >= 0) model.splice(index, 1)
      }
      equal(await store.first(id), JSON.stringify(model.find(record => record.id === id)))
      if (n % 100 === 0) equal(await read(store.list()), JSON.stringify(model))
    }
    t.equal(await read(store.list()), JSON.stringify(model))
  })

  t.test('a list equals the serialized records, in one piece or as a stream', async t => {
    const model: Item[] = []
    const store = await open(t, model)
    for (const size of [0, 1, 2, 999, 1000, 1001, 2000, 20_000]) {
      const more = Array.from({ length: size - model.length }, (_, n) => item(model.length + n, `Zoë "${n}"\n🫖`))
      model.push(...more)
      await Promise.all(more.map(record => store.append(record)))
      t.ok(await read(store.list()) === encodeList(model), `${size} records`)
    }
    const large = [200_000, 64 * 1024, 64 * 1024 - 64, 1, 1_000_000].map((length, n) => item(-n, 'x'.repeat(length)))
    await Promise.all(large.map(record => store.append(record)))
    t.equal(await store.first(-1), JSON.stringify(large[1]))
    t.ok(await read(store.list()) === encodeList([...model, ...large]))
  })

  t.test('a list is the collection at the time of the call', async t => {
    for (const size of [2, 20_000]) {
      const model = Array.from({ length: size }, (_, id) => item(id, `number ${id}`))
      const store = await open(t, model)
      const list = await store.list()
      const gone = [0, 1, size - 1]
      await Promise.all(gone.map(id => store.removeFirst(id)))
      await store.append(item(5, 'later'))
      t.ok(await read(list) === JSON.stringify(model))
      const changed = [...model.filter(({ id }) => !gone.includes(id)), item(5, 'later')]
      t.ok(await read(store.list()) === JSON.stringify(changed))
    }
  })

  t.test('simultaneous records are stored in order of arrival', async t => {
    const store = await open(t, [])
    const model = Array.from({ length: 1000 }, (_, n) => item(n % 7, `number ${n}`))
    t.same(await Promise.all(model.map(record => store.append(record))), model.map(encode))
    t.equal(await read(store.list()), JSON.stringify(model))
  })

  t.test('a record without an id gets the next one after the largest', async t => {
    const store = await open(t, [item(1, 'x'), item(-7, 'x'), item(40, 'x'), item(2 ** 53 - 1, 'x')])
    const fields = { name: 'y', price: 1 }
    t.equal(await store.append(fields), encode({ id: 41, ...fields }))
    t.equal(await store.append(fields, 'key'), encode({ id: 42, ...fields }))
    t.equal(await store.append(fields, 'key'), encode({ id: 42, ...fields }))
    await store.removeFirst(42)
    t.equal(await store.append(fields), encode({ id: 43, ...fields }))
    t.equal(await store.size(), 6)
  })

  t.test('simultaneous removals each remove one record', async t => {
    const store = await open(t, [1, 2, 2, 2, 3].map((id, n) => item(id, `number ${n}`)))
    const removed = await Promise.all([2, 3, 2, 3, 9, 1e300].map(id => store.removeFirst(id)))
    t.same(removed, [true, true, true, false, false, false])
    t.equal(await read(store.list()), encodeList([item(1, 'number 0'), item(2, 'number 3')]))
  })

  t.test('an id that no record can have is not found', async t => {
    const store = await open(t, [])
    for (const id of [2 ** 53, -1e300, Number.MAX_VALUE]) t.equal(await store.first(id), undefined)
  })
})

test('in memory, a list is built once between two changes, and is a stream if it is long', async t => {
  const store = memory<Item>({ schema: Item, seed: [] })
  for (const [size, kind] of [[0, 'string'], [2, 'string'], [500, Buffer], [5000, Buffer], [50_000, Readable]] as const) {
    for (let n = 0; n < size; n++) store.append(item(n, 'x'))
    const list = await store.list()
    t.type(list, kind)
    if (!(list instanceof Readable)) t.equal(await store.list(), list, 'built once')
  }
})

test('reading a position without a record fails', async t => {
  t.throws(() => segmentedJson().at(5), new RangeError('There is no record at position 5'))
})

test('appending, finding and removing do not slow down as the collection grows', async t => {
  for (const [ids, idOf] of Object.entries({ unique: (n: number) => n, equal: () => 1 })) {
    const store = memory<Item>({ schema: Item, seed: [] })
    const small = spend(2_000)
    const large = spend(200_000)
    t.ok(large < small * 20, `${ids} ids: ${large / small} times as long for an operation among 100 times the records`)

    /** Fills the store up to this size and gives the least time that a round of operations took there. */
    function spend (size: number) {
      for (let n = 0; n < size; n++) store.append(item(idOf(n), 'x'))
      return Math.min(...Array.from({ length: 20 }, () => {
        const start = performance.now()
        for (let n = 0; n < 1000; n++) {
          const id = idOf(size - 1 - n)
          store.append(item(id, 'y'))
          store.first(id)
          store.removeFirst(id)
        }
        return performance.now() - start
      }))
    }
  }
})

test('in memory, a page costs the same at the start and at the end of a million', async t => {
  const store = memory<Item>({ schema: Item, seed: [] })
  for (let id = 0; id < 1_000_000; id++) store.append({ id, name: `number ${id}`, price: 1 })
  let position = 0
  for (let n = 0; n < 999; n++) position = Number((await store.page(1000, position)).next)
  const spend = (after: number) => Math.min(...Array.from({ length: 50 }, () => {
    const start = performance.now()
    store.page(100, after)
    return performance.now() - start
  }))
  spend(0)
  const [first, last] = [spend(0), spend(position)]
  t.ok(last < first * 3, `${last / first} times as long at the end`)
})

test('the number of keys in memory is limited, and the oldest are removed first', async t => {
  const keys = memoryKeys()
  for (let n = 0; n < 20_001; n++) keys.set(String(n), { digest: '', id: n })
  t.equal(keys.get('0'), undefined)
  t.equal(keys.get('1')?.id, 1)
  t.equal(keys.get('20000')?.id, 20_000)
})

test('all calls that wait for an unavailable database fail, however many there are', async t => {
  const call = batch(async (_inputs: number[]): Promise<number[]> => { throw new StoreUnavailableError(new Error('gone')) })
  const outcomes = await Promise.allSettled(Array.from({ length: 200_000 }, (_, n) => call(n)))
  t.ok(outcomes.every(({ status }) => status === 'rejected'))
})

test('a missing package is named, and other errors while loading one are not hidden', async t => {
  const require = createRequire(import.meta.url)
  const name = 'not-installed'
  await t.rejects(loadOptional(name, 'DATABASE_URL', async () => require(name)), {
    message: 'DATABASE_URL needs the package not-installed, which is not installed. Run: npm install not-installed'
  })
  await t.rejects(loadOptional('broken', 'DATABASE_URL', async () => { throw new Error('broken') }), { message: 'broken' })
})
