import { writeFileSync } from 'node:fs'
import { Type, type Static } from '@sinclair/typebox'
import fc from 'fast-check'
import { test } from 'tap'
import { onDatabases } from '../support/databases.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { start } from '../support/process.js'
import { serve } from '../support/serve.js'

const Member = Type.Object({
  id: Type.Integer(),
  email: Type.Optional(Type.String()),
  card: Type.Optional(Type.Number()),
  name: Type.Optional(Type.String({ description: 'Full name' }))
})
type MemberRecord = Static<typeof Member>

const members = { name: 'members', schema: Member, unique: ['email', 'card'] }
const loans = {
  name: 'loans',
  schema: Type.Object({ id: Type.Integer(), member_id: Type.Integer(), book: Type.Optional(Type.String()) }),
  references: { member_id: 'members' }
}
/** Employees who have a boss and a department, which has a head. */
const employees = {
  name: 'employees',
  schema: Type.Object({
    id: Type.Integer(),
    boss: Type.Optional(Type.Integer()),
    department: Type.Optional(Type.Integer())
  }),
  idSource: 'client' as const,
  unique: ['id'],
  references: { boss: 'employees', department: 'departments' }
}
const departments = {
  name: 'departments',
  schema: Type.Object({ id: Type.Integer(), head: Type.Optional(Type.Integer()) }),
  references: { head: 'employees' }
}

/** The body of a 409. */
const conflict = (path: string, message = 'is already used') =>
  ({
    detail: `Conflict: ${path.slice(1) || 'it'} ${message}.`,
    errors: [{ in: path ? 'body' : 'request', path, message }]
  })

const statuses = (responses: { status: number }[], status: number) =>
  responses.filter(response => response.status === status).length
const times = <R>(count: number, make: (n: number) => R) => Array.from({ length: count }, (_, n) => make(n))

