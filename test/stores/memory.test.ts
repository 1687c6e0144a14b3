import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { test } from 'tap'
import { batch } from '../../plugins/stores/batch.js'
import { StoreUnavailableError } from '../../plugins/stores/errors.js'
import { memory } from '../../plugins/stores/memory/store.js'
import { Item } from '../../schemas/item.js'
import { cpuTime } from '../support/cpu-time.js'
import { equalHashes } from '../support/hostile.js'

const item = (id: number, name = `number ${id}`): Item => ({ id, name, price: id / 3 })
const empty = () => memory<Item>({ schema: Item, seed: [] })

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

/** How many kilobytes are in use. Buffers are freed in the background, so it looks several times. */
async function memoryUsed () {
  let used = Infinity
  for (let n = 0; n < 5; n++) {
    collectGarbage()
    await nextTurn()
    const { arrayBuffers, heapUsed } = process.memoryUsage()
    used = Math.min(used, (arrayBuffers + heapUsed) / 1024)
  }
  return used
}

test('ids whose hashes are equal take no longer than others', t => {
  const chosen = equalHashes()
  const others = chosen.map((_, n) => n * 1_000_003 % 2 ** 31)
  let ratio = Infinity
  for (let tries = 0; tries < 5 && ratio > 3; tries++) ratio = Math.min(ratio, cost(chosen) / cost(others)) // other processes disturb some
  t.ok(ratio <= 3, `${ratio.toFixed(1)} times as long`)
  t.end()

  /** The CPU time for creating and reading records. */
  function cost (ids: readonly number[]) {
    const store = empty()
    const took = cpuTime()
    for (const id of ids) store.append(item(id, 'x'))
    t.ok(ids.every(id => store.first(id) !== undefined))
    return took()
  }
})

test('a memory store releases the memory of deleted records', async t => {
  for (const [records, nameOf] of [
    [200_000, (id: number) => `number ${id}`],
    [2000, (id: number) => id % 2 ? 'x'.repeat(70_000) : 'small']
  ] as const) {
    const kept = (id: number) => id % (records / 250) === 0
    const before = await memoryUsed()
    const store = empty()
    for (let id = 0; id < records; id++) store.append(item(id, nameOf(id)))
    const full = await memoryUsed()
    for (let id = 0; id < records; id++) if (!kept(id)) store.change(id, () => undefined)
    const after = await memoryUsed()
    t.ok(full - before > 8000, `${full - before} KB for ${records} records`)
    t.ok(after - before < 2000, `${after - before} KB for 250 records`)
    const left = Array.from({ length: records }, (_, id) => id).filter(kept)
    t.equal(String((await store.select({})).list), JSON.stringify(left.map(id => item(id, nameOf(id)))))
  }
})

test('a list has few pieces, also after most of its records were deleted', async t => {
  const ids = Array.from({ length: 840 }, (_, id) => id)
  for (const order of [ids, ids.toReversed()]) {
    const store = empty()
    for (const id of ids) store.append(item(id, 'x'.repeat(10_000)))
    for (const id of order) if (id % 7 !== 3) store.change(id, () => undefined)
    const pieces = await ((await store.select({})).list as Readable).toArray()
    t.equal(JSON.parse(pieces.join('')).length, 120)
    t.ok(pieces.length < 70, `${pieces.length} pieces`)
  }
})

test('records that are deleted in the order of their creation leave a valid list and use no memory', async t => {
  const store = empty()
  for (let id = 0; id < 5000; id++) store.append(item(id))
  for (let id = 0; id < 5000; id++) {
    store.change(id, () => undefined)
    if (id % 100 === 0) t.equal(JSON.parse(await text(Readable.from((await store.select({})).list))).length, 4999 - id)
  }

  store.append(item(1))
  const before = await memoryUsed()
  for (let n = 0; n < 200_000; n++) {
    store.append(item(1))
    store.change(1, () => undefined)
  }
  const after = await memoryUsed()
  t.ok(after - before < 2000, `${after - before} KB`)
  t.equal(String((await store.select({})).list), JSON.stringify([item(1)]))
})

