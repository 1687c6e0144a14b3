import { createRequire } from 'node:module'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setImmediate } from 'node:timers/promises'
import { runInNewContext } from 'node:vm'
import { Type, type Static } from '@sinclair/typebox'
import { test } from 'tap'
import { again, batch, limited } from '../../plugins/stores/batch.js'
import { openEngine } from '../../plugins/stores.js'
import { loadOptional } from '../../plugins/startup.js'
import { memoryKeys, oneCallPerKey } from '../../plugins/stores/idempotency.js'
import { memory } from '../../plugins/stores/memory/store.js'
import { IdempotencyKeyInUseError, StoreUnavailableError } from '../../plugins/stores/errors.js'
import type { List, Store } from '../../plugins/stores/store.js'
import { Id } from '../../schemas/fields.js'
import { Item } from '../../schemas/item.js'
import { Sample, storeTests } from '../../src/store-tests.js'
import { onEveryEngine, opened, patient } from '../support/engines.js'

const item = (id: number, name: string): Item => ({ id, name, price: id / 3 })

async function read (list: List) {
  return text(Readable.from(list))
}

onEveryEngine((t, address) => {
  async function open (seed: Sample[], filters?: string[]) {
    const engine = await openEngine(address(), patient)
    t.teardown(engine.close)
    return opened<Sample>(engine, { name: 'things', schema: Sample, seed, ...filters && { filters } })
  }

  storeTests({ test: (name, run) => t.test(name, async t => t.resolves(run())), open: seed => open(seed, ['name', 'price', 'note']), hasFilters: true })

  t.test('a change fails with what it throws, whatever that is, and others in its batch do not', async t => {
    const store = await open([item(1, 'a'), item(2, 'b')])
    const thrown = [{ statusCode: 409 }, 'refused', undefined, runInNewContext('new Error()'), new StoreUnavailableError()]
    const outcomes = await Promise.allSettled([...thrown.map(async value => store.change(1, () => { throw value })), store.change(2, () => item(2, 'c'))])
    t.same(outcomes.map(outcome => outcome.status === 'rejected' ? outcome.reason : outcome.value), [...thrown, JSON.stringify(item(2, 'c'))])
  })

  t.test('a record that JSON cannot express is an error', async t => {
    const engine = await openEngine(address(), patient)
    t.teardown(engine.close)
    const schema = Type.Object({ id: Id, any: Type.Any() })
    const store = await opened<Static<typeof schema>>(engine, { name: 'things', schema, seed: [] })
    for (const key of [undefined, 'key']) await t.rejects(async () => store.append({ id: 1, any: 5n }, key), TypeError)
    await t.rejects(async () => store.appendAll([{ id: 1, any: 5n }]), TypeError)
    t.equal(await store.count({}), 0)
  })

  t.test('a list equals the serialized records, in one piece or as a stream', async t => {
    const model: Sample[] = []
    const store = await open(model)
    for (const size of [0, 1, 2, 999, 1000, 1001, 2000, 20_000]) {
      const more = Array.from({ length: size - model.length }, (_, n) => item(model.length + n, `Zoë "${n}"\n🫖`))
      model.push(...more)
      await Promise.all(more.map(record => store.append(record)))
      t.ok(await read((await store.select({})).list) === JSON.stringify(model), `${size} records`)
    }
    const large = [200_000, 64 * 1024, 64 * 1024 - 64, 1, 1_000_000].map((length, n) => item(-n, 'x'.repeat(length)))
    await Promise.all(large.map(record => store.append(record)))
    t.equal(await store.first(-1), JSON.stringify(large[1]))
    await store.change(0, () => item(0, 'x'.repeat(70_000)))
    model[0] = item(0, 'x'.repeat(70_000))
    t.ok(await read((await store.select({})).list) === JSON.stringify([...model, ...large]))
  })
})

test('in memory, a list is built once between two changes, and is a stream if it is long', async t => {
  const store = memory<Item>({ schema: Item, seed: [] })
  for (const [size, kind] of [[0, 'string'], [2, 'string'], [500, Buffer], [5000, Buffer], [50_000, Readable]] as const) {
    for (let n = 0; n < size; n++) store.append(item(n, 'x'))
    const list = (await store.select({})).list
    t.type(list, kind)
    if (!(list instanceof Readable)) t.equal((await store.select({})).list, list, 'built once')
  }
})

const minimal = (seed: Sample[]): Store<Sample> => {
  const { version, count, append, appendAll, ...store } = memory<Sample>({ schema: Sample, seed })
  const inUse = new Set<string>()
  return {
    ...store,
    async append (record, key = '') {
      if (inUse.has(key) && key) throw new IdempotencyKeyInUseError()
      inUse.add(key)
      await setImmediate()
      inUse.delete(key)
      return append(record, key || undefined)
    }
  }
}

