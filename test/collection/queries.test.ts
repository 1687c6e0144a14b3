import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import pg from 'pg'
import { test, type Test } from 'tap'
import collection from '../../plugins/collection/routes.js'
import stores from '../../plugins/stores.js'
import type { Query } from '../../schemas/query.js'
import type { Page, Store } from '../../plugins/stores/store.js'
import docs from '../../plugins/docs/openapi.js'
import { checkAnswers } from '../support/document.js'
import { onEveryEngine } from '../support/engines.js'
import { followed, host, invalidBody } from '../support/helper.js'
import { query } from '../support/postgres.js'
import { filters, loans, loanSchema, queries, selected, type Loan } from '../support/queries.js'
import { openStore, openStores } from '../support/stores.js'

const recordsOf = ({ records }: Page<Loan>) => JSON.stringify(records)

/** Reads a query page by page. */
async function pagesOf (store: Store<Loan>, query: Query<Loan>, limit: number) {
  const pages: string[] = []
  for (let page: Page<Loan> | undefined; !page || page.next !== undefined;) {
    page = await store.select({ ...query, limit, after: page?.next })
    pages.push(recordsOf(page).slice(1, -1))
  }
  return `[${pages.filter(Boolean)}]`
}

/** An app whose loans can be queried. */
async function serve (t: Test, store: string, seed: Loan[] = []) {
  const app = host(t)
  await app.register(docs)
  await app.register(stores, { store, databaseTimeout: 60_000 })
  app.register(collection, { prefix: '/loans', name: 'loans', schema: loanSchema, idSource: 'client', filters, seed })
  checkAnswers(t, app, 'loans')
  await app.ready()
  return app
}

const some: Loan[] = [
  { id: 1, member: 7, price: 10, title: 'Lord of the Rings', status: 'open' },
  { id: 2, member: 7, price: 2.5, title: 'lord', status: 'late', paid: true },
  { id: 3, member: 8, title: 'Lord Jim', status: 'back', paid: false },
  { id: 4, member: 9, price: 10, status: 'open' }
]