onEveryEngine((t, address, engine) => {
  t.test('no two records have the same value of a unique field', async t => {
    const { send } = await serve(t, address(), members)
    const { body: ada } = await send('POST', '/members', { email: 'ada@example.com', card: 0 })
    const { body: bob } = await send('POST', '/members', { email: 'bob@example.com', name: 'Bob' })
    for (const [method, url, body, path] of [
      ['POST', '/members', { email: 'ada@example.com' }, '/email'],
      ['POST', '/members', { email: 'eve@example.com', card: -0 }, '/card'],
      ['PUT', `/members/${bob.id}`, { email: 'ada@example.com' }, '/email'],
      ['PATCH', `/members/${bob.id}`, { email: 'ada@example.com' }, '/email']
    ] as const) {
      const response = await send(method, url, body)
      t.equal(response.status, 409, method)
      t.same(response.body, conflict(path))
      t.equal(response.headers['retry-after'], undefined)
    }
    t.same((await send('GET', '/members')).body, [ada, bob], 'nothing is stored')
    t.equal((await send('PATCH', `/members/${bob.id}`, { email: 'bob@example.com', name: 'Robert' })).status, 200,
      'a record keeps its own value')
    for (const body of [{}, {}, { email: 'Ada@example.com' }, { email: '' }, { email: 'ada@example.com ' }]) {
      t.equal((await send('POST', '/members', body)).status, 201)
    }
    t.same((await send('POST', '/members', {})).body, { id: 8 }, 'a conflict uses no id')
    t.equal((await send('PATCH', `/members/${ada.id}`, { email: null })).status, 200)
    t.equal((await send('POST', '/members', { email: 'ada@example.com' })).status, 201, 'the value is free again')
    await send('DELETE', `/members/${bob.id}`)
    t.equal((await send('POST', '/members', { email: 'bob@example.com' })).status, 201)
  })

  t.test('a unique field can be filtered by equality', async t => {
    const seed = [{ id: 1, email: 'a' }, { id: 2, email: 'b' }, { id: 3 }]
    const { send } = await serve(t, address(), { ...members, seed })
    t.same((await send('GET', '/members?email=b')).body, [seed[1]])
    t.same((await send('GET', '/members?email=b&email=a&email=c&total=true')).body, seed.slice(0, 2))
    for (const parameter of ['email.gt=a', 'email.exists=true', 'sort=email', 'mail=a']) {
      t.equal((await send('GET', `/members?${parameter}`)).status, 400, parameter)
    }
    const both = await serve(t, address(), { ...members, filters: ['email'], seed })
    t.same((await both.send('GET', '/members?email.gte=b')).body, [seed[1]])
    t.same((await both.send('GET', '/members?sort=-email')).body, [seed[1], seed[0], seed[2]])
  })

  t.test('one conflict in an array prevents all of its records, and has the index of its record', async t => {
    const { send } = await serve(t, address(), members, loans, employees, departments)
    const { body: ada } = await send('POST', '/members', { email: 'a' })
    const array = (conflicting: object, at = 17) => times(20, n => n === at ? conflicting : { email: `m${n}` })
    for (const [url, body, path, message] of [
      ['/members/batch', array({ email: 'a' }), '/17/email', undefined],
      ['/members/batch', array({ email: 'a' }, 0), '/0/email', undefined],
      ['/members/batch', array({ email: 'm3' }), '/17/email', undefined],
      [
        '/loans/batch', [{ member_id: ada.id }, { member_id: 99 }], '/1/member_id',
        'must be the id of a record of members'
      ],
      [
        '/employees/batch', [{ id: 1, boss: 2 }, { id: 2, boss: 3 }], '/1/boss',
        'must be the id of a record of employees'
      ],
      ['/employees/batch', [{ id: 1 }, { id: 2 }, { id: 1 }], '/2/id', undefined]
    ] as const) {
      const response = await send('POST', url, body as object, { 'idempotency-key': 'array' })
      t.equal(response.status, 409, path)
      t.same(response.body, conflict(path, message))
    }
    t.same((await send('GET', '/members')).body, [ada])
    t.same((await send('GET', '/employees')).body, [])
    const again = await send('POST', '/members/batch', array({ email: 'free' }), { 'idempotency-key': 'array' })
    t.equal(again.body.length, 20, 'the key can be used again')
    t.equal((await send('POST', '/employees/batch', [{ id: 1, boss: 2 }, { id: 2, boss: 1 }])).status, 201,
      'records refer to others of the array')
  })

  t.test('a key works after a conflict, a retry gets its answer, and preconditions come first', async t => {
    const { send } = await serve(t, address(), members)
    const first = await send('POST', '/members', { email: 'a' }, { 'idempotency-key': '1' })
    const retries = await Promise.all([
      send('POST', '/members', { email: 'a' }, { 'idempotency-key': '1' }), send('POST', '/members', { email: 'a' }),
      send('POST', '/members', { email: 'a' }, { 'idempotency-key': '2' }),
      send('POST', '/members', { email: 'b' }, { 'idempotency-key': '3' })
    ])
    t.same(retries.map(({ status }) => status), [201, 409, 409, 201])
    t.same(retries[0].body, first.body)
    t.equal((await send('POST', '/members', { email: 'c' }, { 'idempotency-key': '2' })).status, 201)
    t.equal((await send('POST', '/members', { email: 'd' }, { 'idempotency-key': '2' })).status, 422)
    const { etag } = (await send('GET', '/members/1')).headers
    const changes = await Promise.all(['"x"', String(etag), String(etag)].map((tag, n) =>
      send('PATCH', '/members/1', { email: n === 2 ? 'e' : 'b' }, { 'if-match': tag })))
    t.same(changes.map(({ status }) => status), [412, 409, 200])
    const mixed = await Promise.all([1, 99, retries[3].body.id].map(id =>
      send('PATCH', `/members/${id}`, { email: 'b' })))
    t.same(mixed.map(({ status }) => status), [409, 404, 200])
  })

  t.test('a reference must exist, and what others refer to cannot be deleted', async t => {
    const { send } = await serve(t, address(), loans, members)
    t.same((await send('POST', '/loans', { member_id: 1 })).body,
      conflict('/member_id', 'must be the id of a record of members'))
    await send('POST', '/members', {})
    t.equal((await send('POST', '/loans', { member_id: 1 })).status, 201)
    for (const [method, body] of [['PUT', { member_id: 2 }], ['PATCH', { member_id: -1 }]] as const) {
      const response = await send(method, '/loans/1', body)
      t.equal(response.status, 409)
      t.same(response.body, conflict('/member_id', 'must be the id of a record of members'))
    }
    t.same((await send('GET', '/loans?member_id=1&sort=-member_id')).body, [{ id: 1, member_id: 1 }])
    t.equal((await send('PATCH', '/members/1', { email: 'a' })).status, 200)
    const refused = await send('DELETE', '/members/1')
    t.equal(refused.status, 409)
    t.same(refused.body, conflict('', 'is referred to by loans'))
    t.equal((await send('DELETE', '/loans/1')).status, 204)
    t.equal((await send('DELETE', '/members/1')).status, 204)
  })

  t.test('a collection can refer to itself, and two collections to each other', async t => {
    const { send } = await serve(t, address(), { ...employees, seed: [{ id: 1, boss: 1, department: 1 }] },
      { ...departments, seed: [{ id: 1, head: 1 }] })
    const all = await Promise.all([
      send('POST', '/employees', { id: 2, boss: 2 }), send('POST', '/employees', { id: 3, boss: 1, department: 1 }),
      send('POST', '/employees', { id: 3 }),
      send('POST', '/employees', { id: 4, boss: 9 }), send('POST', '/employees', { id: 5, boss: 2 }),
      send('POST', '/employees', { id: 6, department: 9 })
    ])
    t.same(all.map(({ status }) => status), [201, 201, 409, 409, 201, 409])
    t.same(all[2].body, conflict('/id'))
    t.same(all[5].body, conflict('/department', 'must be the id of a record of departments'))
    const gone = await Promise.all([
      send('DELETE', '/employees/1'), send('DELETE', '/employees/2'), send('DELETE', '/employees/5')
    ])
    t.same(gone.map(({ status }) => status).slice(0, 1), [409])
    t.equal((await send('DELETE', '/departments/1')).status, 409)
    t.equal((await send('DELETE', '/employees/3')).status, 204)
    await send('PATCH', '/employees/1', { department: null })
    t.equal((await send('DELETE', '/departments/1')).status, 204)
    t.equal((await send('DELETE', '/employees/1')).status, 204, 'a record that refers to itself')
  })

  t.test('a deletion and a new reference never both succeed', async t => {
    const url = address()
    const instances = await Promise.all(times(engine === 'PostgreSQL' ? 2 : 1, () => serve(t, url, members, loans)))
    const instance = (n: number) => instances[n % instances.length] as typeof instances[0]
    await Promise.all(times(30, n => instance(n).send('POST', '/members', {})))
    const outcomes = await Promise.all(times(60, n => n % 2
      ? instance(n >> 1).send('DELETE', `/members/${(n >> 1) + 1}`)
      : instance(n % 3).send('POST', '/loans', { member_id: (n >> 1) + 1 })))
    for (const [n, { status }] of outcomes.entries()) {
      if (n % 2) t.not(status === 204, outcomes[n - 1]?.status === 201, `member ${n >> 1}`)
    }
    const [stored, lent] = await Promise.all(['members', 'loans'].map(async name =>
      (await instance(0).send('GET', `/${name}`)).body as { id: number, member_id: number }[]))
    t.ok(lent?.every(({ member_id: id }) => stored?.some(member => member.id === id)))
  })

  t.test('random requests have the responses of a model, and simultaneous ones keep the constraints', async t => {
    const Node = Type.Object({
      id: Type.Integer(),
      a: Type.Optional(Type.Integer()),
      b: Type.Optional(Type.Integer()),
      code: Type.Optional(Type.Integer())
    })
    const nodes = ['a', 'b'].map(name => ({
      name,
      schema: { ...Node, title: name },
      idSource: 'client' as const,
      unique: ['id', 'code'],
      references: { a: 'a', b: 'b' }
    }))
    const { send } = await serve(t, address(), ...nodes)
    const small = fc.integer({ min: 1, max: 4 })
    const request = fc.record({
      method: fc.constantFrom('POST' as const, 'POST' as const, 'PUT' as const, 'DELETE' as const),
      name: fc.constantFrom('a' as const, 'b' as const),
      record: fc.record({ id: small, a: small, b: small, code: small }, { requiredKeys: ['id'] })
    })
    type Request = typeof request extends fc.Arbitrary<infer R> ? R : never
    const run = ({ method, name, record }: Request) =>
      send(method, method === 'POST' ? `/${name}` : `/${name}/${record.id}`, method === 'DELETE' ? undefined : record)
    const read = async () => ({
      a: (await send('GET', '/a')).body as Request['record'][],
      b: (await send('GET', '/b')).body as Request['record'][]
    })
    await fc.assert(fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 6 }), async requests => {
      const [first] = requests as [Request]
      const before = await read()
      if (requests.length < 3) {
        t.equal((await run(first)).status, expected(before, first),
          JSON.stringify([before, first]))
      } else {
        t.ok((await Promise.all(requests.map(run))).every(({ status }) =>
          [200, 201, 204, 404, 409].includes(status)))
      }
      const after = await read()
      for (const record of [...after.a, ...after.b]) {
        for (const name of ['a', 'b'] as const) {
          t.ok(record[name] === undefined || after[name].some(({ id }) => id === record[name]))
        }
      }
      for (const values of [after.a, after.b].flatMap(records =>
        ['id', 'code'].map(name => records.flatMap((record): unknown => Reflect.get(record, name) ?? [])))) {
        t.equal(new Set(values).size, values.length)
      }
    }), { numRuns: 60, seed: 7 })

    function expected (state: Awaited<ReturnType<typeof read>>, { method, name, record }: Request) {
      const exists = state[name].some(({ id }) => id === record.id)
      if (method !== 'POST' && !exists) return 404
      const others = state[name].filter(({ id }) => id !== record.id)
      if (method === 'DELETE') {
        return [...others, ...state[name === 'a' ? 'b' : 'a']].some(other => other[name] === record.id) ? 409 : 204
      }
      const isMissing = (target: 'a' | 'b') =>
        record[target] !== undefined && !(target === name && record[target] === record.id) &&
          !state[target].some(({ id }) => id === record[target])
      const isUsed = record.code !== undefined && others.some(({ code }) => code === record.code)
      if (isMissing('a') || isMissing('b') || isUsed || (method === 'POST' && exists)) return 409
      return method === 'POST' ? 201 : 200
    }
  })

  t.test('one of 60 simultaneous requests gets a value, and no other request is affected', async t => {
    const url = address()
    const instances = await Promise.all(times(engine === 'PostgreSQL' ? 2 : 1, () => serve(t, url, members)))
    const instance = (n: number) => instances[n % instances.length] as typeof instances[0]
    const created = await Promise.all([
      ...times(60,
        n =>
          instance(n).send('POST', '/members', { email: 'ada', card: n }, n % 3 ? {} : { 'idempotency-key': `a${n}` })),
      ...times(20, n => instance(n).send('POST', '/members', { email: `other ${n}` }))
    ])
    t.equal(statuses(created, 201), 21)
    t.equal(statuses(created, 409), 59)
    t.ok(created.filter(({ status }) => status === 409)
      .every(({ body }) => JSON.stringify(body) === JSON.stringify(conflict('/email'))))
    const all = (await instance(0).send('GET', '/members')).body as MemberRecord[]
    t.equal(all.length, 21)
    t.equal(all.filter(({ email }) => email === 'ada').length, 1)

    const others = all.filter(({ email }) => email !== 'ada')
    const changed = await Promise.all(others.flatMap(({ id }, n) => [
      instance(n).send('PATCH', `/members/${id}`, { name: 'x' }),
      instance(n).send('PATCH', `/members/${id}`, { email: 'bob' }),
      instance(n).send('PATCH', `/members/${id}`, { email: 'ada' }),
      instance(n).send('PATCH', `/members/${id}`, { card: 100 + n })
    ]))
    t.equal(statuses(changed, 200), 41)
    t.equal(statuses(changed, 409), 39)
    const after = (await instance(0).send('GET', '/members')).body as MemberRecord[]
    t.equal(after.filter(({ name, card }) => name === 'x' && Number(card) >= 100).length, 20)
    t.equal(after.filter(({ email }) => email === 'bob').length, 1)
  })
})

