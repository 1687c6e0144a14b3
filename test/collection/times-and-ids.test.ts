import { onEveryEngine } from '../support/engines.js'
import { invalidBody } from '../support/helper.js'
import { serveShop, shop } from './shop.js'

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
