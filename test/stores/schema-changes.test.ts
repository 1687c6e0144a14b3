import { onEveryEngine } from '../support/engines.js'
import { all, define, openStores, outcomes, textOf, type AnyDefinition } from '../support/stores.js'
import { runSql } from '../support/sql.js'

const string = { type: 'string' }
const integer = { type: 'integer' }

/**
 * A schema change: definitions before, records, definitions after, and the records then, or the reason why it does not
 * start.
 */
interface Case {
  before: AnyDefinition[]
  records: Record<string, object[]>
  after: AnyDefinition[]
  then?: Record<string, object[]>
  refused?: RegExp
}

const notes = (properties: object, required?: string[], more?: object) => define('notes', properties, required, more)
const members = define('members', { name: string })

const cases: Record<string, Case> = {
  'a new optional field': {
    before: [notes({ text: string })],
    records: { notes: [{ text: 'a' }] },
    after: [notes({
      text: string,
      pages: integer
    })],
    then: { notes: [{ text: 'a' }] }
  },
  'a new required field with a default': {
    before: [notes({ text: string })],
    records: { notes: [{ text: 'a' }, {}] },
    after: [notes({ text: string, pages: { ...integer, default: 1 } }, ['pages'])],
    then: { notes: [{ text: 'a', pages: 1 }, { pages: 1 }] }
  },
  'a new required field without a default': {
    before: [notes({ text: string })],
    records: { notes: [{ text: 'a' }, {}] },
    after: [notes({ text: string, pages: integer }, ['pages'])],
    refused: /notes: 2 records do not fit the schema, such as the one with id 1: pages is required/
  },
  'records that do not fit': {
    before: [notes({ text: string })],
    records: { notes: [{ text: 'abc' }, { text: 'a' }] },
    after: [notes({ text: { ...string, maxLength: 2 } })],
    refused: /notes: 1 record does not fit the schema, .+ with id 1: text must not have more than 2 characters/
  },
  'another type of a field that can be queried, with an upgrade': {
    before: [notes({ size: string }, [], { filters: ['size'] })],
    records: { notes: [{ size: '5' }, { size: '10' }, {}] },
    after: [notes({ size: integer }, [],
      {
        filters: ['size'],
        upgrade: ({ size, ...rest }: { size?: unknown }) => ({
          ...rest,
          ...size !== undefined && { size: Number(size) }
        })
      })],
    then: { notes: [{ size: 5 }, { size: 10 }, {}] }
  },
  'a field with several previous names': {
    before: [notes({ second: string })],
    records: { notes: [{ second: 'a' }] },
    after: [notes({ third: string }, ['third'], { renames: { first: 'third', second: 'third' } })],
    then: { notes: [{ third: 'a' }] }
  },
  'a rename to a field that a record has already': {
    before: [notes({ one: string, two: string })],
    records: { notes: [{ one: 'a' }, { one: 'b', two: 'c' }] },
    after: [notes({ two: string }, [], { renames: { one: 'two' } })],
    refused: /such as the one with id 2: one cannot be renamed to two, because the record has both/
  },
  'a field that is gone from the schema': {
    before: [notes({ text: string, old: string })],
    records: { notes: [{ text: 'a', old: 'b' }] },
    after: [notes({ text: string })],
    refused: /id 1: old is not in the schema\. Add it, or name it in removes/
  },
  'a field that is removed': {
    before: [notes({ text: string, old: string }, [], { filters: ['old'] })],
    records: { notes: [{ text: 'a', old: 'b' }] },
    after: [notes({ text: string }, [], { removes: ['old'] })],
    then: { notes: [{ text: 'a' }] }
  },
  'a required reference with a default that does not exist': {
    before: [members, notes({ text: string })],
    records: { notes: [{ text: 'a' }] },
    after: [
      members,
      notes({ text: string, member: { ...integer, default: 7 } }, ['member'], { references: { member: 'members' } })
    ],
    refused: /notes\.member must be the id of a record of members, but 1 value, such as 7, is not/
  },
  'a rename into a reference with missing targets': {
    before: [members, notes({ owner: integer })],
    records: { members: [{ name: 'ada' }], notes: [{ owner: 1 }, { owner: 9 }] },
    after: [
      members, notes({ member: integer }, [], { renames: { owner: 'member' }, references: { member: 'members' } })
    ],
    refused: /notes\.member must be the id of a record of members, but 1 value, such as 9, is not/
  },
  'a field that is not unique any more and gets a default': {
    before: [notes({ text: string }, [], { unique: ['text'] })],
    records: { notes: [{ text: 'a' }, {}, {}] },
    after: [notes({ text: { ...string, default: 'a' } }, ['text'])],
    then: { notes: [{ text: 'a' }, { text: 'a' }, { text: 'a' }] }
  },
  'a unique field that gets a default': {
    before: [notes({ text: string })],
    records: { notes: [{ text: 'a' }, {}] },
    after: [notes({ text: { ...string, default: 'a' } }, ['text'], { unique: ['text'] })],
    refused: /notes\.text must be unique, but 1 value, such as "a", is in several records/
  },
  'an enumeration with values of several types': {
    before: [notes({ size: string })],
    records: { notes: [{ size: 'large' }] },
    after: [notes({ size: { enum: ['large', 1, null, true] } })],
    then: { notes: [{ size: 'large' }] }
  },
  'a text with NUL in a field that can be queried from now on': {
    before: [notes({ text: string })],
    records: { notes: [{ text: 'a\0b' }] },
    after: [notes({ text: string }, [], { filters: ['text'] })],
    refused: /id 1: text must not contain the character NUL/
  }
}