onDatabases('what was acknowledged before kill -9 stays unique and refers to what exists', async (t, { url }) => {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file,
    JSON.stringify(Object.fromEntries([members, loans].map(({ name, ...definition }) => [name, definition]))))
  const run = () => start(t, { DATABASE_URL: url, COLLECTIONS_FILE: file })
  const send = async (base: string, method: string, path: string, body?: object) =>
    (await fetch(`${base}/api/${path}`, { method, body: JSON.stringify(body) }).catch(() => undefined))?.status
  const first = run()
  const acknowledged: number[] = []
  const base = await first.url
  await Promise.all(times(20, () => send(base, 'POST', 'members', {})))
  const requests = times(90, async n => {
    // One of them creates a loan of a member, and the other one deletes the member.
    if (n % 3 === 1) return send(base, 'POST', 'loans', { member_id: 1 + n % 20 })
    if (n % 3 === 2) return send(base, 'DELETE', `members/${n % 10}`)
    if (await send(base, 'POST', 'members', { card: n % 30 }) === 201) acknowledged.push(n % 30)
  })
  await Promise.race(requests.slice(30))
  first.process.kill('SIGKILL')
  await Promise.all([first.exit, ...requests])
  const again = await run().url
  const stored = await (await fetch(`${again}/api/members`)).json() as MemberRecord[]
  const cards = stored.map(({ card }) => card).filter(card => card !== undefined)
  t.equal(new Set(cards).size, cards.length)
  t.ok(acknowledged.every(card => cards.includes(card)), `${acknowledged.length} were acknowledged`)
  t.same(await Promise.all(times(30, card => send(again, 'POST', 'members', { card }))),
    times(30, card => cards.includes(card) ? 409 : 201))
  const loaned = await (await fetch(`${again}/api/loans`)).json() as { member_id: number }[]
  const lent = new Set(loaned.map(({ member_id: id }) => id))
  t.ok([...lent].every(id => stored.some(member => member.id === id)), `${lent.size} members have loans`)
  t.same(await Promise.all(stored.slice(0, 20).map(({ id }) => send(again, 'DELETE', `members/${id}`))),
    stored.slice(0, 20).map(({ id }) => lent.has(id) ? 409 : 204))
})