onEveryEngine((t, address, engine) => {
  t.test('parameters select and order the records of a list', async t => {
    const app = await serve(t, address(), some)
    for (const [query, ids] of [
      ['', [1, 2, 3, 4]], ['?status=open', [1, 4]], ['?status=open&status=late', [1, 2, 4]],
      ['?member=7&status=open', [1]],
      ['?price.gt=2.5', [1, 4]], ['?price.gte=2.5', [1, 2, 4]], ['?price.lt=1e1', [2]], ['?price.lte=10.0', [1, 2, 4]],
      ['?member.gt=-1', [1, 2, 3, 4]],
      ['?price.exists=false', [3]], ['?price.exists=true', [1, 2, 4]], ['?title.prefix=Lord', [1, 3]],
      ['?title.prefix=', [1, 2, 3]], ['?paid=false', [3]],
      ['?sort=price', [3, 2, 1, 4]], ['?sort=-price', [4, 1, 2, 3]], ['?sort=title', [4, 3, 1, 2]],
      ['?sort=-member&price.exists=true', [4, 2, 1]],
      ['?sort=-price&limit=2', [4, 1]], ['?member=6', []]
    ] as const) {
      const response = await app.inject(`/loans${query}`)
      t.same(response.json().map(({ id }: Loan) => id), ids, query)
    }
    const { headers } = await app.inject('/loans?status=open&total=true&limit=1')
    t.equal(headers['x-total-count'], '2')
    t.equal((await app.inject({ method: 'HEAD', url: '/loans?total=true' })).headers['x-total-count'], '4')
    t.equal((await app.inject('/loans?total=false')).headers['x-total-count'], undefined)
    t.equal((await app.inject({
      url: '/loans?status=open&limit=1',
      headers: { 'if-none-match': String(headers.etag) }
    })).statusCode,
    304)
    const next = followed(/<(.+)>/.exec(String(headers.link))?.[1], '/loans')
    t.same((await app.inject(next)).json().map(({ id }: Loan) => id), [4])
  })

  t.test('a wrong parameter is a 400 that names it, and a cursor belongs to its query', async t => {
    const app = await serve(t, address(), some)
    for (const [query, path, message] of [
      ['price.gte=cheap', '/price.gte', 'must be a number'],
      ['status=lost', '/status', 'must be one of open, late, back'], ['member=1.5', '/member', 'must be an integer'],
      ['member=7&member=x', '/member', 'must be an integer'],
      ['member=9007199254740992', '/member', 'must be at most 9007199254740991'],
      ['price.gt=1e400', '/price.gt', 'must be a number'],
      ['paid=yes', '/paid', 'must be true or false'], ['price.exists=1', '/price.exists', 'must be true or false'],
      ['stauts=open', '/stauts', 'is not a known parameter'],
      ['member.exists=true', '/member.exists', 'is not a known parameter'],
      ['price.prefix=1', '/price.prefix', 'is not a known parameter'],
      ['sort=none', '/sort', `must be one of ${['id', ...filters].flatMap(name => [name, `-${name}`]).join(', ')}`],
      ['price.gt=1&price.gt=2', '/price.gt', 'must be a number'],
      ['title=%00', '/title', 'must not contain the character NUL'],
      [`member=${Array(101).fill(1).join('&member=')}`, '/member', 'must not have more than 100 items']
    ] as const) {
      const response = await app.inject(`/loans?${query}`)
      t.equal(response.statusCode, 400, query)
      t.same(response.json(), invalidBody('query', [path, message]), query)
    }
    const after = async (url: string) => /after=([^&>]+)/.exec(String((await app.inject(url)).headers.link))?.[1]
    const plain = await after('/loans?limit=1')
    t.equal(plain, Buffer.from('1').toString('base64url'), 'cursors of plain lists are as before')
    const sorted = await after('/loans?sort=price&limit=1')
    const forged = (...content: unknown[]) => Buffer.from(JSON.stringify(content)).toString('base64url')
    const digest: string = JSON.parse(Buffer.from(String(sorted), 'base64url').toString())[2]
    for (const [url, cursor] of [
      ['/loans?limit=1', sorted], ['/loans?sort=price&limit=1', plain], ['/loans?sort=-price&limit=1', sorted],
      ['/loans?sort=price&member=7&limit=1', sorted],
      ['/loans?sort=price&limit=1', forged(1, 'x', digest)], ['/loans?sort=price&limit=1', forged(-1, 1, digest)],
      ['/loans?sort=price&limit=1', forged(1, true, digest)],
      ['/loans?sort=price&limit=1', forged(1, { a: 1 }, digest)],
      ['/loans?sort=title&limit=1', forged(1, 'a\0', digest)], ['/loans?sort=price&limit=1', 'x']
    ]) {
      t.same((await app.inject(`${url}&after=${cursor}`)).json(),
        invalidBody('query', ['/after', 'must be a cursor from the Link header of a page']), `${url} ${cursor}`)
    }
    t.equal((await app.inject(`/loans?sort=price&limit=9&after=${sorted}`)).json().length, 3)
    // The process would end if nobody handled the error of the list while the records are counted.
    const { statusCode, headers } = await app.inject('/loans?limit=1&after=x&total=true')
    t.same([statusCode, headers['x-total-count']], [400, undefined])
  })

  t.test('a client that follows the pages of an order sees each record that stays exactly once', async t => {
    const store = await open(Array.from({ length: 60 },
      (_, n) => ({ id: n, member: n % 3, status: 'open' as const, ...n % 4 > 0 && { price: n % 5 } })))
    for (const sort of filters.flatMap(name => [name, `-${name}`] as const)) {
      const seen: number[] = []
      for (let page: Page<Loan> | undefined, n = 0; !page || page.next !== undefined; n++) {
        page = await store.select({ sort, limit: 7, after: page?.next })
        seen.push(...page.records.map(({ id }) => id))
        await store.append({ id: 1000 + n, member: n % 3, price: n % 5, status: 'open' })
        await store.change(1000 + n - 2, () => undefined)
      }
      const stayed = seen.filter(id => id < 1000)
      t.same([stayed.length, new Set(stayed).size], [60, 60], sort)
    }
  })

  t.test('a query of many records is read in parts, and a long result is a stream', async t => {
    const records = Array.from({ length: 12_000 },
      (_, id): Loan => ({
        id,
        member: id % 3,
        ...id % 2 && { price: id % 1000 },
        title: `${id % 700}`.padEnd(100, 'x'),
        status: id % 5 ? 'open' : 'late',
        ...id % 4 && { paid: id % 4 > 1 }
      }))
    const store = await open(records)
    for (const query of [
      { where: { 'price.gte': 0, paid: true } }, { where: { 'price.gte': 0, paid: true }, sort: '-member' },
      { where: { status: 'open' }, sort: 'price' }, { where: { status: 'open' }, sort: '-price' },
      { where: { member: 7 } }, { where: { 'title.gte': '69' }, sort: '-title' },
      { where: { member: undefined }, sort: '-paid' }
    ] as Query<Loan>[]) {
      const expected = selected(records,
        { where: JSON.parse(JSON.stringify({ ...query.where })), ...query.sort && { sort: query.sort } })
      t.ok(recordsOf(await store.select(query)) === JSON.stringify(expected), JSON.stringify(query))
      t.ok(await pagesOf(store, query, 1000) === JSON.stringify(expected), `${JSON.stringify(query)} in pages`)
      t.equal(await store.count({ where: query.where }), expected.length)
    }
    t.equal(await store.count({ limit: 10 }) >= 10, true)
    const [first] = records as [Loan]
    await store.change(0, current => ({ ...current, member: 99 }))
    t.equal(recordsOf(await store.select({ where: { member: 99 } })), JSON.stringify([{ ...first, member: 99 }]))
    for (const prefix of ['', '6', '\u{10ffff}', '\ud7ff', '\u{10ffff}\u{10ffff}']) {
      t.equal(await store.count({ where: { 'title.prefix': prefix } }),
        records.filter(({ title = '' }) => title.startsWith(prefix)).length)
    }
    await t.rejects(async () => store.select({ where: { nothing: 1 } } as object),
      { message: 'nothing is not a condition of this collection' })
    await t.rejects(async () => store.select({ sort: '-nothing' } as object),
      { message: 'This collection cannot be sorted by -nothing' })
  })

  async function open (seed: Loan[]) {
    return openLoans(t, address(), seed)
  }

  t.test('a query selects what its definition says, whole and in pages, and counts it', async t =>
    checkQueries(t, await open([])))

  if (engine === 'PostgreSQL') {
    t.test('a query that takes too long is cancelled and unavailable, and other collections are not', async t => {
      const url = address()
      const definitions = ['loans', 'others'].map(name => ({ name, schema: loanSchema, seed: some, filters }))
      const { store: storeOf } = await openStores(t, url, definitions,
        { timeout: 5000 }) // enough for the others on a busy machine
      const [store, other] = [storeOf('loans'), storeOf('others')]
      const blocker = new pg.Client(url)
      await blocker.connect()
      t.teardown(() => blocker.end())
      await blocker.query('begin; lock table loans in access exclusive mode')
      await Promise.all([
        t.rejects(async () => store.select({ where: { member: 7 }, sort: '-price' }),
          { code: 'ERR_STORE_UNAVAILABLE' }),
        t.rejects(async () => store.count({ where: { member: 7 } }), { code: 'ERR_STORE_UNAVAILABLE' })
      ])
      t.equal(await other.count({ where: { member: 7 } }), 2)
      const waiting = async () =>
        (await blocker.query("select from pg_locks where relation = 'loans'::regclass and not granted")).rowCount
      while (await waiting() !== 0) await setTimeout(20)
      t.pass('no query waits any more')
    })

    t.test('text is compared by code point, whatever the collation of the database is', async t => {
      const name = `icu_${process.pid}`
      const url = address().replace(/[^/]+$/, name)
      await query(`create database ${name} template template0 encoding 'UTF8' locale_provider icu icu_locale 'de-AT'`,
        address())
      t.same(await query("select 'a' < 'B' as isSmaller", url), [{ issmaller: true }], 'the database has another order')
      await checkQueries(t, await openLoans(t, url, []))
    })
  }
})

