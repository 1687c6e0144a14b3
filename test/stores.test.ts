import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { Type } from '@sinclair/typebox'
import fastJson from 'fast-json-stringify'
import { test } from 'tap'
import { memory } from '../plugins/stores/memory.js'
import { segmentedJson } from '../plugins/stores/segments.js'
import type { Store } from '../plugins/stores/store.js'
import { Item } from '../schemas/item.js'

async function read (list: ReturnType<Store<Thing>['list']>) {
  return text(Readable.from(await list))
}

interface Thing { id: number, name: string }

const thing = (id: number, name: string): Thing => ({ id, name })

test('a store equals a plain list, whatever is appended to it and removed from it', async t => {
  const model = [thing(0, 'first')]
  const store = memory<Thing>(JSON.stringify, [...model])
  let seed = 1
  const random = (below: number) => (seed = seed * 48271 % 2147483647) % below

  for (let n = 0; n < 5000; n++) {
    const id = random(5)
    if (random(2)) {
      const record = thing(id, String(n))
      t.equal(await store.append(record), JSON.stringify(record))
      model.push(record)
    } else {
      const index = model.findIndex(record => record.id === id)
      t.equal(await store.removeFirst(id), index >= 0)
      if (index >= 0) model.splice(index, 1)
    }
    t.equal(await store.first(id), JSON.stringify(model.find(record => record.id === id)))
    if (n % 500 === 0) t.equal(await read(store.list()), JSON.stringify(model))
  }
  t.equal(await read(store.list()), JSON.stringify(model))
})

test('a list is what the serialiser of its schema gives, whole or in pieces', async t => {
  const encodeList = fastJson(Type.Array(Item))
  const store = memory<Item>(fastJson(Item), [])
  const model: Item[] = []
  for (const [size, kind] of [[0, 'string'], [1, 'string'], [2, 'string'], [5000, Buffer], [50_000, Readable]] as const) {
    while (model.length < size) {
      const id = model.length
      const record = { id, name: `Zoë "${id}"\n🫖`, price: id / 3 }
      model.push(record)
      await store.append(record)
    }
    const list = await store.list()
    t.type(list, kind)
    t.equal(await read(list), encodeList(model))
    if (kind !== Readable) t.equal(await store.list(), list, 'made once')
  }
  const large = { id: -1, name: 'x'.repeat(200_000), price: 1 }
  await store.append(large)
  t.equal(await store.first(-1), JSON.stringify(large))
  t.equal(await read(store.list()), encodeList([...model, large]))
})

test('a list in pieces is the collection as it was when it was asked for', async t => {
  const model = Array.from({ length: 50_000 }, (_, id) => thing(id, `number ${id}`))
  const store = memory<Thing>(JSON.stringify, model)
  const list = store.list()
  for (const id of [0, 1, 25_000, 49_999]) await store.removeFirst(id)
  await store.append(thing(5, 'later'))
  t.equal(await read(list), JSON.stringify(model))
  const changed = [...model.filter(({ id }) => ![0, 1, 25_000, 49_999].includes(id)), thing(5, 'later')]
  t.equal(await read(store.list()), JSON.stringify(changed))
})

test('there is nothing at a position where nothing is', async t => {
  t.throws(() => segmentedJson().at(5), new RangeError('There is no record at position 5'))
})

test('a list does not change with the store', async t => {
  const store = memory<Thing>(JSON.stringify, [thing(1, 'a'), thing(1, 'b')])
  const list = await store.list()
  await store.append(thing(2, 'c'))
  await store.removeFirst(1)
  t.same(await read(list), JSON.stringify([thing(1, 'a'), thing(1, 'b')]))
})

test('appending, finding and removing do not slow down as the collection grows', async t => {
  for (const [ids, idOf] of Object.entries({ unique: (n: number) => n, equal: () => 1 })) {
    const store = memory<Thing>(JSON.stringify, [])
    const small = spend(2_000)
    const large = spend(200_000)
    t.ok(large < small * 20, `${ids} ids: ${large / small} times as long for an operation among 100 times the records`)

    /** Fills the store up to this size and gives the least time that a round of operations took there. */
    function spend (size: number) {
      for (let n = 0; n < size; n++) store.append(thing(idOf(n), 'x'))
      return Math.min(...Array.from({ length: 20 }, () => {
        const start = performance.now()
        for (let n = 0; n < 1000; n++) {
          const id = idOf(size - 1 - n)
          store.append(thing(id, 'y'))
          store.first(id)
          store.removeFirst(id)
        }
        return performance.now() - start
      }))
    }
  }
})