test('a store without optional methods, which refuses a key that is in use', async t => {
  storeTests({ test: (name, run) => t.test(name, async t => t.resolves(run())), open: minimal })
})

test('calls with one key and one record are one call, and calls with other records wait for each other', async t => {
  let [calls, atOnce, mostAtOnce] = [0, 0, 0]
  let outcome: () => string = () => 'created'
  const { append } = oneCallPerKey<Sample>(({ records }) => JSON.stringify(records), async () => {
    calls++
    mostAtOnce = Math.max(mostAtOnce, ++atOnce)
    await setImmediate()
    atOnce--
    return [outcome()]
  })
  const codesOf = async (names: string[]) => (await Promise.allSettled(names.map(name => append({ id: 1, name, price: 1 }, 'key'))))
    .map(result => result.status === 'fulfilled' ? result.value : result.reason.code ?? result.reason.message)
  t.same(new Set(await codesOf(Array(1500).fill('a'))), new Set(['created']))
  t.equal(calls, 1)
  t.same(await codesOf(['a', 'a', 'b', 'b', 'a']), ['created', 'created', 'ERR_IDEMPOTENCY_KEY_REUSED', 'ERR_IDEMPOTENCY_KEY_REUSED', 'created'])
  t.same([calls, mostAtOnce], [3, 1], 'the last one asks again what the key has created')
  outcome = () => { throw new Error('rejected') }
  t.same(await codesOf(['a', 'b', 'c']), ['rejected', 'rejected', 'rejected'])
  t.same([calls, mostAtOnce], [6, 1])
  outcome = () => { throw new StoreUnavailableError() }
  t.same(await codesOf(['a', 'a', 'b', 'c']), ['ERR_STORE_UNAVAILABLE', 'ERR_STORE_UNAVAILABLE', 'ERR_IDEMPOTENCY_KEY_IN_USE', 'ERR_IDEMPOTENCY_KEY_IN_USE'])
  t.equal(calls, 7)
})

test('a call that is too large has a batch of its own, and calls keep their order', async t => {
  const batches: number[][] = []
  const call = batch(async (sizes: number[]) => { batches.push(sizes); return sizes }, { sizeOf: size => size })
  await Promise.all([1, 2, Infinity, 3, Infinity, Infinity, 4, 5].map(call))
  t.same(batches, [[1, 2], [Infinity], [3], [Infinity], [Infinity], [4, 5]])
})

test('a call that has waited too long for others is not made', async t => {
  const whenFree = limited(1, -1)
  await t.rejects(whenFree(async () => t.fail()), { code: 'ERR_STORE_UNAVAILABLE' })
  const inTime = limited(2, 60_000)
  let [running, most] = [0, 0]
  const results = await Promise.all(Array.from({ length: 10 }, (_, n) => inTime(async () => {
    most = Math.max(most, ++running)
    await setImmediate()
    running--
    return n
  })))
  t.same([most, results], [2, Array.from({ length: 10 }, (_, n) => n)])
})

test('the number of keys in memory is limited, and the oldest are removed first', async t => {
  const keys = memoryKeys()
  for (let n = 0; n < 20_001; n++) keys.set(String(n), { digest: '', id: n })
  t.equal(keys.get('0'), undefined)
  t.equal(keys.get('1')?.id, 1)
  t.equal(keys.get('20000')?.id, 20_000)
})

test('calls that must be repeated stay in order, and calls with other keys do not wait for them', async t => {
  const made: string[] = []
  let isHeld = true
  const call = batch(async (names: string[]) => names.map(name => isHeld && name.startsWith('held') ? again : made.push(name)), { keyOf: name => name.split(' ')[0] })
  const names = Array.from({ length: 200 }, (_, n) => `held ${n}`)
  const first = names.slice(0, 150).map(call)
  for (let n = 0; n < 20; n++) await setImmediate() // until all of them wait
  for (let n = 0; n < 20; n++) t.equal(await call(`other ${n}`), n + 1)
  const next = names.slice(150).map(call)
  await call('other')
  isHeld = false
  await Promise.all([...first, ...next])
  t.same(made.slice(21), names)
})

test('a missing package is named, and other errors while loading one are not hidden', async t => {
  const require = createRequire(import.meta.url)
  const name = 'not-installed'
  await t.rejects(loadOptional(name, 'store', async () => require(name)), {
    message: 'The option store needs the package not-installed, which is not installed. Run: npm install not-installed'
  })
  await t.rejects(loadOptional('broken', 'store', async () => { throw new Error('broken') }), { message: 'broken' })
})