async function openLoans (t: Test, address: string, seed: Loan[], timeout = 60_000) {
  return openStore<Loan>(t, address, { name: 'loans', schema: loanSchema, seed, filters }, { timeout })
}

/** Compares random queries of an empty store with their definition. */
async function checkQueries (t: Test, store: Store<Loan>) {
  const model: Loan[] = []
  let found = 0
  await fc.assert(fc.asyncProperty(loans, fc.array(queries,
    { minLength: 20, maxLength: 40 }), fc.integer({ min: 1, max: 20 }), async (records, queries, limit) => {
    for (const { id } of model.splice(0)) await store.change(id, () => undefined)
    for (const record of records) await store.append(record)
    model.push(...records)
    for (const query of queries) {
      const expected = JSON.stringify(selected(model, query))
      const actual = recordsOf(await store.select(query as Query<Loan>))
      if (actual !== expected) throw new Error(`${JSON.stringify(query)}: ${actual} instead of ${expected}`)
      if (expected !== '[]') found++
      const pages = await pagesOf(store, query as Query<Loan>, limit)
      if (pages !== expected) {
        throw new Error(`${JSON.stringify(query)} in pages of ${limit}: ${pages} instead of ${expected}`)
      }
      const count = await store.count({ where: query.where })
      if (count !== JSON.parse(expected).length) throw new Error(`${JSON.stringify(query)}: ${count} records`)
    }
  }), { numRuns: 15, endOnFailure: true })
  t.ok(found > 100, `${found} queries find records`)
}

