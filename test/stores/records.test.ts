import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { Type, type Static } from '@sinclair/typebox'
import fc from 'fast-check'
import { test, type Test } from 'tap'
import { openEngine } from '../../plugins/stores.js'
import { NoIdLeftError, NotStorableError } from '../../plugins/stores/errors.js'
import { encoderOf } from '../../plugins/stores/fields.js'
import { nextId, type Page, type Store } from '../../plugins/stores/store.js'
import { Id } from '../../schemas/fields.js'
import { Item } from '../../schemas/item.js'
import { onEveryEngine, opened, patient } from '../support/engines.js'
import { build } from '../support/helper.js'
import { runSql } from '../support/sql.js'

const largest = Number.MAX_SAFE_INTEGER
const idOf = (json: string): number => JSON.parse(json).id

/** A record with every type of JSON, and fields whose names need care. */
const sampleSchema = Type.Object({
  note: Type.Optional(Type.String({ default: 'none', format: 'date' })),
  id: Id,
  text: Type.String(),
  number: Type.Number(),
  integer: Type.Integer(),
  small: Type.Optional(Type.Integer({ minimum: -10, maximum: 10 })),
  flag: Type.Boolean(),
  sold: Type.Optional(Type.Boolean()),
  weight: Type.Optional(Type.Number()),
  colour: Type.Union([Type.Literal('red'), Type.Literal('green')]),
  nothing: Type.Null(),
  nullable: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  empty: Type.Optional(Type.Unsafe<string | null>({ type: 'string', nullable: true })),
  either: Type.Optional(Type.Union([Type.String(), Type.Number(), Type.Boolean()])),
  list: Type.Array(Type.Unknown()),
  nested: Type.Object({ z: Type.Optional(Type.Unknown()), a: Type.Object({ b: Type.Array(Type.Boolean()) }) }),
  place: Type.Optional(Type.Record(Type.String(), Type.Number())),
  'a "name", 1st': Type.Optional(Type.String())
})
type Sample = Static<typeof sampleSchema>

const full: Sample = {
  id: 1,
  text: 'Zoë "x" \\ \n \u2028 🫖',
  number: 5e-324,
  integer: largest,
  small: -10,
  flag: true,
  sold: false,
  weight: -0,
  colour: 'red',
  nothing: null,
  nullable: null,
  empty: null,
  either: '5',
  list: [1e21, -0, 'null', null, '\0 \ud800', { __proto__: null, 10: 1, 9: 2 }],
  nested: { a: { b: [true, false] }, z: {} },
  place: { b: 1, a: 2 },
  'a "name", 1st': '',
  note: 'x'.repeat(6000)
}
const small: Sample = {
  id: 2, text: '', number: 1.5, integer: -largest, flag: false, colour: 'green', nothing: null, list: [], nested: { a: { b: [] } }
}
const number = fc.double({ noNaN: true, noDefaultInfinity: true })
const string = fc.string({ unit: 'grapheme', maxLength: 60 }).map(value => value.replaceAll('\0', ''))
const json = fc.jsonValue({ stringUnit: 'binary', maxDepth: 2 })
const generated = fc.sample(fc.record<Sample>({
  note: string,
  id: fc.integer({ min: 3 }),
  text: string,
  number,
  integer: fc.maxSafeInteger(),
  small: fc.integer({ min: -10, max: 10 }),
  flag: fc.boolean(),
  sold: fc.boolean(),
  weight: number,
  colour: fc.constantFrom('red', 'green'),
  nothing: fc.constant(null),
  nullable: fc.option(string),
  empty: fc.option(string),
  either: fc.oneof(string, number, fc.boolean()),
  list: fc.array(json, { maxLength: 4 }),
  nested: fc.record({ z: json, a: fc.record({ b: fc.array(fc.boolean(), { maxLength: 3 }) }) }, { requiredKeys: ['a'] }),
  place: fc.dictionary(string, number, { maxKeys: 3 }),
  'a "name", 1st': string
}, { requiredKeys: ['id', 'text', 'number', 'integer', 'flag', 'colour', 'nothing', 'list', 'nested'] }), { numRuns: 300, seed: 1 })
const samples = [full, small, ...generated]