test('lists and cursors stay valid while records around them are deleted', async t => {
  let seed = 1
  const random = (below: number) => (seed = seed * 48271 % 2147483647) % below
  const store = empty()
  let model: Item[] = []
  const lists: { list: Readable, expected: string }[] = []
  const cursors: { cursor: string, lastId: number }[] = []
  let nextId = 0

  for (let round = 0; round < 12; round++) {
    for (let n = 0; n < 4000; n++) {
      const list = n === 3999 && (await store.select({})).list
      if (list instanceof Readable) lists.push({ list, expected: JSON.stringify(model) })
      const record = item(nextId++, 'x'.repeat(random(200) === 0 ? 50_000 + random(50_000) : random(200)))
      store.append(record)
      model.push(record)
    }
    for (let n = 0; n < 20; n++) {
      const position = Number(Buffer.from(cursors.at(-1)?.cursor ?? '', 'base64url').toString()) + random(3000)
      const { list, next } = await store.select({ limit: 1, after: Buffer.from(String(position)).toString('base64url') })
      if (next) cursors.push({ cursor: next, lastId: JSON.parse(String(list))[0].id })
    }
    // some rounds delete at random, some a whole range
    const gone = new Set(model.filter(({ id }) => round % 3 === 2 ? id % 6000 < 5500 : random(100) < 85).map(({ id }) => id))
    const order = round % 2 ? [...gone].reverse() : [...gone]
    t.ok(order.every(id => store.change(id, () => undefined)))
    model = model.filter(({ id }) => !gone.has(id))

    for (const { cursor, lastId } of cursors) {
      const behind = model.filter(({ id }) => id > lastId)
      const { list, next } = await store.select({ limit: 3, after: cursor })
      t.equal(await text(Readable.from(list)), JSON.stringify(behind.slice(0, 3)))
      t.equal(next !== undefined, behind.length > 3)
    }
    for (const { id } of model.filter(({ id }) => id % 17 === 0)) t.equal(JSON.parse(String(store.first(id))).id, id)
    t.ok(await text(Readable.from((await store.select({})).list)) === JSON.stringify(model), `${model.length} records`)
  }
  t.ok(lists.length > 3, `${lists.length} lists were open meanwhile`)
  for (const { list, expected } of lists) t.ok(await text(list) === expected)
})

test('records that become larger are sent in pieces', async t => {
  const store = empty()
  for (let id = 0; id < 2000; id++) store.append(item(id))
  const large = 'x'.repeat(20_000)
  for (let id = 0; id < 2000; id++) store.change(id, () => item(id, id % 2 ? large : 'small'))
  const pieces: string[] = []
  for await (const piece of (await store.select({})).list as Readable) pieces.push(String(piece))
  t.same(JSON.parse(pieces.join('')).map(({ id, name }: Item) => [id, name.length]), Array.from({ length: 2000 }, (_, id) => [id, id % 2 ? 20_000 : 5]))
  t.ok(pieces.every(({ length }) => length < 200_000), `the largest of ${pieces.length} pieces has ${Math.max(...pieces.map(({ length }) => length))} characters`)
})

test('appending, finding and removing do not slow down as the collection grows', async t => {
  for (const [ids, idOf] of Object.entries({ unique: (n: number) => n, equal: () => 1 })) {
    const store = empty()
    const small = spend(1000)
    const large = spend(100_000)
    t.ok(large < small * 20, `${ids} ids: ${large / small} times as long for an operation among 100 times the records`)

    /** Fills the store up to this size and gives the least time that a round of operations took there. */
    function spend (size: number) {
      for (let n = 0; n < size; n++) store.append(item(idOf(n), 'x'))
      return Math.min(...Array.from({ length: 20 }, () => {
        const took = cpuTime()
        for (let n = 0; n < 1000; n++) {
          const id = idOf(size - 1 - n)
          store.append(item(id, 'y'))
          store.first(id)
          store.change(id, () => undefined)
        }
        return took()
      }))
    }
  }
})

test('in memory, a page costs the same at the start and at the end of a million', async t => {
  const store = empty()
  for (let id = 0; id < 1_000_000; id++) store.append({ id, name: `number ${id}`, price: 1 })
  let position: string | undefined
  for (let n = 0; n < 999; n++) position = (await store.select({ limit: 1000, after: position })).next
  const spend = (after?: string) => Math.min(...Array.from({ length: 50 }, () => {
    const took = cpuTime()
    store.select({ limit: 100, after })
    return took()
  }))
  spend()
  const [first, last] = [spend(), spend(position)]
  t.ok(last < first * 3, `${last / first} times as long at the end`)
})

test('all calls that wait for an unavailable database fail, however many there are', async t => {
  const call = batch(async (_inputs: number[]): Promise<number[]> => { throw new StoreUnavailableError(new Error('gone')) })
  const outcomes = await Promise.allSettled(Array.from({ length: 200_000 }, (_, n) => call(n)))
  t.ok(outcomes.every(({ status }) => status === 'rejected'))
})
