import { deepEqual, rejects } from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import fc from 'fast-check'
import type { Test } from 'tap'
import { openEngine } from '../../plugins/stores.js'
import type { HasId, Store, StoreDefinition } from '../../plugins/stores/store.js'
import { literal } from '../../plugins/stores/sql/table.js'
import { schemaSql } from '../../scripts/schema-sql.js'
import { onDatabases, onPostgres } from '../support/databases.js'
import { patient } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { start as startService } from '../support/process.js'

type Fields = Record<string, object>
type Definition = StoreDefinition<HasId>

const [string, integer, number, boolean] = [{ type: 'string' }, { type: 'integer' }, { type: 'number' }, { type: 'boolean' }]
const [nullable, list] = [{ type: ['string', 'null'] }, { type: 'array', items: string }]

/** A definition of loans. The names of required fields end with an exclamation mark. */
function loans (fields: Fields, more: Partial<Definition> = {}): Definition {
  const properties = Object.entries(fields).map(([name, schema]) =>
    name.endsWith('!') ? [name.slice(0, -1), Type.Unsafe(schema)] : [name, Type.Optional(Type.Unsafe(schema))])
  return { name: 'loans', schema: Type.Object({ id: Type.Integer(), ...Object.fromEntries(properties) }), seed: [], idSource: 'client', ...more }
}

/** Starts an engine with some definitions, uses the store of the first one, and closes the engine. Returns the warnings. */
async function start (url: string, definitions: Definition | Definition[], use: (store: Required<Store<HasId>>) => unknown = () => {}) {
  const warnings: string[] = []
  const engine = await openEngine(url, { ...patient, onWarning: message => warnings.push(message) })
  try {
    const [store] = [definitions].flat().map(definition => engine.open(definition))
    await engine.start()
    if (store) await use(store)
  } finally {
    await engine.close()
  }
  return warnings
}

/** Creates loans and returns them as they are stored. */
async function create (url: string, definition: Definition, records: object[]) {
  await start(url, definition, async store => {
    for (const [n, record] of records.entries()) await store.append({ id: n + 1, ...record })
  })
  return read(url, definition)
}

async function read (url: string, definition: Definition): Promise<Record<string, unknown>[]> {
  let records: Record<string, unknown>[] = []
  await start(url, definition, async store => { records = JSON.parse(String((await store.select({})).list)) })
  return records
}

/** What needs no SQL: the fields before and after, the records of the previous schema, and what the new schema makes of them. `isTwoWay` is false if the previous definition cannot start again. */
const changes: [string, Fields, Fields, object[], object[]?, { isTwoWay?: boolean, added?: object }?][] = [
  ['a new optional field', { name: string }, { name: string, note: string }, [{ name: 'x' }, {}]],
  ['a new required field with a default', { name: string }, { name: string, 'copies!': { ...integer, default: 1 }, 'price!': { ...number, default: 1.5 }, 'isNew!': { ...boolean, default: true }, "it's!": { ...string, default: "it's" }, 'tags!': { ...list, default: ['a'] } },
    [{ name: 'x' }, {}], [{ name: 'x', copies: 1, price: 1.5, isNew: true, "it's": "it's", tags: ['a'] }, { copies: 1, price: 1.5, isNew: true, "it's": "it's", tags: ['a'] }], { added: { copies: 5, price: 1.5, isNew: false, "it's": '', tags: [] } }],
  ['more values in an enum', { 'status!': { ...string, enum: ['open', 'paid'] } }, { 'status!': { ...string, enum: ['lost', 'paid', 'open'] } }, [{ status: 'open' }]],
  ['another order of the values in an enum', { status: { ...integer, enum: [1, 2] } }, { status: { ...integer, enum: [2, 1] } }, [{ status: 1 }, {}]],
  ['fewer values in an enum that no record has', { status: { enum: ['open', 'paid', null] } }, { status: { enum: ['open', null] } }, [{ status: 'open' }, { status: null }, {}]],
  ['a required field that becomes optional', { 'name!': string, 'copies!': integer }, { name: string, copies: integer }, [{ name: 'x', copies: 1 }]],
  ['an optional field that becomes required, if all records have it', { name: string, copies: integer }, { 'name!': string, 'copies!': integer }, [{ name: 'x', copies: 1 }]],
  ['an optional field that becomes required with a default', { name: string }, { 'name!': { ...string, default: 'none' } }, [{ name: 'x' }, {}], [{ name: 'x' }, { name: 'none' }], { added: { name: 'y' } }],
  ['integer to number', { 'size!': integer, weight: integer }, { 'size!': number, weight: number }, [{ size: Number.MAX_SAFE_INTEGER }, { size: -5, weight: 7 }], undefined, { isTwoWay: false, added: { size: 1e300 } }],
  ['a string that becomes nullable', { name: string, 'code!': string }, { name: nullable, 'code!': nullable }, [{ name: 'null', code: '"x"\n\\ é😀' }, { code: '' }], undefined, { isTwoWay: false, added: { code: null } }],
  ['numbers and booleans that become nullable', { size: integer, price: number, isNew: boolean }, { size: { type: ['integer', 'null'] }, price: { type: ['number', 'null'] }, isNew: { anyOf: [boolean, { type: 'null' }] } },
    [{ size: Number.MIN_SAFE_INTEGER, price: 0.1 + 0.2, isNew: true }, { size: 0, price: 1.7976931348623157e308, isNew: false }, {}, { price: 5e-324 }], undefined, { isTwoWay: false }],
  ['a type that was not declared', { status: { enum: ['open', 'paid'] }, size: { enum: [1, 2.5] }, isNew: { const: true } }, { status: { ...string, enum: ['open', 'paid'] }, size: { ...number, enum: [1, 2.5] }, isNew: { ...boolean, const: true } },
    [{ status: 'open', size: 1, isNew: true }, { size: 2.5 }]],
  ['other bounds, patterns and formats', { 'name!': { ...string, minLength: 1 }, size: { ...integer, minimum: 1 } }, { 'name!': { ...string, pattern: '^x', format: 'email' }, size: { ...integer, maximum: 3 } }, [{ name: 'x', size: 5 }]],
  ['unusual names', { 'a"b': string }, { 'a"b': nullable, "it's": { ...integer, default: 3 }, 'a::b c!': { ...integer, default: 1 }, 'Ü x(': number }, [{ 'a"b': 'x' }], [{ 'a"b': 'x', 'a::b c': 1 }], { isTwoWay: false, added: { 'a::b c': 2 } }]
]