/** What `JSON.stringify` gives for the fields of the schema, in their order. */
function expected (record: object) {
  return JSON.stringify(Object.fromEntries(Object.keys(sampleSchema.properties).map(name => [name, record[name as keyof typeof record]])))
}

onEveryEngine((t, address, name) => {
  async function open (t: Test, url = address()) {
    const engine = await openEngine(url, patient)
    t.teardown(engine.close)
    return opened<Item>(engine, { name: 'things', schema: Item, seed: [] })
  }

  t.test('generated ids are unique, whatever ids clients have chosen', async t => {
    const fields = { name: 'x', price: 1 }
    for (const [chosen, expected] of [
      [[2 ** 52], [2 ** 52 + 1, 2 ** 52 + 2, 2 ** 52 + 3]],
      [[2 ** 52 - 1, 2 ** 52 + 1, 2 ** 52 + 2, largest], [2 ** 52, 2 ** 52 + 3, 2 ** 52 + 4]],
      [[40, 2 ** 52 + 1, largest, -largest], [41, 42, 43]],
      [[-5, -largest], [1, 2, 3]]
    ] as const) {
      const store = await open(t)
      for (const id of chosen) await store.append({ id, ...fields })
      const generated = [await store.append(fields), ...await Promise.all([store.append(fields), store.append(fields, 'key')])]
      t.same(generated.map(idOf).sort((a, b) => a - b), expected)
    }
    const store = await open(t)
    const ids: number[] = []
    for (let n = 0; n < 50; n++) {
      const id = idOf(await store.append(fields))
      ids.push(id)
      if (n % 3 === 0) await store.append({ id: id + 1, ...fields })
      if (n % 5 === 0) await store.change(id, () => undefined)
    }
    t.equal(new Set(ids).size, ids.length)
  })

  t.test('a record with optional fields and every JSON type is returned unchanged', async t => {
    const url = address()
    const collection = { name: 'samples', schema: sampleSchema, seed: [full] }
    const engine = await openEngine(url, patient)
    const store = await opened<Sample>(engine, collection)
    const { id, ...fields } = small
    const answers = await Promise.all(samples.slice(1).map(record => store.append(record)))
    t.same(answers.findIndex((answer, n) => answer !== expected(samples[n + 1] ?? {})), -1)
    const added = JSON.parse(await store.append(fields, 'key'))
    t.equal(await store.append(fields, 'key'), expected({ ...small, id: added.id }))
    await isAsSent(store)
    if (name === 'memory') return engine.close()
    await engine.close()
    const again = await openEngine(url, patient)
    await isAsSent(await opened<Sample>(again, collection))
    await again.close()

    async function isAsSent (store: Store<Sample>) {
      const all = [...samples, { ...small, id: added.id }]
      const first = (id: number) => all.find(record => record.id === id) ?? {}
      t.ok(await text(Readable.from((await store.select({})).list)) === `[${all.map(expected)}]`, 'the list')
      for (const { id } of all) t.ok(await store.first(id) === expected(first(id)), `the record ${id}`)
      const pages: string[] = []
      for (let page: Page | undefined, next: string | undefined; !page || next !== undefined;) {
        page = await store.select({ limit: 50, after: next })
        pages.push((await text(Readable.from(page.list))).slice(1, -1))
        next = page.next
      }
      t.ok(`[${pages}]` === `[${all.map(expected)}]`, 'the pages')
    }
  })

  if (name === 'memory') return

  t.test('the columns of every type can be queried', async t => {
    const url = address()
    const engine = await openEngine(url, patient)
    t.teardown(engine.close)
    await opened<Sample>(engine, { name: 'samples', schema: sampleSchema, seed: [full, small] })
    const rows = await runSql(url, `
      select text, list, "a ""name"", 1st" as name from samples
      where flag and not sold and colour = 'red' and small = -10 and nullable = 'null' and note is not null
      union all select text, list, note from samples where not flag and sold is null and nullable is null`)
    t.same(rows, [{ text: full.text, list: JSON.stringify(full.list), name: '' }, { text: '', list: '[]', name: null }])
  })

  t.test('a string that the database cannot store is rejected, and its field is named', async t => {
    const engine = await openEngine(address(), patient)
    t.teardown(engine.close)
    const store = await opened<Sample>(engine, { name: 'samples', schema: sampleSchema, seed: [] })
    for (const [value, message] of [
      ['a\0b', 'must not contain the character NUL, which the database cannot store'],
      ['a\ud800', 'must be well-formed Unicode text']
    ] as const) {
      await t.rejects(async () => store.append({ ...small, text: value }), new NotStorableError('/text', message))
      await t.rejects(async () => store.append({ ...small, note: value }), new NotStorableError('/note', message))
    }
    t.equal(await store.count({}), 0)
  })

  t.test('when no more ids can be generated, POST answers 503, and records with ids can still be created', async t => {
    const url = address()
    const client = build(t, { DATABASE_URL: url })
    const app = build(t, { DATABASE_URL: url, ID_SOURCE: 'server' })
    await Promise.all([client.ready(), app.ready()])
    await runSql(url, `update last_ids set id = ${largest - 3}`)
    await client.inject({ method: 'POST', url: '/api/users', payload: { id: largest - 1, name: 'x' } })
    const post = (key?: string) => app.inject({
      method: 'POST', url: '/api/users', payload: { name: 'x' }, headers: key === undefined ? {} : { 'idempotency-key': key }
    })
    const answers = [...await Promise.all([post(), post(), post()]), await post('key')]
    t.same(answers.filter(({ statusCode }) => statusCode === 201).map(response => response.json().id), [largest - 2, largest])
    const refused = answers.filter(({ statusCode }) => statusCode !== 201)
    t.same(refused.map(({ statusCode, body }) => [statusCode, body]), Array(2).fill([503, '{"detail":"No more ids can be generated"}']))
    t.equal((await client.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name: 'x' } })).statusCode, 201)
    t.equal((await client.inject('/api/users')).json().length, 5)
  })
})

