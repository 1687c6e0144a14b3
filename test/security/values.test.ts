import { Type } from '@sinclair/typebox'
import { test } from 'tap'
import { api, collection, stores } from '../../src/index.js'
import { build, host } from '../support/helper.js'

test('a body with many wrong values gets at most 50 problems, however deep they are', async t => {
  const app = host(t)
  const schema = Type.Object({ id: Type.Integer(), any: Type.Any() })
  app.register(collection, { prefix: '/things', name: 'things', schema })
  const send = (any: string) =>
    app.inject({ method: 'POST', url: '/things', headers: { 'content-type': 'application/json' }, body: `{"any":${any}}` })
  const halves = await send(JSON.stringify(Array(1000).fill('\ud800')))
  t.equal(halves.statusCode, 400)
  t.equal(halves.json().errors.length, 50)

  // The time of the longer one would be four times as long if each level were walked again.
  const seconds = async (depth: number) => {
    const start = process.cpuUsage().user
    const numbers = JSON.stringify(Array(20_000).fill(1))
    const response = await send(`${'['.repeat(depth)}"\\ud800",${numbers}${']'.repeat(depth)}`)
    t.match(response.json(), { detail: /must be well-formed Unicode text/ })
    return process.cpuUsage().user - start
  }
  await seconds(10)
  t.ok(await seconds(1000) < 20 * await seconds(10) + 1e6)
})

test('items ignore expand, like every parameter that they do not know', async t => {
  const app = build(t, { DOCS: 'false' })
  const { headers: { etag } } = await app.inject('/api/items/1')
  for (const query of ['expand=x', 'expand=a&expand=b']) {
    const response = await app.inject(`/api/items/1?${query}`)
    t.equal(response.body, '{"id":1,"name":"Lamp","price":42.5}')
    t.equal(response.headers.etag, etag)
  }
})

test('records that a hook of their own protects are not shown in others', async t => {
  const app = host(t)
  await app.register(stores)
  const Note = Type.Object({ id: Type.Integer() })
  const Comment = Type.Object({ id: Type.Integer(), note_id: Type.Integer() })
  const deny = async () => { throw Object.assign(new Error('No'), { statusCode: 403 }) }
  app.register(collection, {
    prefix: '/notes', name: 'notes', schema: Note, seed: [{ id: 1 }], routes: { get: { preHandler: deny } }
  })
  app.register(collection, {
    prefix: '/comments',
    name: 'comments',
    schema: Comment,
    seed: [{ id: 1, note_id: 1 }],
    references: { note_id: 'notes' }
  })
  t.equal((await app.inject('/comments/1')).statusCode, 200)
  const response = await app.inject('/comments/1?expand=note_id')
  t.equal(response.statusCode, 403)
  t.equal(response.json().detail, 'The records of notes cannot be read with expand')
})

test('headers of own routes are validated like everything else', async t => {
  const app = host(t)
  await app.register(api)
  const headers = Type.Object({ 'X-Tenant': Type.Integer() })
  app.get('/own', { schema: { headers } }, async request => ({ tenant: request.headers['x-tenant'] }))
  t.equal((await app.inject('/own')).json().detail, 'Invalid headers: x-tenant is required.')
  t.equal((await app.inject({ url: '/own', headers: { 'x-tenant': 'abc' } })).statusCode, 400)
  t.same((await app.inject({ url: '/own', headers: { 'x-tenant': '7' } })).json(), { tenant: 7 })
})