for (const [name, before, after, records, expected = records, { isTwoWay = true, added = records[0] } = {}] of changes) {
  onDatabases(`${name} needs no SQL`, async (t, { url }) => {
    const withIds = expected.map((record, n) => ({ id: n + 1, ...record }))
    const stored = await create(url, loans(before), records)
    t.same(stored, records.map((record, n) => ({ id: n + 1, ...record })))
    t.same(await start(url, loans(after)), [])
    t.same(await read(url, loans(after)), withIds, 'the second start changes nothing')
    if (isTwoWay) {
      t.same((await read(url, loans(before))).map(({ id }) => id), stored.map(({ id }) => id), 'the previous definition starts')
      t.same(await read(url, loans(after)), withIds, 'the previous definition has removed nothing')
    }
    const last = { id: 9, ...added }
    await start(url, loans(after), async store => {
      await store.append(last)
      await store.change(1, record => ({ ...JSON.parse(record), id: 1 }))
    })
    t.same(await read(url, loans(after)), [...withIds, last])
  })
}

onDatabases('what needs a decision is refused, and nothing has changed', async (t, { url, sql }) => {
  const fields = { 'name!': string, status: { ...string, enum: ['open', 'paid', 'lost'] }, note: nullable, size: integer, tags: list }
  const stored = await create(url, loans(fields), [{ name: 'x', status: 'paid', size: 1 }, { name: 'y', status: 'lost', tags: [] }])
  const tables = () => sql(url.startsWith('sqlite') ? 'select * from sqlite_schema order by name' : 'select relname from pg_class order by relname')
  const before = await tables()
  const problems = [
    'loans.name has values of the type string, but the schema needs array. Allow these types too, or add SQL to upgrades that converts the values.',
    'loans.status has values in 1 record that the schema does not list. Add these values to the schema, or add SQL to upgrades that changes them.',
    'loans.note has values of the type string or null, but the schema needs string. Allow these types too, or add SQL to upgrades that converts the values.',
    'loans.size is required, but is missing in 1 record. Add a default to the schema of the field, or make the field optional.',
    'loans.tags has values of the type array, but the schema needs integer or null. Allow these types too, or add SQL to upgrades that converts the values.',
    'loans.price is required, but existing records do not have it. Add a default to the schema of the field, or make the field optional.'
  ]
  const changed = { 'name!': list, status: { ...string, enum: ['open', 'paid'] }, note: string, 'size!': integer, tags: { type: ['integer', 'null'] }, 'price!': number, more: string }
  await t.rejects(start(url, [{ ...loans({}), name: 'other' }, loans(changed), { ...loans({}), name: 'another' }]), {
    code: 'ERR_STARTUP', message: ['The schema does not fit the records in the option store. Nothing was changed.', ...problems].join('\n  ')
  })
  await t.rejects(start(url, loans({ ...fields, status: { enum: ['open', 'paid', null] } })), { message: /\n {2}loans.status has values in 1 record/ })
  t.same(await tables(), before)
  t.same(await read(url, loans(fields)), stored)
  await sql('delete from loans')
  t.same(await read(url, loans({ 'name!': string, 'price!': number, 'isNew!': boolean })), [], 'a new required field needs no default if there are no records')
})

onDatabases('a type or a presence that depends on the values is counted up to a limit', async (t, { url, sql }) => {
  await create(url, loans({ name: string }), [])
  await sql('insert into loans (id) with recursive n (n) as (select 1 union all select n + 1 from n where n < 10001) select n from n')
  await t.rejects(start(url, loans({ 'name!': string })), { message: /is missing in more than 10000 records\./ })
})

onDatabases('a rename keeps the values, and may stay in the definition', async (t, { url, sql }) => {
  const [before, renames] = [{ 'who!': string, returned: { ...integer, minimum: 1 } }, { returned: 'returned_at', who: "it's" }]
  const [, second] = await create(url, loans(before), [{ who: 'Ada', returned: 5 }, { who: 'Grace' }])
  const after = loans({ "it's!": string, returned_at: integer }, { renames })
  const version = async (definition: Definition) => { let text; await start(url, definition, async store => { text = await store.version() }); return text }
  const previous = await version(loans(before))
  for (let n = 0; n < 2; n++) t.same(await read(url, after), [{ id: 1, "it's": 'Ada', returned_at: 5 }, { id: second?.id, "it's": 'Grace' }])
  t.not(await version(after), previous, 'lists have another ETag')
  t.same(await start(url, after), [])
  t.same(await read(url, loans({ 'who!': string, returned: integer }, { renames: { returned_at: 'returned', "it's": 'who' } })), [{ id: 1, who: 'Ada', returned: 5 }, { id: 2, who: 'Grace' }], 'and back')
  await sql('update loans set returned = 7 where id = 2')
  t.same(await read(url, loans({ 'name!': nullable, returned: number }, { renames: { who: 'name' } })), [{ id: 1, name: 'Ada', returned: 5 }, { id: 2, name: 'Grace', returned: 7 }], 'with another type')
})

onDatabases('a field that the schema does not have any more is a warning, and its values can be kept or removed', async (t, { url, sql }) => {
  const removed = (count: string) => [`The schema of the collection loans does not have the field returned, which has values in ${count}. ` +
    'To keep them in another field, add "renames": {"returned": "NEW_NAME"}. To remove them, add to upgrades: alter table "loans" drop column "returned"']
  await create(url, loans({ 'returned!': string, 'note!': string }), [{ returned: 'x', note: 'n' }, { returned: 'y', note: 'n' }])
  const without = loans({ 'note!': string, returned_at: string })
  for (let n = 0; n < 2; n++) t.same(await start(url, without), removed('2 records'))
  t.same(await create(url, without, [{ note: 'a', returned_at: 'z' }]), [{ id: 1, note: 'n' }, { id: 2, note: 'n' }, { id: 1, note: 'a', returned_at: 'z' }])
  await t.rejects(start(url, loans({ 'returned!': string, 'note!': string })), { message: /loans.returned is required, but is missing in 1 record/ })

  const renamed = loans({ 'note!': string, returned_at: string }, { renames: { returned: 'returned_at' } })
  await sql("update loans set returned_at = 'new' where returned = 'y'")
  await t.rejects(start(url, renamed), {
    message: /\n {2}loans.returned cannot be renamed to returned_at, because the table has both, and 1 record would lose a value. In upgrades, copy the values that you need, and remove one of both columns, such as: alter table "loans" drop column "returned"$/
  })
  const otherType = loans({ 'note!': string, returned_at: string, at: integer }, { renames: { returned: 'at' } })
  await start(url, loans({ 'note!': string, returned_at: string, at: integer }))
  await t.rejects(start(url, otherType), { message: /loans.returned cannot be renamed to at, because the table has both, and 2 records would lose a value/ })
  const otherValues = loans({ 'note!': string, returned_at: { ...string, enum: ['x', 'new', 'z'] } }, { renames: { returned: 'returned_at' } })
  await t.rejects(start(url, otherValues), { message: /loans.returned cannot be renamed to returned_at/ }, 'values that the schema may not list')
  const upgrades = ['update loans set returned = null where returned_at is not null']
  for (let n = 0; n < 2; n++) t.same(await start(url, { ...renamed, upgrades }), [])
  t.same((await read(url, { ...renamed, upgrades })).map(({ returned_at: at }) => at), ['x', 'new', 'z'])

  const pairs = (fields: Record<string, object>, options?: Partial<Definition>) => loans(fields, { name: 'pairs', ...options })
  await create(url, pairs({ 'a!': string, b: string }), [{ a: '1' }, { a: '2', b: '2' }])
  await t.rejects(start(url, pairs({ b: string }, { renames: { a: 'b' } })), { message: /pairs.a cannot be renamed to b, because the table has both, and 1 record would lose a value/ })
  const copied = pairs({ b: string, c: integer }, { renames: { a: 'c' }, upgrades: ['alter table pairs add c bigint; update pairs set c = cast(a as bigint)'] })
  for (let n = 0; n < 2; n++) t.match(await start(url, copied), [/does not have the field a, which has values in 2 records/], 'an upgrade has copied them')
  t.same((await read(url, copied)).map(({ c }) => c), [1, 2])
})