test('the document has each parameter with its type, values, format and description', async t => {
  const app = host(t)
  await app.register(docs)
  const properties = {
    id: { type: 'integer' },
    due: { type: 'string', format: 'date' },
    status: { type: 'string', enum: ['open', 'late'] }
  }
  app.register(collection,
    {
      prefix: '/loans',
      name: 'loans',
      schema: { type: 'object', required: ['id', 'status'], properties },
      filters: ['due', 'status']
    })
  const { parameters, description, responses } = (await app.inject('/openapi.json')).json().paths['/loans'].get
  const values = { type: 'array', maxItems: 100 }
  const due = { type: 'string', format: 'date' }
  const named = Object.fromEntries(parameters.map(({ name, ...parameter }: { name: string }) => [name, parameter]))
  t.match(named, {
    due: { schema: { ...values, items: due }, description: 'due is this value, or one of several' },
    'due.gt': { schema: due, description: 'due is greater than this value' },
    'due.lte': { schema: due, description: 'due is at most this value' },
    'due.prefix': { schema: { type: 'string' }, description: 'due is a text that begins with this one' },
    'due.exists': { schema: { type: 'boolean' }, description: 'Whether the record has due' },
    status: { schema: { ...values, items: { enum: ['open', 'late'] } } },
    sort: { schema: { enum: ['id', '-id', 'due', '-due', 'status', '-status'] } },
    total: { schema: { type: 'boolean' } }
  })
  t.notOk(named['due.prefix'].schema.format)
  t.match(description, /^The loans are in order of creation, or in that of `sort`\./)
  t.match(responses[200],
    { description: 'The loans that match, or one page', headers: { 'X-Total-Count': { schema: { type: 'integer' } } } })
})

test('filters that cannot work are one message at startup', async t => {
  for (const [fields, message] of [
    [['title', 'nothing'], 'filters/1 must be a field of the schema, and nothing is not.'],
    [['tags'], 'filters/0 must be a field that is a string, an integer, a number or a boolean, and tags is not.'],
    [['limit'], 'filters/0 has the parameter limit, which exists already.'],
    [['price', 'price.gt'], 'filters/1 has the parameter price.gt, which exists already.']
  ] as const) {
    const properties = {
      id: { type: 'integer' },
      title: { type: 'string' },
      price: { type: 'number' },
      'price.gt': { type: 'number' },
      limit: { type: 'integer' },
      tags: { type: 'array' }
    }
    const app = host(t)
    app.register(collection,
      { name: 'loans', schema: { type: 'object', required: ['id'], properties }, filters: fields })
    await t.rejects(async () => app.ready(), { message: `Invalid collection loans: ${message}` })
  }
})
