import { writeFileSync } from 'node:fs'
import type { InjectOptions } from 'fastify'
import type { Test } from 'tap'
import type { DestinationStream } from 'pino'
import { Id } from '../../schemas/fields.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import * as helper from '../support/helper.js'
import { edgesOf, isText, recordOf, wrongOf } from '../support/values.js'

const { collections, invalidBody } = helper

onEveryEngine((t, address, engine) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv, log?: DestinationStream) =>
    helper.build(t, { DATABASE_URL: address(), ...env }, log)

  for (const { path, initial, record, schema, idParameter, operations } of collections) {
    const fields = Object.entries(schema.properties)
    const text = fields.find(([, field]) => isText(field))?.[0]

    t.test(path, async t => {
      t.test('GET returns the whole collection, which has one record at first', async t => {
        const response = await build(t).inject(path)
        t.equal(response.statusCode, 200)
        t.equal(response.headers['content-type'], 'application/json; charset=utf-8')
        t.equal(response.body, JSON.stringify([initial]))
      })

      t.test('POST answers 201 with the stored record and its Location', async t => {
        const app = build(t)
        const response = await app.inject({ method: 'POST', url: path, payload: record })
        t.equal(response.statusCode, 201)
        t.equal(response.headers['content-type'], 'application/json; charset=utf-8')
        t.equal(helper.followed(response.headers.location, path), `${path}/7`)
        t.equal(response.body, JSON.stringify(record))
        t.same((await app.inject(`${path}/7`)).json(), record)
      })

      t.test('POST accepts an id that is in use, and GET returns the first record with it', async t => {
        const app = build(t)
        const records = [3, 1, 3, -5, 0].map((id, n) => recordOf(schema, id, n))
        for (const payload of records) await app.inject({ method: 'POST', url: path, payload })
        t.same((await app.inject(path)).json(), [initial, ...records])
        t.same((await app.inject(`${path}/1`)).json(), initial)
        t.same((await app.inject(`${path}/3`)).json(), records[0])
        t.same((await app.inject(`${path}/-5`)).json(), records[3])
        t.same((await app.inject(`${path}/-0`)).json(), records[4])
        t.same((await app.inject(`${path}/003`)).json(), records[0])
      })

      t.test('POST stores every valid value, and every response returns it unchanged', async t => {
        const app = build(t)
        const optional = fields.filter(([name]) => !schema.required?.includes(name))
        const records = [
          ...edgesOf(Id).map(id => recordOf(schema, Number(id))),
          ...fields.slice(1).flatMap(([name, field]) => edgesOf(field).map(value => ({ ...record, [name]: value }))),
          ...optional.map(([name]) => ({ ...record, [name]: undefined }))
        ].map((record, n) => ({ ...record, id: record.id === 7 ? 100 + n : record.id }))
        for (const payload of records) {
          const response = await app.inject({ method: 'POST', url: path, payload })
          t.equal(response.statusCode, 201)
          t.equal(response.body, JSON.stringify(payload))
          t.equal((await app.inject(`${path}/${payload.id}`)).body, JSON.stringify(payload))
        }
        t.equal((await app.inject(path)).body, JSON.stringify([initial, ...records]))
      })

      t.test('POST stores a number by its value', async t => {
        const app = build(t)
        const numbers = fields.filter(([, { type }]) => type === 'number' || type === 'integer')
          .map(([name]) => [record[name], name] as [number, string])
        const body = numbers.reduce((json, [value, name]) =>
          json.replace(`"${name}":${value}`, `"${name}":${value.toExponential()}`),
        JSON.stringify(record))
        t.equal((await app.inject({ method: 'POST', url: path, body })).body, JSON.stringify(record))
        const zero = JSON.stringify(record).replace('"id":7', '"id":-0')
        t.equal((await app.inject({ method: 'POST', url: path, body: zero })).body, zero.replace('-0', '0'))
        t.equal((await app.inject(path)).body,
          `[${JSON.stringify(initial)},${JSON.stringify(record)},${zero.replace('-0', '0')}]`)
      })

      t.test('POST ignores unknown fields, and parses the body as JSON, whatever the content type is', async t => {
        const app = build(t)
        const payload = { extra: 1, ...record, constructor: 'x', nested: { deep: [] } }
        const response = await app.inject({ method: 'POST', url: path, payload })
        t.equal(response.statusCode, 201)
        t.equal(response.body, JSON.stringify(record))
        t.equal((await app.inject(path)).body, JSON.stringify([initial, record]))
        const types = ['application/json', 'text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data',
          'application/octet-stream', 'application/json; charset=latin1', 'nonsense', ';;;', '', undefined]
        for (const type of types) {
          const headers = type === undefined ? {} : { 'content-type': type }
          const response = await app.inject({ method: 'POST', url: path, headers, body: JSON.stringify(record) })
          t.equal(response.statusCode, 201, `content-type: ${type}`)
        }
        t.equal((await app.inject(path)).json().length, 2 + types.length)
      })

      t.test('an unknown id is a 404, one that is not an integer a 400, and a long path a 414', async t => {
        const app = build(t)
        for (const id of ['2', '-1', '9007199254740993', '9'.repeat(90), `-${'9'.repeat(90)}`]) {
          const response = await app.inject(`${path}/${id}`)
          t.equal(response.statusCode, 404, id)
          t.equal(response.headers['content-type'], 'application/json; charset=utf-8')
          t.equal(response.body, '{"detail":"Not found"}')
        }
        for (const id of [
          'abc', '1.5', '1abc', 'true', '-', '--1', '+1', '0x10', '1e2', '1,0', '%201', '%00', '%EF%BC%91', 'null'
        ]) {
          const response = await app.inject(`${path}/${id}`)
          t.equal(response.statusCode, 400, id)
          t.same(response.json(), invalidBody('path', [`/${idParameter}`, 'must be an integer']))
        }
        const malformed = await app.inject(`${path}/%zz`)
        t.equal(malformed.statusCode, 400)
        t.same(malformed.json(), invalidBody('path', ['', 'must be a valid URL']))
        const overlong = await app.inject(`${path}/${'1'.repeat(4000)}`)
        t.equal(overlong.statusCode, 414)
        t.same(overlong.json(), { detail: 'The request path is too long' })
      })

      if (engine !== 'memory') return // what follows does not depend on the engine

      t.test('HEAD has the headers of GET and no body', async t => {
        const app = build(t)
        for (const url of [path, `${path}/1`, `${path}/2`, `${path}/x`]) {
          const get = await app.inject(url)
          const head = await app.inject({ method: 'HEAD', url })
          t.equal(head.statusCode, get.statusCode)
          t.equal(head.headers['content-length'], get.headers['content-length'])
          t.equal(head.body, '')
        }
      })

      t.test('an unknown path is answered with 404, and a method that the path does not support with 405', async t => {
        const app = build(t)
        for (const url of ['/api', '/api/', '/api/nope', `${path}/1/2`, `${path.toUpperCase()}`]) {
          const response = await app.inject({ method: 'POST', url, body: '{' })
          t.equal(response.statusCode, 404, url)
          t.same(response.json(), { detail: 'Path not found' })
        }
        const allowed = (on: Record<string, string>) =>
          [
            ...Object.keys(on).filter(operation => operations.includes(operation as 'get'))
              .map(operation => on[operation]),
            'OPTIONS'
          ].join(', ')
        const all = allowed({ list: 'GET, HEAD', create: 'POST' })
        const one = allowed({ get: 'GET, HEAD', replace: 'PUT', update: 'PATCH', delete: 'DELETE' })
        for (const [url, allow] of [[path, all], [`${path}/1`, one], [`${path}?x=1`, all]] as const) {
          for (const [method, headers] of [['PUT'], ['PATCH', { 'content-type': 'no type' }], ['QUERY']] as const) {
            if (allow.includes(method)) continue
            const response = await app.inject({ method: method as 'PUT', url, headers, body: '{' })
            t.equal(response.statusCode, 405, `${method} ${url}`)
            t.same(String(response.headers.allow).split(', ').sort(), allow.split(', ').sort())
            t.same(response.json(), { detail: 'Method not allowed' })
          }
        }
      })

      t.test('every invalid body is answered with 400 or 413 and the reason, and nothing is stored', async t => {
        const app = build(t)
        const required = (schema.required ?? []).map(field => [`/${field}`, 'is required'] as [string, string])

        await refuses('{}', ...required)
        for (const [path, message] of required) {
          await refuses(JSON.stringify({ ...record, [path.slice(1)]: undefined }), [path, message])
        }
        for (const [name, field] of fields) {
          for (const [value, message] of wrongOf(field)) {
            await refuses(JSON.stringify({ ...record, [name]: value }), [`/${name}`, message])
          }
        }
        for (const [value, message] of wrongOf(schema)) await refuses(JSON.stringify(value), ['', message])
        await refuses('', ['', 'must be an object'])
        await refuses(undefined, ['', 'must be an object'])
        await refuses(JSON.stringify({ ...record, id: 1.5 }), ['/id', 'must be an integer'])
        for (const value of text ? ['\ud800', 'a\udc00b'] : []) {
          await refuses(JSON.stringify({ ...record, [String(text)]: value }),
            [`/${text}`, 'must be well-formed Unicode text'])
        }
        await refuses(withId('9007199254740993'), ['/id', 'must be at most 9007199254740991'])
        await refuses(withId('-9007199254740992'), ['/id', 'must be at least -9007199254740991'])
        await refuses(withId('1e999'), ['/id', 'must be an integer'])
        for (const [name] of fields.filter(([, { type }]) => type === 'number')) {
          await refuses(JSON.stringify(record).replace(`"${name}":${record[name]}`, `"${name}":1e999`),
            [`/${name}`, 'must be a number'])
        }
        const wrong = fields.flatMap(([name, field]) =>
          wrongOf(field).slice(0, 1).map(([value, message]) => ({ name, value, message })))
        await refuses(JSON.stringify({
          ...record,
          ...Object.fromEntries(wrong.map(({ name, value }) => [name, value]))
        }),
        ...wrong.map(({ name, message }): [string, string] => [`/${name}`, message]))
        for (const body of [
          '{', JSON.stringify(record).slice(0, -1), `${JSON.stringify(record)}x`, `[${JSON.stringify(record)}`,
          withId('NaN'), withId('01'), withId('+1'), 'undefined', "{'id':1}", 'id=1&name=x', '\ufeff', ' ',
          '['.repeat(100)
        ]) await refuses(body, ['', 'must be valid JSON'])
        await refuses('['.repeat(100_000), ['', 'must be valid JSON'])
        for (const key of ['"__proto__":{}', '"constructor":{"prototype":{}}', '"x":{"__proto__":1}']) {
          await refuses(`{${key},"id":1,"name":"x","price":1}`,
            ['', 'must not contain the key __proto__ or constructor.prototype'])
        }
        await refuses(Buffer.from('{"id":1,"name":"\xff","price":1}', 'latin1'), ['', 'must be UTF-8'])

        const large = await app.inject({
          method: 'POST',
          url: path,
          payload: { ...record, extra: 'x'.repeat(5 * 1024 * 1024) }
        })
        t.equal(large.statusCode, 413)
        t.same(large.json(), { detail: 'The request body is too large' })

        t.same((await app.inject(path)).json(), [initial])

        async function refuses (body: InjectOptions['payload'], ...faults: [string, string][]) {
          const response = await app.inject({ method: 'POST', url: path, body })
          const name = String(body).slice(0, 80)
          t.equal(response.statusCode, 400, name)
          t.equal(response.headers['content-type'], 'application/json; charset=utf-8')
          t.same(response.json(), invalidBody('body', ...faults), name)
        }

        function withId (id: string) {
          return JSON.stringify(record).replace('"id":7', `"id":${id}`)
        }
      })
    })
  }

  t.test('DELETE /api/users/:id removes only the first user with this id', async t => {
    const app = build(t)
    const twin = { id: 1, name: 'Second' }
    await app.inject({ method: 'POST', url: '/api/users', payload: twin })
    const remove = () => app.inject({ method: 'DELETE', url: '/api/users/1' })

    const response = await remove()
    t.equal(response.statusCode, 204)
    t.equal(response.body, '')
    t.equal(response.headers['content-type'], undefined)
    t.same((await app.inject('/api/users')).json(), [twin])
    t.equal((await remove()).statusCode, 204)
    t.same((await app.inject('/api/users')).json(), [])
    t.equal((await remove()).statusCode, 404)
    t.equal((await remove()).body, '{"detail":"Not found"}')
  })

  t.test('DELETE /api/users/:id accepts a content type without a body, and only integers', async t => {
    const app = build(t)
    const headers = { 'content-type': 'application/json' }
    const bad = await app.inject({ method: 'DELETE', url: '/api/users/x', headers })
    t.equal(bad.statusCode, 400)
    t.same(bad.json(), invalidBody('path', ['/id', 'must be an integer']))
    t.equal((await app.inject({ method: 'DELETE', url: '/api/users/1', headers })).statusCode, 204)
  })

  t.test('SEED=false starts with empty collections', async t => {
    const app = build(t, { SEED: 'false', SEED_FILE: '/nowhere/seed.json' })
    for (const { path } of collections) t.equal((await app.inject(path)).body, '[]')
  })

  t.test('SEED_FILE fills a new store with its records, and only a new one', async t => {
    const file = `${newFolder(t)}/seed.json`
    const items = [
      { id: 5, name: 'Zoë 🫖', price: 0.1 }, { id: 4, name: '', price: -1 }, { id: -2, name: 'x', price: 1e300 }
    ]
    writeFileSync(file, `\uFEFF${JSON.stringify({ items: items.map(item => ({ ...item, unknown: true })) })}`)
    const env = { DATABASE_URL: address(), SEED_FILE: file, ID_SOURCE: 'server' }
    const first = build(t, env)
    t.same((await first.inject('/api/items')).json(), items)
    t.equal((await first.inject('/api/users')).body, '[]')
    const created = await first.inject({ method: 'POST', url: '/api/items', payload: { name: 'Kettle', price: 1 } })
    t.same(created.json(), { id: 6, name: 'Kettle', price: 1 }, 'generated ids follow the largest one')
    await first.close()
    if (engine === 'memory') return
    writeFileSync(file, '{"users":[{"id":1,"name":"Grace"}]}')
    const second = build(t, env)
    t.same((await second.inject('/api/items')).json(), [...items, created.json()])
    t.equal((await second.inject('/api/users')).body, '[]')
  })

  t.test('an invalid SEED_FILE is one message with all problems, and nothing is stored', async t => {
    const file = `${newFolder(t)}/seed.json`
    const env = { DATABASE_URL: address(), SEED_FILE: file }
    const item = '{"id":1,"name":"x","price":1}'
    writeFileSync(file,
      `{"items":[${item},{"id":"1","name":"\\ud800"},7,{"id":1.5,"name":"\\u0000","price":1e999}],` +
      '"users":{},"item":[],"__proto__":[]}')
    await t.rejects(async () => build(t, env).ready(), {
      code: 'ERR_STARTUP',
      message: [
        'Invalid records in the option seed:',
        '  /items/1/price is required',
        '  /items/1/id must be an integer',
        '  /items/1/name must be well-formed Unicode text',
        '  /items/2 must be an object',
        '  /items/3/id must be an integer',
        '  /items/3/price must be a number',
        '  /users must be an array',
        '  /item is not a collection',
        '  /__proto__ is not a collection'
      ].join('\n')
    })
    writeFileSync(file, `{"items":[${item}]}`)
    t.equal((await build(t, env).inject('/api/items')).body, `[${item}]`)
    for (const [text, message] of [
      ['[]', 'SEED_FILE must contain a JSON object'], ['null', 'SEED_FILE must contain a JSON object'],
      ['{', 'Cannot read SEED_FILE: '], ['{"items":["\xff"]}', 'Cannot read SEED_FILE: ']
    ] as const) {
      writeFileSync(file, text, 'latin1')
      t.throws(() => build(t, env), { code: 'ERR_STARTUP', message })
    }
    t.throws(() => build(t, { SEED_FILE: '/nowhere/seed.json' }),
      { code: 'ERR_STARTUP', message: /^Cannot read SEED_FILE: ENOENT.*\/nowhere\/seed\.json/ })
  })
})