onDatabases('a field that differs from another one only in upper and lower case is renamed, if the definition says so', async (t, { url }) => {
  await create(url, loans({ Note: string }), [{ Note: 'x' }])
  await t.rejects(start(url, loans({ note: string })), { message: /\n {2}loans.note differs from the column Note only in upper and lower case. Add "renames": {"Note": "note"}.$/ })
  for (let n = 0; n < 2; n++) t.same(await read(url, loans({ note: string }, { renames: { Note: 'note' } })), [{ id: 1, note: 'x' }])
})

onDatabases('a reference to another collection than before is checked, and so are all references after upgrades', async (t, { url, sql }) => {
  const ids = (name: string, more = {}): Definition => ({ name, schema: Type.Object({ id: Type.Integer() }), seed: [], idSource: 'server', ...more })
  const [books, films, before] = [ids('books'), ids('films'), loans({ "it's": string, item: integer, note: string }, { references: { item: 'books' } })]
  await start(url, [books, films], books => books.append({}))
  await start(url, [before, books, films], store => store.append({ id: 1, item: 1 }))
  const after = { ...before, references: { item: 'films' } }
  const missing = (target: string, value: number) => ({ message: new RegExp(`\n {2}loans.item must be the id of a record of ${target}, but 1 value, such as "?${value}"?, is not[.]`) })
  await t.rejects(start(url, [after, books, films]), missing('films', 1))
  await start(url, [films, books], films => films.append({}))
  for (let n = 0; n < 2; n++) {
    await start(url, [after, books, films], async store => {
      await t.rejects(async () => store.append({ id: 2, item: 2 }), { code: 'ERR_CONFLICT', message: 'must be the id of a record of films' })
    })
  }
  await start(url, [books, films, after], books => books.change(1, () => undefined))
  for (const sql of ['delete from films', 'update films set id = 100', 'update loans set item = 77']) {
    const upgrades = [sql]
    const upgraded = sql.includes('loans') ? [{ ...after, upgrades }, books, films] : [after, books, { ...films, upgrades }]
    await t.rejects(start(url, upgraded), url.startsWith('sqlite') ? missing('films', sql.includes('77') ? 77 : 1) : { message: /^Entry 1 in upgrades of the collection .* failed, and nothing was changed: .*foreign key constraint/ })
  }
  t.same(await sql('select item from loans'), [{ item: url.startsWith('sqlite') ? 1 : '1' }])
  await start(url, [{ ...after, references: {} }, books, films], store => store.append({ id: 3, item: 100 }))
})

onDatabases('an upgrade mentions a field only by its name', async (t, { url }) => {
  const fields = { name: string, username: string, a: string, 'x y': string, "o'c": string, size: string, größe: string }
  await create(url, loans(fields), [{ name: 'Ann', username: 'ANN', a: 'b', 'x y': 'c', "o'c": 'd', size: '5', größe: '5' }])
  const toJson = (name: string) => `update loans set ${name} = '"' || ${name} || '"'`
  const upgrades = [`update loans set username = lower(username) where username <> 'a name'; -- the clients' sizes\n${toJson('size')}; /* isn't a */ ${toJson('größe')}; ${toJson('"o\'c"')}`]
  const after = { name: nullable, username: string, a: nullable, 'x y': nullable, "o'c": nullable, size: nullable, größe: nullable }
  t.same(await read(url, loans(after, { upgrades })), [{ id: 1, name: 'Ann', username: 'ann', a: 'b', 'x y': 'c', "o'c": 'd', size: '5', größe: '5' }])
  const unreadable = [...upgrades, 'update loans set username = upper(username)']
  await t.rejects(start(url, loans({ ...after, username: nullable }, { upgrades: unreadable })), { code: 'ERR_STARTUP', message: /^loans.username must contain JSON after the upgrades: / })
  const readable = [...upgrades, "update loans set username = '\"' || username || '\"'"]
  t.match(await read(url, loans({ ...after, username: nullable }, { upgrades: readable })), [{ username: 'ann' }])
  if (url.startsWith('sqlite')) return
  const quotes = loans({ code: string, note: string }, { name: 'quotes' })
  await create(url, quotes, [{ code: 'x', note: 'n' }])
  const dollars = ["update quotes set note = $$it's$$; update quotes set code = to_json(code)::text where note <> ''"]
  t.match(await read(url, loans({ code: nullable, note: string }, { name: 'quotes', upgrades: dollars })), [{ code: 'x', note: "it's" }])
})

onDatabases('upgrades can have several statements, one for each database, and new fields in the same start', async (t, { url, sql }) => {
  const fields = { 'name!': string }
  await create(url, loans(fields), [{ name: 'x' }, { name: 'y' }])
  const first = "alter table loans add column size bigint; update loans set size = 5 where name = 'x'; update loans set size = 6 where name = 'y'"
  const both = { sqlite: "update loans set name = name || ' on sqlite'", postgres: "update loans set name = concat(name, ' on postgres')" }
  const kind = url.startsWith('sqlite') ? 'sqlite' : 'postgres'
  const grown = loans({ 'name!': string, 'size!': integer, note: string }, { upgrades: [first, both] })
  const expected = [{ id: 1, name: `x on ${kind}`, size: 5 }, { id: 2, name: `y on ${kind}`, size: 6 }]
  for (let n = 0; n < 2; n++) t.same(await read(url, grown), expected)
  for (const [sql, reason] of [
    ["update loans set name = 'lost'; update membrs set x = 1", /membrs/],
    ["update loans set name = 'lost'; commit", /: It must not begin or end a transaction$/],
    ['this is not SQL', /syntax error/]
  ] as const) {
    const broken = { ...grown, upgrades: [first, both, 'update loans set size = 0', sql] }
    await t.rejects(start(url, broken), { code: 'ERR_STARTUP', message: /^Entry 4 in upgrades of the collection loans failed, and nothing was changed: / })
    await t.rejects(start(url, broken), { message: reason })
    t.same(await read(url, grown), expected)
  }
  t.same(await sql('select version from collections'), [{ version: 3 }])
})

