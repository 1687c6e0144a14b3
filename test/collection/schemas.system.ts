import { mock } from 'node:test'
import { writeFileSync } from 'node:fs'
import { test, type Test } from 'tap'
import { onDatabases } from '../support/databases.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'

/** A definition with these fields and keywords. */
function definition (properties: object, more: object = {}, options: object = {}) {
  return {
    schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, ...properties }, ...more },
    ...options
  }
}

/** An app with these collections. */
async function serve (t: Test, DATABASE_URL: string, collections: object, DOCS = 'true') {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify(collections))
  const app = build(t, { DATABASE_URL, COLLECTIONS_FILE: file, DOCS })
  await app.ready()
  const send = (method: 'GET' | 'POST' | 'PUT' | 'DELETE', url: string, payload?: object) =>
    app.inject({ method, url, payload })
  return { app, send, create: (name: string, payload: object) => send('POST', `/api/${name}`, payload) }
}

onEveryEngine((t, address) => {
  t.test('the ids of deleted seed records are not used again', async t => {
    const { send, create } = await serve(t, address(),
      { notes: definition({}, {}, { seed: [{ id: 3 }, { id: 7 }, { id: 2 ** 52 + 1 }] }) })
    t.equal((await send('DELETE', '/api/notes/7')).statusCode, 204)
    t.equal((await create('notes', {})).json().id, 8)
  })

  t.test('generated ids follow minimum and maximum', async t => {
    const { send, create } = await serve(t, address(),
      {
        notes: definition({ id: { type: 'integer', minimum: 999.5, maximum: 1001 } }),
        old: definition({ id: { type: 'integer', minimum: -5 } })
      })
    t.same([(await create('notes', {})).json(), (await create('notes', {})).json(), (await create('old', {})).json()],
      [{ id: 1000 }, { id: 1001 }, { id: 1 }])
    const full = await create('notes', {})
    t.same([full.statusCode, typeof full.json().detail], [503, 'string'])
    t.same((await send('GET', '/api/notes')).json(), [{ id: 1000 }, { id: 1001 }])
  })

  t.test('collections can have the names that databases give to tables and indexes', async t => {
    const names = [
      'orders', 'orders_pkey', 'orders_key', 'orders_by_id', 'orders_update', 'orders_position_seq',
      'orders_id_position_idx', 'sqlite', 'order', 'select', 'changes', 'key', 'a'.repeat(48)
    ]
    const { send, create } = await serve(t, address(),
      Object.fromEntries(names.map((name, n) => [name, definition({}, { title: `Record${n}` })])))
    for (const name of names) {
      t.equal((await create(name, {})).statusCode, 201, name)
      t.same((await send('GET', `/api/${name}`)).json(), [{ id: 1 }], name)
    }
  })

  t.test('fields can have any names', async t => {
    const names = [
      '"id"', "'", '"', 'ID2', '日本', '日'.repeat(21), 'order', 'select', 'changes', 'key', 'collection', 'digest', 'at',
      'place', 'found', 'asked', 'given', 't', 'last', 'size', 'sizes', 'set_config', '_given', '_lock', 'a/b', '~',
      '$1', '?', '%s', '\\', ' '
    ]
    const fields = Object.fromEntries(names.map(name => [name, { type: 'string' }]))
    const { id, ...others } = definition(fields).schema.properties
    const { send, create } = await serve(t, address(),
      { notes: { schema: { type: 'object', required: ['id'], properties: { ...others, id } } } })
    const record = Object.fromEntries(names.map((name, n) => [name, `${n}`]))
    t.same((await create('notes', record)).json(), { ...record, id: 1 })
    const other = Object.fromEntries(names.map(name => [name, name]))
    t.same((await send('PUT', '/api/notes/1', other)).json(), { ...other, id: 1 })
    t.equal((await send('GET', '/api/notes')).body, JSON.stringify([{ ...other, id: 1 }]))
  })

  t.test('an enumeration can have values of several types, and the character NUL', async t => {
    const { create } = await serve(t, address(), {
      mixed: definition({
        text: { type: 'string', enum: ['a', 1] },
        count: { type: 'integer', enum: [1, 'a'] },
        any: { enum: ['a', 1, null] },
        nul: { type: 'string', enum: ['a', '\0'] },
        flag: { type: 'boolean', enum: [true] }
      })
    })
    const record = { text: 'a', count: 1, any: null, nul: 'a', flag: true }
    t.same((await create('mixed', record)).json(), { id: 1, ...record })
  })

  t.test('the id in the body of a POST is ignored, also if the schema has no other properties', async t => {
    for (const closed of [{ additionalProperties: false }, { unevaluatedProperties: false }]) {
      const { send, create } = await serve(t, address(), { notes: definition({ text: { type: 'string' } }, closed) })
      for (const id of [7, 'x', null]) t.equal((await create('notes', { id, text: 'a' })).statusCode, 201)
      t.equal((await create('notes', { other: 1 })).json().other, undefined)
      t.same((await send('PUT', '/api/notes/2', { id: 2, text: 'b' })).json(), { id: 2, text: 'b' })
      t.same((await send('GET', '/api/notes')).json(),
        [{ id: 1, text: 'a' }, { id: 2, text: 'b' }, { id: 3, text: 'a' }, { id: 4 }])
    }
  })
})

test('a schema can have 1,000 fields', async t => {
  const fields = Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`f${n}`, { type: 'string' }]))
  const { send, create } = await serve(t, 'memory', { wide: definition(fields) }, 'false')
  const record = { f0: 'first', f500: 'middle', f999: 'last' }
  t.same((await create('wide', record)).json(), { id: 1, ...record })
  t.same((await send('GET', '/api/wide?limit=5')).json(), [{ id: 1, ...record }])
})

onDatabases('the path of a text that cannot be stored is a JSON Pointer', async (t, { url }) => {
  const { create } = await serve(t, url,
    { notes: definition({ 'a/b~': { type: 'string' } }, {}, { filters: ['a/b~'] }) })
  for (const text of ['\0', 'x'.repeat(851)]) {
    t.same((await create('notes', { 'a/b~': text })).json().errors.map(({ path }: { path: string }) => path),
      ['/a~1b~0'])
  }
})

onDatabases('expired keys are removed beside keys that are used again', async (t, { url, sql }) => {
  mock.timers.enable({ apis: ['Date', 'setInterval'], now: Date.now() })
  t.teardown(() => mock.timers.reset())
  const { app } = await serve(t, url, { notes: definition({}) })
  const create = async (key: string) =>
    (await app.inject({
      method: 'POST',
      url: '/api/notes',
      payload: {},
      headers: { 'idempotency-key': key }
    })).json().id
  const keys = Array.from({ length: 1000 }, (_, n) => `reused-${n}`)
  const rows = [...keys, 'expired'].map(key => `('notes', '${key}', 'x', '{}', 5)`)
  await sql(`insert into idempotency_keys (collection, key, digest, response, at) values ${rows}`)
  const created = await Promise.all(keys.map(create))
  t.equal(new Set(created).size, 1000, 'an expired key creates another record')
  t.equal(await create('reused-7'), created[7], 'and is then valid again')
  mock.timers.tick(60_000)
  await app.close()
  t.same((await sql("select key from idempotency_keys where key = 'expired'")), [])
  t.equal(Number((await sql('select count(*) as count from idempotency_keys'))[0]?.count), 1000)
})
