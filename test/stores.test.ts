import { test } from 'tap'
import { memory } from '../plugins/stores/memory.js'

interface Thing { id: number, name: string }

const thing = (id: number, name: string): Thing => ({ id, name })

test('a store equals a plain list, whatever is appended to it and removed from it', async t => {
  const model = [thing(0, 'first')]
  const store = memory<Thing>([...model])
  let seed = 1
  const random = (below: number) => (seed = seed * 48271 % 2147483647) % below

  for (let n = 0; n < 5000; n++) {
    const id = random(5)
    if (random(2)) {
      const record = thing(id, String(n))
      t.equal(await store.append(record), record)
      model.push(record)
    } else {
      const index = model.findIndex(record => record.id === id)
      t.equal(await store.removeFirst(id), index >= 0)
      if (index >= 0) model.splice(index, 1)
    }
    t.equal(await store.first(id), model.find(record => record.id === id))
    if (n % 500 === 0) t.same(await store.list(), model)
  }
  t.same(await store.list(), model)
})

test('a list does not change with the store', async t => {
  const store = memory<Thing>([thing(1, 'a'), thing(1, 'b')])
  const list = await store.list()
  await store.append(thing(2, 'c'))
  await store.removeFirst(1)
  t.same(list, [thing(1, 'a'), thing(1, 'b')])
})

test('appending, finding and removing do not slow down as the collection grows', async t => {
  for (const [ids, idOf] of Object.entries({ unique: (n: number) => n, equal: () => 1 })) {
    const store = memory<Thing>([])
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