onDatabases('an upgrade converts what is not converted automatically, and its column must fit', async (t, { url }) => {
  await create(url, loans({ 'tags!': nullable, 'code!': string, size: number }), [{ tags: 'a', code: '0123', size: 1.5 }, { tags: null, code: '7' }])
  const upgrades = ['update loans set tags = \'[\' || tags || \']\'']
  const after = { 'tags!': { type: 'array' }, 'code!': nullable, size: number }
  for (let n = 0; n < 2; n++) t.same(await read(url, loans(after, { upgrades })), [{ id: 1, tags: ['a'], code: '0123', size: 1.5 }, { id: 2, tags: [null], code: '7' }])
  for (const type of ['integer', 'blob']) {
    const added = [...upgrades, { sqlite: `alter table loans add column place ${type}`, postgres: `alter table loans add column place ${type.replace('blob', 'bytea')}` }]
    await t.rejects(start(url, loans({ ...after, place: string }, { upgrades: added })), { message: /\n {2}loans.place has values of the type (integer|blob|bytea), but the schema needs string\. /i })
  }
  const other = [...upgrades, { sqlite: 'alter table loans add column place varchar(9); alter table loans add column n int', postgres: 'alter table loans add column place varchar(9); alter table loans add column n smallint' }]
  const grown = loans({ ...after, place: string, n: integer }, { upgrades: other })
  await start(url, grown)
  t.same((await create(url, grown, [{ tags: [], code: 'c', place: '0123', n: 2 ** 40 }])).at(-1), { id: 1, tags: [], code: 'c', place: '0123', n: 2 ** 40 })
})

onDatabases('indexes and triggers that are missing are created again, and what others have added stays', async (t, { url, sql }) => {
  const [isSqlite, fields] = [url.startsWith('sqlite'), { 'name!': string }]
  await create(url, loans(fields), [{ name: 'x' }, { name: 'y' }])
  const objects = () => sql(isSqlite
    ? "select name, sql from sqlite_schema where tbl_name = 'loans' order by name"
    : `select pg_get_indexdef(indexrelid) as sql from pg_index where indrelid = 'loans'::regclass
       union all select pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'loans'::regclass order by sql`)
  const before = await objects()
  for (const statement of isSqlite
    ? ['drop index "loans:id"', 'drop trigger "loans:update"', 'drop trigger "loans:delete"', 'create trigger "loans:delete" after delete on loans begin select 1; end', 'create index "loans:old" on loans (name)']
    : ['drop index "loans:id"', 'drop function count_change cascade', 'create index "loans:old" on loans (name)']) await sql(statement)
  await start(url, loans(fields))
  t.same(await objects(), before)
  if (!isSqlite) await sql('alter table loans disable trigger count_changes')
  await start(url, loans(fields), async store => {
    const version = await store.version()
    await sql("update loans set name = 'z' where id = 1")
    t.not(await store.version(), version, 'changes are counted')
  })

  for (const statement of isSqlite
    ? ['create index own on loans (name)', 'create table log (n)', 'create trigger own after update on loans begin insert into log values (new.id); end', 'create view names as select name from loans',
        "alter table loans add column own text not null default 'xy'", "alter table loans add column free text default 'f'", 'create table refers (loan references loans (position) on delete cascade)', 'insert into refers values (1)']
    : ['create index own on loans (name)', "alter table loans add column own text not null default 'xy'", 'alter table loans add check (id < 1000)']) await sql(statement)
  t.same(await start(url, loans({ name: nullable })), [], 'a column of others is no warning')
  t.match((await objects()).map(({ sql }) => sql).join(), /index own on/i)
  t.same(await sql('select own from loans'), [{ own: 'xy' }, { own: 'xy' }])
  if (isSqlite) {
    t.same(await sql('select * from names order by 1'), [{ name: '"y"' }, { name: '"z"' }])
    t.same(await sql('select * from refers'), [{ loan: 1 }])
    t.same(await sql('select free from loans'), [{ free: 'f' }, { free: 'f' }])
    await sql('update loans set id = 5')
    t.same(await sql('select n from log'), [{ n: 5 }, { n: 5 }])
  } else await t.rejects(sql('update loans set id = 1000'), { message: /check constraint/ })
})

onDatabases('an index is created for a new filter, and dropped with it', async (t, { url, sql }) => {
  const [plain, filtered] = [loans({ 'name!': string, size: integer }), loans({ 'name!': string, size: integer }, { filters: ['size', 'name'] })]
  const stored = await create(url, plain, [{ name: 'x', size: 5 }, { name: 'y' }])
  const indexes = async () => (await sql(url.startsWith('sqlite') ? "select name from sqlite_schema where type = 'index' and tbl_name = 'loans'" : "select relname as name from pg_index join pg_class on oid = indexrelid where indrelid = 'loans'::regclass")).map(({ name }) => name).sort()
  const before = await indexes()
  for (let n = 0; n < 2; n++) t.same(await read(url, filtered), stored)
  t.equal((await indexes()).length, before.length + 2)
  t.same(await read(url, plain), stored)
  t.same(await indexes(), before)
})

onPostgres('the check of a new optional field does not read the table', async (t, server) => {
  const url = server.database()
  const [before, after] = [loans({ name: string }), loans({ name: string, size: integer, price: number })]
  const stored = await create(url, before, [{ name: 'x' }])
  const checks = () => server.query("select convalidated from pg_constraint where conrelid = 'loans'::regclass and contype = 'c' and conkey <> '{2}'", url)
  for (let n = 0; n < 2; n++) t.same(await read(url, after), stored)
  t.same(await checks(), [{ convalidated: false }, { convalidated: false }])
  await t.rejects(server.query('update loans set size = 9007199254740992', url), { message: /check constraint/ })
  t.same(await read(url, before), stored)
})