test('the document has the conflicts, and says which fields are unique or refer to a collection', async t => {
  const { send } = await serve(t, 'memory', members, { ...loans, unique: ['member_id'] },
    { ...employees, references: {}, unique: [] })
  const { paths, components: { schemas } } = (await send('GET', '/openapi.json')).body
  const descriptionOf = (name: string, field: string) => schemas[name].properties[field].description
  t.same(['id', 'email', 'card', 'name'].map(field => descriptionOf('Member', field)),
    ['Integer from -(2^53 - 1) to 2^53 - 1; unique', 'unique', 'unique', 'Full name'])
  t.equal(descriptionOf('Loan', 'member_id'), 'id of a record of members; unique')
  t.equal(descriptionOf('NewMember', 'email'), 'unique')
  t.same(paths['/members'].get.parameters.map(({ name }: { name: string }) => name),
    ['limit', 'after', 'sort', 'total', 'id', 'id.gt', 'id.gte', 'id.lt', 'id.lte', 'email', 'card', 'If-None-Match'])
  for (const [path, methods] of Object.entries<Record<string, {
    description?: string
    responses: Record<string, { description: string }>
  }>>(paths)) {
    for (const [method, { description = '', responses }] of Object.entries(methods)) {
      t.equal('409' in responses, method !== 'get', `${method} ${path}`)
      t.equal(/if several .+ have this id/i.test(description), path === '/employees/{id}', `${method} ${path}`)
      t.equal(/first/.test(String(Object.values(responses)[0]?.description)),
        path === '/employees/{id}' && ['get', 'delete'].includes(method), `${method} ${path}`)
    }
  }
})
