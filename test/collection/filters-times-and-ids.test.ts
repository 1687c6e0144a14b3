import { writeFileSync } from 'node:fs'
import createClient from 'openapi-fetch'
import openapiTS, { astToString } from 'openapi-typescript'
import { test } from 'tap'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build, invalidBody } from '../support/helper.js'
import { serveShop, shop } from './shop.js'

const events = {
  items: null,
  users: null,
  events: {
    schema: {
      type: 'object',
      required: ['id'],
      properties: {
        id: { type: 'integer' },
        category: { enum: ['a', 'b'] },
        place: { type: ['string', 'null'] },
        level: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
        code: { enum: ['x', 'y', null] },
        at: { type: 'string', format: 'date-time' },
        slot: { type: 'string', format: 'date-time' }
      }
    },
    filters: ['category', 'place', 'level', 'at'],
    unique: ['code', 'slot']
  }
}

const idsOf = (body: { id: number }[]) => body.map(({ id }) => id)

onEveryEngine((t, address, engine) => {
  t.test('a collection of its own can always be filtered and sorted by id', async t => {
    const send = serveShop(t, address(),
      { notes: { schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' } } } } })
    await send('POST', '/notes/batch', [{}, {}, {}])
    t.same(idsOf((await send('GET', '/notes?id=3&id=1')).body), [1, 3])
    t.same(idsOf((await send('GET', '/notes?sort=-id&limit=2')).body), [3, 2])
    const { body, headers } = await send('GET', '/notes?id.gt=1&total=true')
    t.same([idsOf(body), headers['x-total-count']], [[2, 3], '2'])
  })

  t.test('unknown parameters are 400, except for items and users', async t => {
    const send = serveShop(t, address(),
      { notes: { schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' } } } } })
    await send('POST', '/notes', {})
    for (const url of ['/notes?utm=x', '/notes/1?utm=x']) {
      t.same((await send('GET', url)).body, invalidBody('query', ['/utm', 'is not a known parameter']))
    }
    for (const url of ['/items?utm=x&id=7&sort=none', '/items/1?utm=x', '/users?total=maybe&limit=1']) {
      t.equal((await send('GET', url)).status, 200)
    }
  })

  t.test('fields with an enum, and fields that can be null, are filters; null is like absent', async t => {
    const send = serveShop(t, address(), events)
    await send('POST', '/events/batch',
      [{ category: 'a', place: 'x', level: 1 }, { category: 'b', place: null, level: null }, {}])
    for (const [query, ids] of [
      ['category=a', [1]], ['category.gt=a', [2]], ['place=x', [1]], ['place.exists=false', [2, 3]],
      ['level.exists=true', [1]], ['level.gte=0', [1]],
      ['sort=level', [2, 3, 1]], ['sort=-place', [1, 3, 2]]
    ] as const) t.same(idsOf((await send('GET', `/events?${query}`)).body), ids, query)
    t.same((await send('GET', '/events?category=c')).body, invalidBody('query', ['/category', 'must be one of a, b']))
    t.same((await send('GET', '/events/2')).body, { id: 2, category: 'b', place: null, level: null })
    for (const [code, status] of [['x', 201], ['x', 409], [null, 201], [null, 201]] as const) {
      t.equal((await send('POST', '/events', { code })).status, status)
    }
  })

  t.test('date-times are compared as times, and the record keeps its text', async t => {
    const send = serveShop(t, address(), events)
    const times = [
      '2026-11-19T10:00:00+02:00', '2026-11-19T09:00:00Z', '2026-11-19t08:00:00.000z', '2026-11-19T08:00:00.001Z',
      '2026-11-18T23:30:00-09:00',
      '2026-11-19T13:29:59.5+05:30', '0001-01-01T00:00:00+01:00', '2016-12-31T23:59:60Z', '2016-12-31T23:59:59.999Z',
      '2017-01-01T00:00:00Z'
    ]
    await send('POST', '/events/batch', times.map(at => ({ at })))
    for (const [query, ids] of [
      ['at=2026-11-19T08:00:00Z', [1, 3]], ['at=2026-11-19T09:00:00%2B01:00', [1, 3]],
      ['at.gt=2026-11-19T08:00:00Z', [2, 4, 5]], ['at.lt=2026-11-19T08:00:00%2B00:00&at.gte=2026-01-01T00:00:00Z', [6]],
      ['sort=at', [7, 9, 8, 10, 6, 1, 3, 4, 5, 2]], ['at.prefix=2026-11-19T08:3', [5]]
    ] as const) t.same(idsOf((await send('GET', `/events?${query}`)).body), ids, query)
    t.same((await send('GET', '/events')).body.map(({ at }: { at: string }) => at), times)
    t.equal((await send('GET', '/events?at=2026-11-19')).status, 400)
    t.equal((await send('POST', '/events', { slot: '2026-01-01T01:00:00+01:00' })).status, 201)
    t.equal((await send('POST', '/events', { slot: '2026-01-01T00:00:00.000Z' })).body.detail,
      'Conflict: slot is already used.')
  })

  t.test('the link of a page keeps the query as the client has written it', async t => {
    const send = serveShop(t, address(), events)
    await send('POST', '/events/batch',
      [{ place: '\ufffd 1' }, { place: '\ufffd 2' }, { place: '%FF 3' }, { place: '%FF 4' }])
    for (const [query, first] of [
      ['place.prefix=%FF&limit=1', 3], ['limit=1&place.prefix=%ef%bf%bd', 1], ['limit=1&&place.prefix=%EF%BF%BD+', 1]
    ] as const) {
      const { status, body, headers } = await send('GET', `/events?${query}`)
      t.same([status, idsOf(body)], [200, [first]], query)
      const [, next = ''] = /<(.+)>; rel="next"/.exec(String(headers.link)) ?? []
      t.equal(next.replace(/&after=.*/, ''), `?${query.replace('&&', '&')}`)
      const { status: second, body: others } = await send('GET', `/events${next}`)
      t.same([second, idsOf(others)], [200, [first + 1]], next)
    }
  })

  t.test('a 409 of a batch names all records that conflict, up to 50', async t => {
    const send = serveShop(t, address(),
      {
        notes: {
          schema: {
            type: 'object',
            required: ['id'],
            properties: { id: { type: 'integer' }, code: { type: 'integer' } }
          },
          unique: ['code']
        }
      })
    await send('POST', '/notes/batch', Array.from({ length: 100 }, (_, code) => ({ code })))
    const { status, body } = await send('POST', '/notes/batch', [{ code: 5 }, { code: 500 }, { code: 7 }])
    t.same([status, body],
      [
        409,
        {
          ...invalidBody('body', ['/0/code', 'is already used'], ['/2/code', 'is already used']),
          detail: 'Conflict: 0/code is already used, 2/code is already used.'
        }
      ])
    t.equal((await send('POST', '/notes/batch',
      Array.from({ length: 100 }, (_, code) => ({ code })))).body.errors.length,
    50)
    t.equal((await send('GET', '/notes')).body.length, 100)
  })

  t.test('an initial record with a wrong reference is the same message on every engine', async t => {
    const send = serveShop(t, address(), {
      tree: {
        schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, up: { type: 'integer' } } },
        references: { up: 'tree' },
        seed: [{ id: 1, up: 9 }, { id: 2, up: 5 }, { id: 3, up: 9 }]
      }
    })
    await t.rejects(send('GET', '/tree'),
      { message: /\n {2}tree\.up must be the id of a record of tree, but 2 values, such as 5, are not\./ }, engine)
  })
})

const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
const uuid7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

onEveryEngine((t, address) => {
  t.test('timestamps are set when a record is created and changed', async t => {
    const send = serveShop(t, address())
    await send('POST', '/members', { email: 'a' })
    const { body: created } = await send('POST', '/rentals', { member_id: 1, created_at: 'x', updated_at: 5 })
    t.match(created.created_at, time)
    t.equal(created.updated_at, created.created_at)
    const { body: many } = await send('POST', '/rentals/batch', [{ member_id: 1 }, { member_id: 1 }])
    t.equal(many[0].created_at, many[1].updated_at, 'all records of a batch have the same time')
    const { body: patched } = await send('PATCH', '/rentals/1',
      { due: '2026-01-01T00:00:00Z', created_at: '2000-01-01T00:00:00Z' })
    const { body: replaced } = await send('PUT', '/rentals/1', { member_id: 1 })
    for (const changed of [patched, replaced]) {
      t.equal(changed.created_at, created.created_at)
      t.ok(changed.updated_at >= created.created_at)
    }
    t.same((await send('GET', '/rentals/1')).body, replaced)
  })

  t.test('a collection can be filtered and sorted by its timestamps', async t => {
    const send = serveShop(t, address(),
      { ...shop, notes: { schema: shop.members.schema, timestamps: true, filters: ['created_at'] } })
    const { body: [first, second] } = await send('POST', '/notes/batch', [{ email: 'a' }, { email: 'b' }])
    t.same((await send('GET', `/notes?created_at=${first.created_at}&sort=-id`)).body, [second, first])
    t.same((await send('GET', `/notes?created_at.gt=${first.created_at}`)).body, [])
  })

  t.test('the service generates UUIDs of version 7 for ids that are texts', async t => {
    const send = serveShop(t, address())
    const { body: tool, headers } = await send('POST', '/tools', { name: 'saw' })
    t.match(tool.id, uuid7)
    t.equal(headers.location, `./tools/${tool.id}`)
    t.same((await send('GET', `/tools/${tool.id}`)).body, tool)
    const { body: many } = await send('POST', '/tools/batch', [{ name: 'axe' }, { name: 'nail' }])
    t.same((await send('GET', '/tools')).body, [tool, ...many])
    t.equal((await send('PATCH', `/tools/${tool.id}`, { name: 'drill' })).body.name, 'drill')
    t.equal((await send('PUT', `/tools/${tool.id}`, { id: tool.id, name: 'saw' })).status, 200)
    t.same((await send('PUT', `/tools/${tool.id}`, { id: 'other' })).body,
      invalidBody('body', ['/id', 'must be the id in the path']))
    const ids = many.map(({ id }: { id: string }) => id)
    t.same((await send('GET', `/tools?id=${ids[1]}&id=${ids[0]}`)).body, many)
    t.same((await send('GET', '/tools?sort=-id')).body.map(({ id }: { id: string }) => id),
      [tool.id, ...ids].sort().reverse())
    t.equal((await send('DELETE', `/tools/${tool.id}`)).status, 204)
    for (const id of [tool.id, 'none', '%00', '%20', 'x'.repeat(300)]) {
      t.equal((await send('GET', `/tools/${id}`)).status, 404, id)
    }
  })

  t.test('clients can choose texts as ids, which are unique', async t => {
    const send = serveShop(t, address(), { ...shop, tools: { ...shop.tools, idSource: 'client' } })
    const ids = ['saw', 'a b', 'ä/'.slice(0, 1), '%', '?#', '..x', '😀', 'x'.repeat(255), 'batch', '0', "it's"]
    for (const id of ids) {
      const { status, body, headers } = await send('POST', '/tools', { id })
      t.same([status, body, headers.location], [201, { id }, `./tools/${encodeURIComponent(id)}`])
      t.same((await send('GET', `/tools/${encodeURIComponent(id)}`)).body, { id })
    }
    t.same((await send('POST', '/tools', { id: 'saw' })).body,
      { ...invalidBody('body', ['/id', 'is already used']), detail: 'Conflict: id is already used.' })
    const message = 'must be a text without / that is not ., .. or summary'
    for (const [id, problem] of [
      ['', 'must not be empty'], ['a/b', message], ['.', message], ['..', message], ['summary', message],
      ['x'.repeat(256), 'must not have more than 255 characters'], [5, 'must be a string']
    ]) {
      t.same((await send('POST', '/tools', { id })).body.errors.at(-1), { in: 'body', path: '/id', message: problem },
        String(id))
    }
    t.match((await send('POST', '/tools', { id: 'a\0' })).body.detail, /NUL/)
    const seen: string[] = []
    for (let next: string | undefined = '/tools?limit=3&sort=id'; next;) {
      const { body, headers } = await send('GET', next)
      seen.push(...body.map(({ id }: { id: string }) => id))
      const [, query] = /<(.+)>/.exec(String(headers.link)) ?? []
      next = headers.link ? `/tools${query}` : undefined
    }
    t.same(seen, ids.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other))))
  })

  t.test('a retry with a key gets the same text as id, and references to it are texts', async t => {
    const send = serveShop(t, address())
    const key = { 'idempotency-key': 'k' }
    const [{ body: tool }, { body: again }] = [
      await send('POST', '/tools', {}, key), await send('POST', '/tools', {}, key)
    ]
    t.same(tool, again)
    await send('POST', '/members', { email: 'a' })
    t.equal((await send('POST', '/rentals', { member_id: 1, tool_id: tool.id })).status, 201)
    t.equal((await send('POST', '/rentals', { member_id: 1, tool_id: 'none' })).body.detail,
      'Conflict: tool_id must be the id of a record of tools.')
    t.equal((await send('DELETE', `/tools/${tool.id}`)).body.detail, 'Conflict: it is referred to by rentals.')
    t.equal((await send('GET', `/rentals?tool_id=${tool.id}`)).body.length, 1)
  })
})

test('a typed client works with ids that are texts', async t => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify(shop))
  const app = build(t, { COLLECTIONS_FILE: file })
  const url = await app.listen({ port: 0 })
  const types = astToString(await openapiTS((await app.inject('/openapi.json')).body))
  t.match(types, /getTool: {\s+parameters: {.+?path: {[^}]*?\bid: string;/s)
  const client = createClient<any>({ baseUrl: url })
  const { data: tool } = await client.POST('/api/tools', { body: { name: 'saw' } })
  t.match(tool.id, /^[\da-f]{8}-[\da-f]{4}-7/)
  t.same((await client.GET('/api/tools/{id}', { params: { path: { id: tool.id } } })).data, tool)
})