onDatabases('a table that an upgrade rebuilds gets its checks, indexes, triggers and positions', async (t, { url }) => {
  await create(url, loans({ name: string }), [{ name: 'x' }, { name: 'y' }, { name: 'z' }])
  await start(url, loans({ name: string }), store => store.change(3, () => undefined))
  const rebuilt = (position: string) => `
    create table copied (${position}id bigint, name text);
    insert into copied (id, name) select id, name from loans order by ${position ? 'position' : 'id'};
    drop table loans;
    alter table copied rename to loans`
  const upgrades = [{ sqlite: rebuilt(''), postgres: rebuilt('position bigint generated always as identity primary key, ') }]
  const after = loans({ name: string, note: string }, { upgrades })
  for (let n = 0; n < 2; n++) t.same(await read(url, after), [{ id: 1, name: 'x' }, { id: 2, name: 'y' }])
  await start(url, after, async store => {
    const version = await store.version()
    await store.change(1, () => undefined)
    t.not(await store.version(), version)
    await t.rejects(async () => store.append({ id: 2 ** 53 }), { code: 'ERR_NOT_STORABLE' })
  })
  if (url.startsWith('postgres')) {
    await t.rejects(start(url, { ...after, upgrades: [...upgrades, { sqlite: '', postgres: rebuilt('') }] }), {
      message: 'The table loans in the option store must have a column position that is bigint generated always as identity (sequence name "loans:position") constraint "loans:key" primary key.'
    })
  }
})

onDatabases('positions of deleted records are not used again after a rebuild', async (t, { url }) => {
  await create(url, loans({ 'name!': string }), [{ name: 'x' }, { name: 'y' }])
  await start(url, loans({ 'name!': string }), store => store.change(2, () => undefined))
  await create(url, loans({ name: nullable }), [{ name: 'z' }])
  await start(url, loans({ name: nullable }), async store => {
    t.same(JSON.parse(String((await store.select({ limit: 9, after: Buffer.from('2').toString('base64url') })).list)), [{ id: 1, name: 'z' }], 'it is after the position of the deleted record')
  })
})

onDatabases('names of fields and collections that statements use can be used', async (t, { url }) => {
  const names = ['changes', 'collection', '_version', '_position', 'version', 'last', 'counted', 'given', 'asked', 'found', 'size', 'sizes', 'count', 'name', 'key', 'digest', 'at', 'used', 'taken', 't', '_0', '_lock', '_given', 'own', 'true', 'false', 'null', 'rowid', 'oid', '_rowid_']
  const definition = loans(Object.fromEntries(names.map(name => [name, string])))
  const record = Object.fromEntries(names.map(name => [name, `the ${name}`]))
  t.same(await create(url, definition, [record]), [{ id: 1, ...record }])
  await start(url, definition, async store => {
    const version = await store.version()
    const changed = Object.fromEntries(names.map(name => [name, `new ${name}`]))
    t.same(JSON.parse(String(await store.change(1, () => ({ id: 1, ...changed })))), { id: 1, ...changed })
    t.not(await store.version(), version)
    const { id, ...added } = JSON.parse(String(await store.append(record, 'a key')))
    t.same(added, record)
    t.equal(JSON.parse(String((await store.select({})).list)).length, 2)
    t.equal(await store.count({}), 2)
    t.ok(await store.change(id, () => undefined))
    t.ok(await store.change(1, () => undefined))
    t.same(JSON.parse(String((await store.select({ limit: 5 })).list)), [])
  })
  const others = ['loans', 'loans_by_id', 'loans_update', 'loans_delete', 'loans_id_position_idx', 'count_changes'].map(name => ({ ...loans({}), name }))
  for (const definitions of [others, others, others.reverse()]) await start(url, definitions)
  const odd = loans({ status: { ...string, enum: ['a', null] }, never: { ...string, enum: [null] }, no: { ...boolean, enum: [true] }, shape: { enum: [{ a: 1 }, null] } }, { name: 'odd' })
  t.same(await create(url, odd, [{ status: 'a', shape: { a: 1 } }]), [{ id: 1, status: 'a', shape: { a: 1 } }])
})

/** Creates the table of loans with records as the previous release did: it listed the values of an enum in a check, and recorded the definitions of columns. */
function previousTables (isSqlite: boolean) {
  const bounds = (name: string) => `${isSqlite ? `typeof("${name}") = 'integer' and ` : ''}"${name}" between -9007199254740991 and 9007199254740991`
  const text = (name: string) => isSqlite ? ` check ("${name}" is null or typeof("${name}") = 'text')` : ''
  const columns = {
    id: `bigint not null check (${bounds('id')})`,
    status: `text not null check (${isSqlite ? 'typeof("status") = \'text\' and ' : ''}"status" in ('open', 'it''s'))`,
    size: `bigint check ("size" is null or ${bounds('size')} and "size" in (1, 2))`,
    copies: `bigint check ("copies" is null or ${bounds('copies')})`,
    note: `text${text('note')}`,
    tags: `text${text('tags')}`
  }
  const list = Object.entries(columns).map(([name, definition]) => `, "${name}" ${definition}`).join('')
  return [
    'create table collections (name text primary key, version integer not null, columns text not null)',
    'create table idempotency_keys (collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null, primary key (collection, key))',
    'create table last_ids (collection text primary key, id bigint not null)',
    'create table collection_changes (collection text primary key, changes bigint not null)',
    ...isSqlite
      ? [`create table "loans" (position integer primary key autoincrement${list})`, 'create index "loans_by_id" on "loans" (id)',
          ...['update', 'delete'].map(change => `create trigger "loans_${change}" after ${change} on "loans" begin update collection_changes set changes = changes + 1 where collection = 'loans'; end`)]
      : [`create table "loans" (position bigint generated always as identity primary key${list})`, 'create index on "loans" (id, position)', 'create index idempotency_keys_by_age on idempotency_keys (at)',
          `create function count_change() returns trigger language plpgsql security definer set search_path = '' as $$
            begin execute format('update %I.collection_changes set changes = changes + 1 where collection = %L', tg_table_schema, tg_table_name); return null; end $$`,
          'create trigger count_changes after update or delete or truncate on "loans" for each statement execute function count_change()'],
    "insert into last_ids values ('loans', 0)",
    "insert into collection_changes values ('loans', 5)",
    `insert into collections (name, version, columns) values ('loans', 1, ${literal(JSON.stringify(columns))})`,
    "insert into loans (id, status, size, copies, note, tags) values (1, 'open', 1, 3, 'null', '[\"a\"]'), (2, 'it''s', null, null, null, null)"
  ]
}

