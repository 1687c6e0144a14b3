import Fastify, { type FastifyInstance } from 'fastify'
import { Type, type Static } from '@sinclair/typebox'
import type { Test } from 'tap'
import { api, auth, collection, docs, stores, type Stores } from '../src/index.js'
import { onEveryEngine } from './support/engines.js'

const Member = Type.Object({ id: Type.Integer(), email: Type.String({ format: 'email' }) })
const Tool = Type.Object({
  id: Type.String(),
  name: Type.String(),
  category: Type.Unsafe<string>({ enum: ['saw', 'drill'] }),
  daily_cents: Type.Integer({ minimum: 0 })
})
const Rental = Type.Object({
  id: Type.Integer(),
  member_id: Type.Integer(),
  tool_id: Type.String(),
  days: Type.Integer({ minimum: 1 }),
  returned: Type.Optional(Type.String({ format: 'date-time' }))
})
const Payment = Type.Object({
  id: Type.Integer(),
  rental_id: Type.Integer(),
  cents: Type.Integer(),
  paid_at: Type.String({ format: 'date-time' })
})

interface Records {
  members: Static<typeof Member>
  tools: Static<typeof Tool>
  rentals: Static<typeof Rental>
  payments: Static<typeof Payment>
}

/** The rental shop: four collections, and the return of a tool as a route of its own. */
async function shop (app: FastifyInstance, { rental = {} }: { rental?: object }) {
  const till = { token: 'till', scopes: ['payments:write', 'rentals:read'] }
  await app.register(auth, { tokens: ['clerk', till], publicScopes: ['tools:read'] })
  app.register(collection, { prefix: '/members', name: 'members', schema: Member, unique: ['email'] })
  app.register(collection, { prefix: '/tools', name: 'tools', schema: Tool, filters: ['category', 'name'] })
  app.register(collection, {
    prefix: '/rentals',
    name: 'rentals',
    schema: Rental,
    filters: ['returned'],
    references: { member_id: 'members', tool_id: 'tools' },
    timestamps: true,
    ...rental
  })
  const ofPayment = { unique: ['rental_id'], references: { rental_id: 'rentals' }, filters: ['cents', 'paid_at'] }
  app.register(collection, { prefix: '/payments', name: 'payments', schema: Payment, ...ofPayment })
  app.register(returns, { prefix: '/rentals' })
}

interface Return { Params: { id: number }, Body: { returned: string } }

async function returns (app: FastifyInstance) {
  await app.register(api)
  const shop = app.getDecorator<Stores<Records>>('stores')
  const schema = {
    operationId: 'returnTool',
    tags: ['rentals'],
    params: Type.Object({ id: Type.Integer() }),
    body: Type.Object({ returned: Type.String({ format: 'date-time' }) })
  }
  const options = { schema, config: { collection: 'rentals' } }
  app.post<Return>('/:id/return', options, async function returnTool ({ params, body }, reply) {
    return shop.transaction(async ({ rentals, tools, payments }) => {
      const rental = await rentals.change(params.id, rental => {
        if (rental.returned) throw Object.assign(new Error('The tool is back already'), { statusCode: 409 })
        return { ...rental, returned: body.returned }
      })
      if (!rental) return reply.code(404).send({ detail: 'Not found' })
      const tool = await tools.first(rental.tool_id)
      const cents = rental.days * Number(tool?.daily_cents)
      return payments.append({ rental_id: rental.id, cents, paid_at: body.returned })
    })
  })
}

async function open (t: Pick<Test, 'teardown'>, store: string, options = {}) {
  const app = Fastify({ pluginTimeout: 0 })
  t.teardown(() => app.close())
  await app.register(docs)
  await app.register(stores, { store, databaseTimeout: 60_000 })
  app.register(shop, { prefix: '/api', ...options })
  await app.ready()
  const send = async (method: 'GET' | 'POST', url: string, payload?: object, token = 'clerk') => {
    const headers = token ? { authorization: `Bearer ${token}` } : {}
    const response = await app.inject({ method, url: `/api${url}`, payload, headers })
    return { status: response.statusCode, body: response.json(), total: response.headers['x-total-count'] }
  }
  return { app, send }
}