test('the next id is the first one that no record has, up to 2^53 - 1', async t => {
  t.equal(nextId(0, () => false), 1)
  t.equal(nextId(largest - 2, id => id < largest), largest)
  t.equal(nextId(0, id => [1, 3, 6].includes(id), largest, 2), 4)
  t.throws(() => nextId(0, id => [1, 3, 6].includes(id), 7, 3), new NoIdLeftError())
  t.throws(() => nextId(largest - 2, () => true), new NoIdLeftError())
  t.throws(() => nextId(largest, () => false), new NoIdLeftError())
})

test('a record is encoded as JSON.stringify encodes its fields, in the order of the schema', async t => {
  const encode = encoderOf(sampleSchema)
  t.equal(samples.find(record => encode({ extra: 1, ...record }) !== expected(record)), undefined)
  for (const value of [-0, 1e21, 5e-324, 2 ** 53 - 1, -(2 ** 60), 1e300, 1.7976931348623157e308, 0.1 + 0.2]) {
    t.equal(encode({ number: value, integer: Math.trunc(value) }), JSON.stringify({ number: value, integer: Math.trunc(value) }))
  }
  const characters = Array.from({ length: 0x10000 }, (_, code) => String.fromCharCode(code))
  const differs = (text: string) => encode({ text }) !== JSON.stringify({ text })
  t.same(characters.filter(character => differs(character) || differs(`x${character}`.repeat(30))).slice(0, 5), [])
  t.equal(encode({}), '{}')
})