onDatabases('tables of the previous release are upgraded, and then change like others', async (t, { url, sql }) => {
  for (const statement of previousTables(url.startsWith('sqlite'))) await sql(statement)
  const fields = (values: string[]) => ({ 'status!': { ...string, enum: values }, size: { ...integer, enum: [1, 2] }, copies: integer, note: string, tags: list })
  const records = [{ id: 1, status: 'open', size: 1, copies: 3, note: 'null', tags: ['a'] }, { id: 2, status: "it's" }]
  await t.rejects(start(url, loans(fields(['open']))), { message: /loans.status has values in 1 record that the schema does not list/ })
  for (const values of [['open', "it's"], ["it's", 'open'], ['open', "it's", 'lost']]) {
    for (let n = 0; n < 2; n++) t.same(await read(url, loans(fields(values))), records)
  }
  const after = loans({ ...fields(['open', "it's", 'lost']), size: number, copies: number, note: nullable })
  for (let n = 0; n < 2; n++) t.same(await read(url, after), records)
  const added = { status: 'lost', size: 1.5, copies: 1e300, note: null }
  t.same((await create(url, after, [added])).at(-1), { id: 1, ...added })
  await t.rejects(sql("insert into loans (id, status) values (9007199254740993, 'open')"), { message: /constraint/i })
  await start(url, ['loans_by_id', 'loans_update', 'loans_id_position_idx2'].map(name => ({ ...loans({}), name })))
})

const doubles = fc.double({ noNaN: true, noDefaultInfinity: true }).map(value => value + 0)

/** Kinds of values: a schema, the JSON types of its values, and values. */
const kinds: Record<string, { schema: { type?: unknown, enum?: unknown[], items?: object }, types: string[], values: fc.Arbitrary<unknown> }> = {
  string: { schema: string, types: ['string'], values: fc.string({ unit: 'grapheme', maxLength: 5 }) },
  colour: { schema: { ...string, enum: ['red', "it's"] }, types: ['string'], values: fc.constantFrom('red', "it's") },
  colours: { schema: { ...string, enum: ['green', "it's", 'red'] }, types: ['string'], values: fc.constantFrom('green', "it's", 'red') },
  integer: { schema: integer, types: ['integer'], values: fc.maxSafeInteger() },
  number: { schema: number, types: ['integer', 'number'], values: doubles },
  boolean: { schema: boolean, types: ['boolean'], values: fc.boolean() },
  size: { schema: { type: ['number', 'null'] }, types: ['integer', 'number', 'null'], values: fc.option(doubles) },
  nullable: { schema: nullable, types: ['string', 'null'], values: fc.option(fc.string({ maxLength: 5 })) },
  list: { schema: list, types: ['array'], values: fc.array(fc.string({ maxLength: 3 }), { maxLength: 2 }) },
  anything: { schema: {}, types: ['array', 'boolean', 'integer', 'null', 'number', 'object', 'string'], values: fc.jsonValue({ maxDepth: 1 }).map(value => JSON.parse(JSON.stringify(value))) }
}

const randomField = fc.record({ name: fc.constantFrom('a', 'b"c', "d'e", 'select', 'f g'), kind: fc.constantFrom(...Object.keys(kinds)), isRequired: fc.boolean() })
const randomChange = fc.record({ action: fc.constantFrom('add', 'remove', 'rename', 'require', 'relax', 'type', 'type'), field: randomField, place: fc.nat(9) })

onDatabases('numbers of any size stay exact', async (t, { url }) => {
  const near = [0.3, 0.1 + 0.2].map(size => ({ size }))
  await create(url, loans({ size: number }, { name: 'near', unique: ['size'] }), near)
  t.match(await read(url, loans({ size: { type: ['number', 'null'] } }, { name: 'near' })), near)
  const sizes = [...fc.sample(doubles, 200), 0, 100, -1.5, 19.99, 1e-7, 1e20, 0.1 + 0.2, 0.7999999999999999, ...fc.sample(fc.nat({ max: 1e6 }).map(size => size / 100), 100), 0.43546858006499223, 970.57121128, 254260320.39826941]
  const isJson = { oneOf: [number, { type: 'null' }] }
  const rowid = string // the name of the number of a row in SQLite
  await create(url, loans({ size: number, weight: isJson, rowid }), sizes.map(size => ({ size, weight: size, rowid: 'x' })))
  const added = Object.fromEntries(sizes.slice(0, 200).map((size, n) => [`size_${n}!`, { ...number, default: size }]))
  const records = await read(url, loans({ size: isJson, weight: isJson, rowid, ...added }))
  t.same(records.map(({ size }) => size), sizes)
  t.same(Object.values(records[0] ?? {}).slice(4), sizes.slice(0, 200))
  const untyped = { oneOf: [number] }
  const [before, after] = [loans({ size: untyped }, { name: 'sizes' }), loans({ size: number }, { name: 'sizes' })]
  t.same((await create(url, before, sizes.map(size => ({ size })))).map(({ size }) => size), sizes)
  t.same((await read(url, after)).map(({ size }) => size), sizes, 'and back')
  await start(url, loans({ size: isJson }, { name: 'sizes' }), async store => {
    if (url.startsWith('sqlite')) t.equal((await store.select({})).list, JSON.stringify(sizes.map((size, n) => ({ id: n + 1, size }))), 'and as JavaScript writes them')
  })
})