onEveryEngine((t, address, engine) => {
  if (engine === 'memory') return
  for (const [name, { before, records, after, then, refused }] of Object.entries(cases)) {
    t.test(name, async t => {
      const url = address()
      const old = await openStores(t, url, before)
      for (const [name, list] of Object.entries(records)) {
        for (const record of list) await old.store(name).append(record as { id: number })
      }
      const stored = await textOf(await old.store('notes').select({}))
      await old.close()
      if (refused) {
        await t.rejects(openStores(t, url, after), { code: 'ERR_STARTUP', message: refused })
        const again = await openStores(t, url, before)
        t.equal(await textOf(await again.store('notes').select({})), stored, 'nothing was changed')
        await again.store('notes').append({})
        return
      }
      for (let start = 0; start < 2; start++) {
        const now = await openStores(t, url, after)
        for (const [name, list] of Object.entries(then ?? {})) {
          t.same((await all(now.store(name))).map(({ id, ...record }) => record), list)
        }
        await now.close()
      }
    })
  }

  t.test('several problems are one message', async t => {
    const url = address()
    const old = await openStores(t, url, [notes({ text: string, old: string })])
    await old.store('notes').append({ text: 'abc', old: 'x' })
    await old.close()
    await t.rejects(openStores(t, url, [notes({ text: { ...string, maxLength: 2 }, pages: integer }, ['pages'])]), {
      message: 'The schema does not fit the records in the option store. Nothing was changed.\n' +
        [
          'old is not in the schema. Add it, or name it in removes', 'pages is required',
          'text must not have more than 2 characters'
        ].map(problem => `  notes: 1 record does not fit the schema, such as the one with id 1: ${problem}`).join('\n')
    })
  })

  t.test('filters, unique fields and references can be added, changed and removed', async t => {
    const url = address()
    const fields = { text: string, size: { type: 'number' }, member: integer, flag: { type: 'boolean' } }
    const records = [{ text: 'b', size: 1.5, member: 1, flag: true }, { text: 'a', size: 1.5, flag: false }, {}]
    const first = await openStores(t, url, [members, notes(fields)])
    await first.store('members').append({ name: 'ada' })
    for (const record of records) await first.store('notes').append(record)
    await first.close()
    const options = [
      { filters: ['text', 'size', 'flag'] }, { filters: ['text'], unique: ['text'], references: { member: 'members' } },
      { unique: ['size'], filters: ['member'] }, {},
      { filters: ['member', 'flag'], references: { member: 'members' }, unique: ['text'] }
    ]
    for (const [n, more] of options.entries()) {
      const definitions = [members, notes(fields, [], more)]
      if (n === 2) {
        await t.rejects(openStores(t, url, definitions),
          { message: /notes\.size must be unique, but 1 value, such as 1\.5, is in several records/ })
        continue
      }
      const { store, close } = await openStores(t, url, definitions)
      const found = async (query: object) =>
        JSON.parse(await textOf(await store('notes').select(query))).map(({ id }: { id: number }) => id)
      if (n === 0) {
        t.same([
          await found({ where: { size: 1.5 } }), await found({ sort: 'text' }), await found({ where: { flag: false } })
        ],
        [[1, 2], [3, 2, 1], [2]])
      }
      if (n === 1) {
        t.same(await outcomes([
          () => store('notes').append({ text: 'a' }), () => store('notes').append({ member: 2 }),
          () => store('members').change(1, () => undefined)
        ]),
        ['ERR_CONFLICT /text', 'ERR_CONFLICT /member', 'ERR_CONFLICT'])
      }
      if (n === 3) {
        t.same(await outcomes([() => store('notes').append({ text: 'c', member: 1 })]),
          [{ id: 4, text: 'c', member: 1 }])
      }
      if (n === 4) t.same(await found({ sort: '-member' }), [4, 1, 3, 2])
      await close()
    }
  })

  t.test('the release before can be used again, with a warning, and the next one after it', async t => {
    const url = address()
    const one = notes({ text: string }, ['text'], { filters: ['text'] })
    const two = notes({ title: string, pages: { ...integer, default: 1 } }, ['title', 'pages'],
      { renames: { text: 'title' }, filters: ['pages'] })
    const first = await openStores(t, url, [one])
    await first.store('notes').append({ text: 'a' })
    await first.close()
    const second = await openStores(t, url, [two])
    t.same(await all(second.store('notes')), [{ id: 1, title: 'a', pages: 1 }])
    await second.close()

    const back = await openStores(t, url, [one])
    t.same(back.lines,
      [
        'An older schema is used again. ' +
        'notes: 1 record does not fit the schema, such as the one with id 1: text is required'
      ])
    t.same(await all(back.store('notes')), [{ id: 1, title: 'a', pages: 1 }])
    await back.store('notes').append({ text: 'b' })
    await back.store('notes').change(1, current => ({ ...current, text: 'c' }))
    t.same(JSON.parse(await textOf(await back.store('notes').select({ where: { text: 'b' } } as object))),
      [{ id: 2, text: 'b' }])
    t.same(JSON.parse(String(await back.store('notes').first(1))), { id: 1, text: 'c', title: 'a', pages: 1 },
      'fields that it does not know are kept')
    await back.store('notes').change(1, current => ({ id: 1, title: current.title, pages: 1 }))
    await back.close()

    const forward = await openStores(t, url, [two])
    t.same(await all(forward.store('notes')), [{ id: 1, title: 'a', pages: 1 }, { id: 2, title: 'b', pages: 1 }])
  })

  t.test('records that exist get the time of the start when their collection gets timestamps', async t => {
    const url = address()
    const first = await openStores(t, url, [notes({ text: string })])
    await first.store('notes').append([{ text: 'a' }, { text: 'b' }])
    await first.close()
    const start = new Date().toISOString()
    const time = { type: 'string', format: 'date-time', readOnly: true }
    const second = await openStores(t, url,
      [notes({ text: string, created_at: time, updated_at: time }, ['created_at', 'updated_at'], { timestamps: true })])
    for (const { created_at: created, updated_at: updated } of await all(second.store('notes'))) {
      t.ok(String(created) >= start && updated === created)
    }
    const [added] = await outcomes([() => second.store('notes').append({ text: 'c' })])
    t.ok(added.created_at >= start)
  })

  t.test('the type of an id cannot change', async t => {
    const url = address()
    await (await openStores(t, url, [notes({ text: string })])).close()
    const after = notes({ text: string })
    Object.assign(after.schema?.properties ?? {}, { id: string })
    await t.rejects(openStores(t, url, [after]),
      { code: 'ERR_STARTUP', message: /notes: the type of the id cannot change/ })
  })

  t.test('many records are changed, in their order', async t => {
    const url = address()
    const first = await openStores(t, url, [notes({ n: integer })])
    for (let n = 0; n < 3; n++) {
      await first.store('notes').append(Array.from({ length: 1000 }, (_, m) => ({ n: n * 1000 + m })))
    }
    await first.close()
    const second = await openStores(t, url,
      [notes({ m: integer, k: { ...integer, default: 5 } }, ['k'], { renames: { n: 'm' }, filters: ['k'] })])
    t.same(await all(second.store('notes')), Array.from({ length: 3000 }, (_, n) => ({ id: n + 1, m: n, k: 5 })))
    t.equal(await second.store('notes').count({ where: { k: 5 } } as object), 3000)
  })

  t.test('tables of version 0.1 are refused', async t => {
    const url = address()
    await createOldTable(url)
    await t.rejects(openStores(t, url, [members]), {
      code: 'ERR_STARTUP',
      message: 'The database in the option store has the tables of version 0.1, which this release cannot read. ' +
        'Use a new database.'
    })
  })
})

async function createOldTable (url: string) {
  if (url.startsWith('sqlite:')) {
    const { openSqlite } = await import('../support/sql.js')
    const database = openSqlite(url.slice('sqlite:'.length), 0)
    database.exec('create table collections (name text primary key, version integer not null, columns text not null)')
    database.close()
  } else {
    await runSql(url,
      'create table collections (name text primary key, version integer not null, columns text not null)')
  }
}