onEveryEngine((t, address, engine) => {
  t.test('a tool-rental shop rents, takes back and counts', async t => {
    const url = address()
    const { app, send } = await open(t, url)
    await send('POST', '/members/batch', [{ email: 'ada@example.com' }, { email: 'grace@example.com' }])
    t.same((await send('POST', '/members', { email: 'ada@example.com' })).status, 409)
    const { body: tools } = await send('POST', '/tools/batch',
      [{ name: 'big', category: 'saw', daily_cents: 500 }, { name: 'small', category: 'drill', daily_cents: 250 }])
    t.same((await send('GET', '/tools?category=saw', undefined, '')).body, [tools[0]])
    t.equal((await send('GET', '/members', undefined, '')).status, 401)

    for (const [member, tool, days] of [[1, 0, 2], [2, 1, 1], [1, 1, 4]] as const) {
      t.equal((await send('POST', '/rentals', { member_id: member, tool_id: tools[tool].id, days })).status, 201)
    }
    t.match((await send('POST', '/rentals', { member_id: 7, tool_id: 'none', days: 1 })).body.detail,
      /^Conflict: member_id must be .+, tool_id must be/)

    const returned = '2026-11-19T10:00:00+01:00'
    t.same(await send('POST', '/rentals/1/return', { returned }),
      { status: 200, body: { id: 1, rental_id: 1, cents: 1000, paid_at: returned }, total: undefined })
    t.same((await send('POST', '/rentals/1/return', { returned })).body, { detail: 'The tool is back already' })
    t.equal((await send('POST', '/rentals/9/return', { returned })).status, 404)
    t.match((await send('POST', '/rentals/2/return', { returned: 'now' })).body,
      { detail: 'Invalid body: returned must match the format date-time.', errors: [{ path: '/returned' }] })
    t.equal((await send('POST', '/rentals/2/return', { returned }, 'till')).status, 403)

    // The till has taken the money already, so nothing is written.
    await send('POST', '/payments', { rental_id: 3, cents: 1, paid_at: '2026-12-01T00:00:00Z' }, 'till')
    t.equal((await send('POST', '/rentals/3/return', { returned })).body.detail, 'Conflict: rental_id is already used.')
    t.equal((await send('GET', '/rentals/3')).body.returned, undefined)

    t.same((await send('GET', '/rentals?returned.exists=false&sort=-member_id&total=true')).total, '2')
    const { body: [rental] } = await send('GET', '/rentals?limit=1&expand=member_id,tool_id')
    t.same(rental.expand, { member_id: { id: 1, email: 'ada@example.com' }, tool_id: tools[0] })
    t.same((await send('GET', '/payments/summary?sum=cents&group=paid_at.month')).body,
      [{ 'paid_at.month': '2026-11', sum: { cents: 1000 } }, { 'paid_at.month': '2026-12', sum: { cents: 1 } }])
    const { paths } = (await app.inject('/openapi.json')).json()
    t.match(paths['/api/rentals/{id}/return'].post, { operationId: 'returnTool', tags: ['rentals'] })
    await app.close()

    if (engine === 'memory') return
    // A release later, a field has another name, and there is a new one.
    const { returned: at, ...fields } = Rental.properties
    const schema = Type.Object({ ...fields, back_at: at, deposit_cents: Type.Integer({ default: 0 }) })
    const next = await open(t, url, { rental: { schema, renames: { returned: 'back_at' }, filters: ['back_at'] } })
    t.match((await next.send('GET', '/rentals?back_at=2026-11-19T09:00:00Z')).body,
      [{ id: 1, back_at: returned, deposit_cents: 0 }])
  })
})