onDatabases('random changes of random schemas keep all records or change nothing', async (t, { url }) => {
  let runs = 0
  const outcomes = { made: 0, refused: 0 }
  await fc.assert(fc.asyncProperty(fc.uniqueArray(randomField, { selector: ({ name }) => name, minLength: 1 }), fc.array(randomChange, { minLength: 2, maxLength: 4 }), fc.infiniteStream(fc.nat()), async (first, steps, seeds) => {
    const name = `run_${runs++}`
    let fields = first
    let records: Record<string, unknown>[] = []
    await add(definitionOf(fields))
    for (const { action, field, place } of steps) {
      const target = fields[place % fields.length]
      const [given] = fc.sample(kinds[field.kind]?.values ?? fc.constant(0), { numRuns: 1, seed: next() })
      if (!target || (action === 'remove' && fields.length === 1)) continue
      const replaced = (changed: object) => fields.map(other => other === target ? { ...other, ...changed } : other)
      const isNew = fields.every(({ name }) => name !== field.name) && !records.some(record => Object.hasOwn(record, field.name))
      let [changed, expected, renames, defaults, isRefused] = [fields, records, {}, {}, false]
      if (action === 'add' && isNew) {
        changed = [...fields, field]
        defaults = { [field.name]: given }
        if (field.isRequired) expected = records.map(record => ({ ...record, [field.name]: given }))
      } else if (action === 'remove') {
        changed = fields.filter(other => other !== target)
        expected = records.map(({ [target.name]: _removed, ...record }) => record)
      } else if (action === 'rename' && isNew) {
        changed = replaced({ name: field.name })
        renames = { [target.name]: field.name }
        expected = records.map(({ [target.name]: value, ...record }) => ({ ...record, ...value !== undefined && { [field.name]: value } }))
      } else if (action === 'require') {
        changed = replaced({ isRequired: true })
        isRefused = records.some(record => record[target.name] === undefined)
      } else if (action === 'relax') changed = replaced({ isRequired: false })
      else if (action === 'type') {
        changed = replaced({ kind: field.kind })
        const [from, to] = [kinds[target.kind], kinds[field.kind]]
        const listed = to?.schema.enum
        isRefused = !from?.types.every(type => to?.types.includes(type)) || records.some(({ [target.name]: value }) => listed && value !== undefined && !listed.includes(value))
      }
      const definition = definitionOf(changed, renames, defaults)
      const before = definitionOf(fields)
      if (isRefused) {
        await rejects(start(url, definition), { code: 'ERR_STARTUP' })
        deepEqual(await read(url, before), sorted(records, before))
        outcomes.refused++
        continue
      }
      deepEqual(await read(url, definition), sorted(expected, definition))
      fields = changed
      records = expected
      await add(definition)
      outcomes.made++
      if (action === 'remove') return // its column is still there
    }

    function next () {
      return Number(seeds.next().value)
    }

    function definitionOf (fields: typeof first, renames = {}, defaults: Record<string, unknown> = {}) {
      return loans(Object.fromEntries(fields.map(({ name, kind, isRequired }) =>
        [isRequired ? `${name}!` : name, { ...kinds[kind]?.schema, ...Object.hasOwn(defaults, name) && { default: defaults[name] } }])), { name, renames })
    }

    /** Appends a record with all fields, and sometimes one without the optional ones. */
    async function add (definition: Definition) {
      const record = fc.record(Object.fromEntries(fields.map(({ name, kind }) => [name, kinds[kind]?.values ?? fc.constant(0)])), { requiredKeys: fields.filter(({ isRequired }) => isRequired).map(({ name }) => name), noNullPrototype: true })
      for (const value of fc.sample(record, { numRuns: 2, seed: next() })) records = [...records, { id: records.length + 1, ...value }]
      await start(url, definition, async store => { for (const record of records.slice(-2)) await store.append(record as HasId) })
      deepEqual(await read(url, definition), sorted(records, definition))
    }
  }), { numRuns: 10, endOnFailure: true })
  t.ok(outcomes.made >= 5, JSON.stringify(outcomes))

  /** Records with their fields in the order of the schema. */
  function sorted (records: Record<string, unknown>[], { schema }: Definition) {
    return records.map(record => Object.fromEntries(Object.keys(schema.properties).filter(name => record[name] !== undefined).map(name => [name, record[name]])))
  }
})

/** The environment of a service with definitions in a file. */
function service (t: Test, url: string, definitions: Definition[]) {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify(Object.fromEntries(definitions.map(({ name, seed, ...definition }) => [name, definition]))))
  return { DATABASE_URL: url, COLLECTIONS_FILE: file }
}

onDatabases('after kill -9 in the middle of a migration, the previous and the new definition start, and nothing is lost', async (t, { url, crash }) => {
  const [before, after] = [loans({ 'name!': string, size: integer }), loans({ name: nullable, size: number, note: string })]
  const records = await create(url, before, Array.from({ length: 50 }, (_, n) => ({ name: `name ${n}`, size: n })))
  // The loans are changed first, then there is a warning, and then an upgrade that does not end.
  const [warned, endless] = [loans({}, { name: 'warned' }), 'with recursive n (n) as (select 1 union all select n + 1 from n) select count(*) from n']
  await create(url, loans({ old: string }, { name: 'warned' }), [{ old: 'x' }])
  const slow = { ...loans({}), name: 'slow' }
  await start(url, slow)
  const definitions = [after, warned, { ...slow, upgrades: [{ sqlite: endless, postgres: 'select pg_sleep(3600)' }] }]
  const script = `
    import { writeSync } from 'node:fs'
    import { openEngine } from './plugins/stores.ts'
    const address = ${JSON.stringify(url.startsWith('sqlite') ? url : `${url}%20-cclient_connection_check_interval%3D100`)}
    const engine = await openEngine(address, { timeout: 60000, poolSize: 2, onWarning: message => writeSync(1, message) })
    for (const definition of ${JSON.stringify(definitions)}) engine.open(definition)
    await engine.start()`
  for (const isCrash of [false, true]) {
    const child = spawn(process.execPath, ['--import=./test/support/typescript.js', '--input-type=module', '--eval', script], { stdio: ['ignore', 'pipe', 'inherit'] })
    const exit = once(child, 'exit')
    t.match(String(await once(child.stdout, 'data')), 'does not have the field old')
    child.kill('SIGKILL')
    t.same(await exit, [null, 'SIGKILL'])
    if (isCrash) await crash()
    t.same(await read(url, before), records)
  }
  t.same(await read(url, after), records)
})

