import fc from 'fast-check'
import { Sample, storeTests } from './shared.js'
import { onEveryEngine } from '../support/engines.js'
import type { JsonStore } from '../../plugins/stores/store.js'
import { all, define, openStore, openStores, outcomes, textOf, type Any } from '../support/stores.js'

const string = { type: 'string' }
const integer = { type: 'integer' }
const members = define('members', { email: string, boss: integer }, [], { unique: ['email'], references: { boss: 'members' } })
const loans = define('loans', { member: integer, code: string }, ['member'], { unique: ['code'], references: { member: 'members' } })
const record = (fields: object) => fields as Any

onEveryEngine((t, address) => {
  storeTests({
    test: (name, run) => t.test(name, run),
    hasFilters: true,
    open: seed => openStore<Sample>(t, address(), { name: 'things', schema: Sample, seed, filters: ['name', 'price', 'note'] })
  })

  async function open () {
    const { store } = await openStores(t, address(), [members, loans])
    return { members: store('members'), loans: store('loans') }
  }

  t.test('calls that arrive together are decided in order, and a fault of one fails this one alone', async t => {
    const { members, loans } = await open()
    t.same(await outcomes([
      () => members.append(record({ email: 'a' })),
      () => members.append(record({ email: 'a' })),
      () => members.append(record({ email: 'b', boss: 9 })),
      () => members.append(record({ email: 'b', boss: 1 })),
      () => members.append([record({ email: 'c' }), record({ email: 'b' })]),
      () => members.append(record({ email: 'c' })),
      () => members.append(record({ email: 'x\0' }))
    ]), [
      { id: 1, email: 'a' }, 'ERR_CONFLICT /email', 'ERR_CONFLICT /boss', { id: 2, email: 'b', boss: 1 },
      'ERR_CONFLICT /1/email', { id: 3, email: 'c' }, 'ERR_NOT_STORABLE /email'
    ])
    t.same(await outcomes([
      () => loans.append(record({ member: 9, code: 'x' })),
      () => loans.append(record({ member: 1, code: 'x' }))
    ]), ['ERR_CONFLICT /member', { id: 1, member: 1, code: 'x' }], 'the other one has the same unique value')
  })

  t.test('the records of an array refer to each other in any order', async t => {
    const tree = define('tree', { parent: integer }, [], { idSource: 'client', unique: ['id'], references: { parent: 'tree' } })
    const { store } = await openStores(t, address(), [tree])
    const records = [{ id: 5, parent: 7 }, { id: 6, parent: 5 }, { id: 7, parent: 7 }]
    t.same(await outcomes([() => store('tree').append(records)]), [records])
    t.same(await outcomes([() => store('tree').append([{ id: 8, parent: 9 }, { id: 10, parent: 8 }])]), ['ERR_CONFLICT /0/parent'])
  })

  t.test('changes that arrive together see what those before them have done', async t => {
    const { members, loans } = await open()
    await members.append(['a', 'b', 'c'].map(email => record({ email })))
    const set = (id: number, fields: object) => () => members.change(id, current => ({ ...current, ...fields }))
    const remove = (id: number) => () => members.change(id, () => undefined)
    t.same(await outcomes([set(1, { email: 'x' }), set(2, { email: 'a' }), set(3, { email: 'a' }), set(1, { email: 'c' })]),
      [{ id: 1, email: 'x' }, { id: 2, email: 'a' }, 'ERR_CONFLICT /email', 'ERR_CONFLICT /email'])
    t.same(await outcomes([set(2, { boss: 1 }), remove(1), set(2, { boss: undefined }), set(3, { boss: 2 }), remove(3), remove(2), remove(2)]), [
      { id: 2, email: 'a', boss: 1 }, 'ERR_CONFLICT', { id: 2, email: 'a' }, { id: 3, email: 'c', boss: 2 },
      { id: 3, email: 'c', boss: 2 }, { id: 2, email: 'a' }, undefined
    ])
    await loans.append(record({ member: 1 }))
    t.same(await outcomes([remove(1), set(1, { boss: 1 })]), ['ERR_CONFLICT', { id: 1, email: 'x', boss: 1 }])
    await t.rejects(async () => members.change(1, () => ({ id: 2 })), { message: 'A change cannot give a record another id' })
  })

  t.test('a change fails with what it throws, whatever that is', async t => {
    const { members } = await open()
    await members.append(record({ email: 'a' }))
    const thrown = [{ statusCode: 409 }, 'refused', undefined, new Error('no')]
    const settled = await Promise.allSettled(thrown.map(async value => members.change(1, () => { throw value })))
    t.same(settled.map(outcome => outcome.status === 'rejected' && outcome.reason), thrown)
  })

  t.test('of simultaneous changes with one condition, at most one wins', async t => {
    const { members } = await open()
    await members.append(record({ email: '0' }))
    for (let round = 0; round < 20; round++) {
      const won = await Promise.allSettled(Array.from({ length: 10 }, async (_, n) => members.change(1, current => {
        if (current.email !== String(round)) throw new Error('412')
        return record({ id: 1, email: String(round + 1), boss: n % 2 ? 1 : undefined })
      })))
      t.equal(won.filter(({ status }) => status === 'fulfilled').length, 1)
    }
  })

  t.test('a key answers with the first response, also after a change, and for other records with an error', async t => {
    const { members } = await open()
    const append = (email: string, name: string) => members.append({ email }, { key: name, digest: email })
    const first = await append('a', 'k')
    await members.change(1, () => record({ id: 1, email: 'b' }))
    t.equal(await append('a', 'k'), first)
    await members.change(1, () => undefined)
    t.equal(await append('a', 'k'), first)
    const many = await members.append([{ email: 'c' }], { key: 'many', digest: 'c' })
    t.equal(await members.append([{ email: 'c' }], { key: 'many', digest: 'c' }), many)
    t.same(await outcomes([
      () => append('x', 'k'), () => append('d', 'many'), () => append('c', 'l'), () => append('d', 'l'), () => append('d', 'l')
    ]), ['ERR_IDEMPOTENCY_KEY_REUSED', 'ERR_IDEMPOTENCY_KEY_REUSED', 'ERR_CONFLICT /email', { id: 3, email: 'd' }, { id: 3, email: 'd' }])
    await members.append(record({ email: 'e' }), { key: 'digested', digest: 'a digest' })
    t.same(await outcomes([() => members.append(record({ email: 'f' }), { key: 'digested', digest: 'a digest' })]), [{ id: 4, email: 'e' }], 'the digest is that of the request')
  })

  t.test('ids end at their maximum, and those of clients can be generated from', async t => {
    const few = define('few', { id: { type: 'integer', minimum: 3, maximum: 6 } }, [], { seed: [{ id: 4 }] })
    const { store } = await openStores(t, address(), [few])
    t.same(await outcomes([() => store('few').append([record({}), record({}), record({})]), () => store('few').append(record({})), () => store('few').append(record({})), () => store('few').append(record({}))]),
      ['ERR_NO_ID_LEFT', { id: 5 }, { id: 6 }, 'ERR_NO_ID_LEFT'])
  })

  t.test('any JSON is returned as it was stored, byte for byte', async t => {
    const anything = define('anything', { text: string, number: { type: 'number' }, any: {} }, [], { filters: ['number'] })
    const { store } = await openStores(t, address(), [anything])
    const texts = ['\0', '\u{10ffff}', '\ufffd\uffff', '"\\\n\u2028', "it's", '💥'.repeat(1000), '\u0001']
    const numbers = [0, -0, 5e-324, -5e-324, 1.7976931348623157e308, 2 ** 53 - 1, 1 - 2 ** 53, 0.1, 1e21]
    const values = [...texts.map(text => ({ text })), ...numbers.map(number => ({ number })), ...[null, [], {}, { a: { b: [1, [null]] } }, true].map(any => ({ any }))]
    const stored = await Promise.all(values.map(value => store('anything').append(record(value))))
    t.same(stored, values.map((value, n) => JSON.stringify({ id: n + 1, ...value })))
    t.equal(await textOf(await store('anything').select({})), `[${stored}]`)
    await fc.assert(fc.asyncProperty(fc.jsonValue(), async any => {
      const json = await store('anything').append(record({ any }))
      t.equal(json, JSON.stringify({ id: JSON.parse(json).id, any }))
      t.equal(await store('anything').first(JSON.parse(json).id), json)
    }), { numRuns: 50 })
  })

  t.test('a long list is a stream, and a long page has its cursor', async t => {
    const { store } = await openStores(t, address(), [define('notes', { n: integer, text: string }, [], { filters: ['n'] })])
    const notes = store('notes')
    const records = Array.from({ length: 4000 }, (_, n) => record({ ...n % 3 && { n: n % 7 }, text: 'x'.repeat(n % 1000) }))
    for (let n = 0; n < 4; n++) await notes.append(records.slice(n * 1000, n * 1000 + 1000))
    const whole = await notes.select({})
    t.not(typeof whole.list, 'string')
    const list: Any[] = JSON.parse(await textOf(whole))
    t.same(list.map(({ id }) => id), Array.from({ length: 4000 }, (_, n) => n + 1))
    const order = (n: unknown) => Number(n ?? -1)
    for (const sort of [undefined, 'n', '-n']) {
      const sign = sort === '-n' ? -1 : 1
      const expected = [...list].sort((one, other) => sort ? sign * (order(one.n) - order(other.n) || one.id - other.id) : one.id - other.id)
      const ids: number[] = []
      for (let after: string | undefined, isFirst = true; isFirst || after; isFirst = false) {
        const page = await notes.select({ limit: 3000, after, sort } as object)
        ids.push(...JSON.parse(await textOf(page)).map(({ id }: Any) => id))
        after = page.next
      }
      t.ok(JSON.stringify(ids) === JSON.stringify(expected.map(({ id }) => id)), String(sort))
    }
  })

  t.test('random calls have the outcomes of a model', async t => {
    const { store } = await openStores(t, address(), [members])
    const id = fc.integer({ min: 1, max: 12 })
    const fields = fc.record({ email: fc.constantFrom('a', 'b', 'c', 'd'), boss: id }, { requiredKeys: [] })
    const call = fc.record({ kind: fc.constantFrom('append', 'replace', 'remove'), id, fields })
    const model = newModel()
    await fc.assert(fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: 8 }), async calls => {
      for (const { kind, id, fields } of calls) {
        const [actual] = await outcomes([() => run(store('members'), kind, id, fields)])
        t.same(actual, model.run(kind, id, fields), `${kind} ${id} ${JSON.stringify(fields)}`)
      }
      t.same(await all(store('members')), model.records)
    }), { numRuns: 40, seed: 5 })
  })
})

