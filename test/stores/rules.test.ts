import fc from 'fast-check'
import { onEveryEngine } from '../support/engines.js'
import { define, openStores, outcomes, textOf, type Any } from '../support/stores.js'

const string = { type: 'string' }
const integer = { type: 'integer' }
const members = define('members', { email: string, boss: integer }, [],
  { unique: ['email'], references: { boss: 'members' } })
const loans = define('loans', { member: integer, code: string }, ['member'],
  { unique: ['code'], references: { member: 'members' } })
const record = (fields: object) => fields as Any

onEveryEngine((t, address) => {
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

  t.test('changes that arrive together see what those before them have done', async t => {
    const { members, loans } = await open()
    await members.append(['a', 'b', 'c'].map(email => record({ email })))
    const set = (id: number, fields: object) => () => members.change(id, current => ({ ...current, ...fields }))
    const remove = (id: number) => () => members.change(id, () => undefined)
    t.same(await outcomes([
      set(1, { email: 'x' }), set(2, { email: 'a' }), set(3, { email: 'a' }), set(1, { email: 'c' })
    ]),
    [{ id: 1, email: 'x' }, { id: 2, email: 'a' }, 'ERR_CONFLICT /email', 'ERR_CONFLICT /email'])
    t.same(await outcomes([
      set(2, { boss: 1 }), remove(1), set(2, { boss: undefined }), set(3, { boss: 2 }), remove(3), remove(2), remove(2)
    ]), [
      { id: 2, email: 'a', boss: 1 }, 'ERR_CONFLICT', { id: 2, email: 'a' }, { id: 3, email: 'c', boss: 2 },
      { id: 3, email: 'c', boss: 2 }, { id: 2, email: 'a' }, undefined
    ])
    await loans.append(record({ member: 1 }))
    t.same(await outcomes([remove(1), set(1, { boss: 1 })]), ['ERR_CONFLICT', { id: 1, email: 'x', boss: 1 }])
    await t.rejects(async () => members.change(1, () => ({ id: 2 })),
      { message: 'A change cannot give a record another id' })
  })

  t.test('a change fails with what it throws, whatever that is', async t => {
    const { members } = await open()
    await members.append(record({ email: 'a' }))
    const thrown = [{ statusCode: 409 }, 'refused', undefined, new Error('no')]
    const settled = await Promise.allSettled(thrown.map(async value => members.change(1, () => { throw value })))
    t.same(settled.map(outcome => outcome.status === 'rejected' && outcome.reason), thrown)
  })

  t.test('any JSON is returned as it was stored, byte for byte', async t => {
    const anything = define('anything', { text: string, number: { type: 'number' }, any: {} }, [],
      { filters: ['number'] })
    const { store } = await openStores(t, address(), [anything])
    const texts = ['\0', '\u{10ffff}', '\ufffd\uffff', '"\\\n\u2028', "it's", '💥'.repeat(1000), '\u0001']
    const numbers = [0, -0, 5e-324, -5e-324, 1.7976931348623157e308, 2 ** 53 - 1, 1 - 2 ** 53, 0.1, 1e21]
    const values = [
      ...texts.map(text => ({ text })), ...numbers.map(number => ({ number })),
      ...[null, [], {}, { a: { b: [1, [null]] } }, true].map(any => ({ any }))
    ]
    const stored = await Promise.all(values.map(value => store('anything').append(record(value))))
    t.same(stored, values.map((value, n) => JSON.stringify({ id: n + 1, ...value })))
    t.equal(await textOf(await store('anything').select({})), `[${stored}]`)
    await fc.assert(fc.asyncProperty(fc.jsonValue(), async any => {
      const json = await store('anything').append(record({ any }))
      t.equal(json, JSON.stringify({ id: JSON.parse(json).id, any }))
      t.equal(await store('anything').first(JSON.parse(json).id), json)
    }), { numRuns: 50 })
  })
})