onPostgres('while two releases run side by side, changes of a schema are as safe as docs/collections.md says', async (t, server) => {
  const url = server.database()
  const named = (name: string, fields: Fields, more: Partial<Definition> = {}) => loans(fields, { name, ...more })
  const fields = { 'name!': string, 'status!': { ...string, enum: ['open', 'paid'] } }
  const safe = { ...fields, 'status!': { ...string, enum: ['open', 'lost', 'paid'] }, note: string, 'copies!': { ...integer, default: 1 }, 'tags!': { ...list, default: [] } }
  const serving = (definitions: Definition[]) => service(t, url, definitions.map(definition => ({ ...definition, idSource: 'server' })))
  const previous = startService(t, serving([
    loans(fields),
    named('bounds', { 'name!': { ...string, maxLength: 3 }, size: integer }),
    named('removed', { 'name!': string, note: string }),
    named('relaxed', { 'name!': string, 'note!': string }),
    named('required', { name: string }),
    named('types', { size: integer, name: string }),
    named('gone', {})
  ]))
  const send = async (running: typeof previous, method: string, path: string, body?: object) => {
    const response = await fetch(`${await running.url}/api/${path}`, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
    return [response.status, await response.json()] as const
  }
  t.same(await send(previous, 'POST', 'loans', { name: 'a', status: 'open' }), [201, { id: 1, name: 'a', status: 'open' }])
  const [bounded, withNote] = [{ id: 1, name: 'abc', size: 5 }, { id: 1, name: 'a', note: 'n' }]
  for (const [path, body] of [['bounds', bounded], ['removed', withNote], ['relaxed', withNote], ['required', { name: 'x' }], ['types', { size: 1 }], ['gone', {}]] as const) {
    t.equal((await send(previous, 'POST', path, body))[0], 201)
  }
  const next = startService(t, serving([
    loans(safe),
    named('bounds', { 'name!': { ...string, maxLength: 9 }, size: { ...integer, minimum: 1 } }, { filters: ['size'] }),
    named('removed', { 'name!': string }),
    named('relaxed', { name: string }),
    named('required', { 'name!': string }),
    named('types', { size: number, name: nullable })
  ]))
  t.same(await send(next, 'GET', 'loans/1'), [200, { id: 1, name: 'a', status: 'open', copies: 1, tags: [] }])
  t.same(await send(previous, 'POST', 'loans', { name: 'b', status: 'paid' }), [201, { id: 2, name: 'b', status: 'paid' }])
  t.same(await send(next, 'POST', 'loans', { name: 'c', status: 'lost', note: 'x', copies: 2, tags: ['t'] }), [201, { id: 3, name: 'c', status: 'lost', note: 'x', copies: 2, tags: ['t'] }])
  t.same(await send(previous, 'GET', 'loans'), [200, [{ id: 1, name: 'a', status: 'open' }, { id: 2, name: 'b', status: 'paid' }, { id: 3, name: 'c', status: 'lost' }]])
  t.equal((await send(previous, 'PATCH', 'loans/3', { name: 'd' }))[0], 400, 'the previous release does not accept the new value')
  await t.rejects(start(url, loans(fields)), { message: /loans.status has values in 1 record that the schema does not list/ }, 'and cannot be restarted')
  t.same(await send(previous, 'PATCH', 'loans/3', { name: 'd', status: 'paid' }), [200, { id: 3, name: 'd', status: 'paid' }])
  const all = [{ id: 1, name: 'a', status: 'open', copies: 1, tags: [] }, { id: 2, name: 'b', status: 'paid', copies: 1, tags: [] }, { id: 3, name: 'd', status: 'paid', note: 'x', copies: 2, tags: ['t'] }]
  t.same(await send(next, 'GET', 'loans'), [200, all])
  t.match(await start(url, loans(fields)), [/the field note,/, /the field copies,/, /the field tags,/], 'the previous release can be restarted')
  t.same(await send(next, 'GET', 'loans'), [200, all])

  // Other bounds and a new index, and a removed optional field.
  t.same(await send(next, 'POST', 'bounds', { name: 'abcdef', size: 7 }), [201, { id: 2, name: 'abcdef', size: 7 }])
  t.equal((await send(previous, 'PATCH', 'bounds/1', { size: 7 }))[0], 200)
  for (const [running, path] of [[previous, 'bounds'], [next, 'bounds?size=7']] as const) t.same(await send(running, 'GET', path), [200, [{ ...bounded, size: 7 }, { id: 2, name: 'abcdef', size: 7 }]])
  t.same(await send(next, 'PATCH', 'removed/1', { name: 'b' }), [200, { id: 1, name: 'b' }])
  t.same(await send(previous, 'POST', 'removed', { name: 'c', note: 'x' }), [201, { id: 2, name: 'c', note: 'x' }])
  t.same(await send(previous, 'GET', 'removed'), [200, [{ id: 1, name: 'b', note: 'n' }, { id: 2, name: 'c', note: 'x' }]])

  // Required becomes optional, and a removed required field; and optional becomes required.
  t.same(await send(next, 'POST', 'relaxed', {}), [201, { id: 2 }])
  t.same(await send(previous, 'GET', 'relaxed'), [200, [withNote, { id: 2 }]])
  t.equal((await send(previous, 'POST', 'required', {}))[0], 500)
  t.equal((await send(previous, 'POST', 'required', { name: 'y' }))[0], 201)

  // More types.
  t.same(await send(next, 'PATCH', 'types/1', { size: 1.5, name: 'x' }), [200, { id: 1, size: 1.5, name: 'x' }])
  t.same(await send(previous, 'GET', 'types/1'), [200, { id: 1, size: 1, name: '"x"' }])
  t.equal((await send(previous, 'POST', 'types', { name: 'y' }))[0], 201)
  t.equal((await send(next, 'GET', 'types/2'))[0], 500)

  const unsafe = { ...safe, 'code!': string, copies: integer }
  const { 'name!': _name, ...others } = unsafe
  await start(url, loans(others, { renames: { name: 'code' } }))
  await server.query('alter table gone rename to went', url)
  for (const path of ['loans/1', 'gone/1']) t.equal((await send(previous, 'GET', path))[0], 500, 'after a rename, the previous release does not work')
})

onPostgres('the SQL for an existing database is printed without changing it, and a role without DDL privileges starts when it was executed', async (t, server) => {
  await server.query('create database existing')
  const url = server.url.replace(/postgres$/, 'existing')
  const clerk = url.replace('ada:open%20sesame', 'clerk:clerk')
  await server.query("create role clerk login password 'clerk'", url)
  const before = loans({ 'name!': string, size: integer, old: string })
  await server.query(await schemaSql([{ ...loans({}), name: 'others' }]), url)
  await server.query('grant items_users to clerk', url)
  await create(url, before, [{ name: 'x', size: 5, old: 'o' }])
  await server.query('grant select on loans to items_users', url)
  const after = loans({ name: nullable, size: number, note: string })
  await t.rejects(start(clerk, after), { message: /^The role in the option store lacks a privilege: Cannot change the table loans: must be owner of table loans\. See docs/ })
  const sql = await schemaSql([after, { ...loans({}), name: 'more', seed: [{ id: 7 }] }], url)
  t.match(sql, /\n-- The schema of the collection loans does not have the field old, which has values in 1 record\./)
  t.match(sql, /\ninsert into "more" \("id"\) values \('7'\);\n/)
  t.notMatch(sql, /create role/)
  t.same(await read(url, before), [{ id: 1, name: 'x', size: 5, old: 'o' }])
  await server.query(sql, url)
  for (let n = 0; n < 2; n++) t.same(await read(clerk, after), [{ id: 1, name: 'x', size: 5 }])
  t.same(await read(clerk, { ...loans({}), name: 'more' }), [{ id: 7 }])
  t.same(await read(clerk, loans({ name: { ...nullable, enum: ['x', null] }, size: number, note: string })), [{ id: 1, name: 'x', size: 5 }], 'what is only recorded needs no privilege')
})

onDatabases('a collection is renamed with the SQL in docs/collections.md', async (t, { url, sql }) => {
  const manual = readFileSync('docs/collections.md', 'utf8')
  const [, both = ''] = /```sql\n(alter table orders rename to purchases;[^`]+)```/.exec(manual) ?? []
  const [, more = ''] = /```sql\n(alter sequence "orders:position"[^`]+)```/.exec(manual) ?? []
  const text = url.startsWith('postgres') ? both + more : both
  const orders = loans({ 'name!': string }, { name: 'orders' })
  const records = await create(url, orders, [{ name: 'x' }, { name: 'y' }])
  for (const statement of text.trim().split(/;\n?/).filter(Boolean)) await sql(statement)
  for (let n = 0; n < 2; n++) t.same(await read(url, { ...orders, name: 'purchases' }), records)
  t.same(await create(url, orders, []), [])
  await start(url, [{ ...orders, name: 'purchases' }, orders], async store => {
    const version = await store.version()
    await store.change(1, () => undefined)
    t.not(await store.version(), version)
  })
})