function run (store: JsonStore, kind: string, id: number, fields: object) {
  if (kind === 'append') return store.append(record(fields))
  return store.change(id, () => kind === 'remove' ? undefined : record({ id, ...fields }))
}

/** The rules of members, as simple as possible. */
function newModel () {
  const records: Any[] = []
  let lastId = 0
  return { records, run }

  function run (kind: string, id: number, { email, boss }: { email?: string, boss?: number }): unknown {
    const place = records.findIndex(other => other.id === id)
    if (kind !== 'append' && place < 0) return undefined
    if (kind === 'remove') {
      if (records.some(other => other.boss === id && other.id !== id)) return 'ERR_CONFLICT'
      return records.splice(place, 1)[0]
    }
    const own = kind === 'append' ? lastId + 1 : id
    const others = records.filter(other => other.id !== own)
    const isMissing = boss !== undefined && boss !== own && !others.some(other => other.id === boss)
    const isTaken = email !== undefined && others.some(other => other.email === email)
    if (isMissing || isTaken) return `ERR_CONFLICT${isMissing ? ' /boss' : ''}${isTaken ? ' /email' : ''}`
    const stored = { id: own, ...email !== undefined && { email }, ...boss !== undefined && { boss } }
    if (kind === 'append') records.push(stored)
    else records[place] = stored
    lastId = Math.max(lastId, own)
    return stored
  }
}
