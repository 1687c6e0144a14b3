import { writeFileSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { test, type Test } from 'tap'
import type { Stores } from '../../plugins/host-stores.js'
import { checkerOf, createAjv, sharedAjv } from '../../plugins/schema/validation.js'
import { cpuTime } from '../support/cpu-time.js'
import { newFolder } from '../support/folder.js'
import { build, invalidBody } from '../support/helper.js'
import { hostileCollections, hostileDefs, hostileFields, hostileValues } from '../support/hostile.js'
import { start } from '../support/process.js'

function fileOf (t: Test, collections: object) {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify(collections))
  return file
}

const withValue = (value: object | boolean) => ({ schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, value }, $defs: hostileDefs } })

test('whatever the schema and the body are, the time is linear, and the response and the log line are short', async t => {
  let longestLine = 0
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, hostileCollections), DOCS: 'false', LOG_LEVEL: 'info' }, { write: line => { longestLine = Math.max(longestLine, line.length) } })
  for (const [n, name] of Object.keys(hostileCollections).entries()) {
    for (const [place, [kind, valueOf]] of Object.entries(hostileValues).entries()) {
      const one = (size: number) => cost(name, `{"value":${valueOf(size)}}`)
      const many = (size: number) => cost(`${name}/batch`, `[${Array(200).fill(`{"value":${valueOf(size / 200)}}`)}]`)
      await isLinear(`${name}, ${kind}`, one)
      if (place % 9 === n % 9) await isLinear(`many ${name}, ${kind}`, many) // all would take minutes
    }
    t.pass(name)
  }
  t.ok(longestLine <= 8000, `a line of ${longestLine} characters`)

  async function isLinear (what: string, costOf: (size: number) => Promise<number>) {
    let [ratio, most] = [Infinity, Infinity]
    // Other requests and processes disturb some measurements.
    for (let tries = 0; tries < 5 && (ratio > 8 * 3 || most > 1000); tries++) {
      const [small, few, many] = [await costOf(3000), await costOf(15_000), await costOf(120_000)]
      ratio = Math.min(ratio, many / (few + 2))
      most = Math.min(most, Math.max(small, few, many))
    }
    if (ratio > 8 * 3 || most > 1000) t.fail(`${what}: eight times as much takes ${ratio.toFixed(1)} times as long, up to ${most.toFixed()} ms`)
  }

  /** The CPU time of this process for a request, in milliseconds. */
  async function cost (name: string, payload: string) {
    const took = cpuTime()
    const { statusCode, body } = await app.inject({ method: 'POST', url: `/api/${name}`, payload })
    const time = took()
    if (![201, 400, 413].includes(statusCode) || (statusCode === 400 && Buffer.byteLength(body) > 64_000)) t.fail(`${name} ${statusCode} ${body.slice(0, 200)}`)
    return time
  }
})

test('a process with a heap of 128 MB survives the largest bodies', async t => {
  const service = start(t, { COLLECTIONS_FILE: fileOf(t, hostileCollections), LOG_LEVEL: 'info' }, { built: true, flags: ['--max-old-space-size=128'] })
  const url = await service.url
  const values = Object.values(hostileValues).map(valueOf => valueOf(1_000_000))
  for (const [n, name] of Object.keys(hostileFields).entries()) {
    // Each body for some of the collections, because all would take minutes.
    for (const value of values.filter((_, place) => place % 6 === n % 6)) {
      const response = await fetch(`${url}/api/${name}`, { method: 'POST', body: `{"value":${value}}` })
      t.ok([201, 400, 413].includes(response.status), `${name}: ${response.status}`)
      await response.arrayBuffer()
      const location = response.headers.get('location')
      if (location) await fetch(new URL(location, `${url}/api/${name}`), { method: 'DELETE' })
    }
  }
  t.ok((await fetch(`${url}/livez`)).ok)
  t.ok(Math.max(...service.output().split('\n').map(({ length }) => length)) <= 8000)
})

test('paths, messages, the list of problems and the reason in the log are cut', async t => {
  const lines: string[] = []
  const values = Array.from({ length: 250 }, (_, n) => `choice number ${n}`)
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { maps: withValue({ type: 'object', additionalProperties: { type: 'string', enum: values } }) }), LOG_LEVEL: 'info' }, { write: line => { lines.push(line) } })
  const create = (value: unknown) => app.inject({ method: 'POST', url: '/api/maps', payload: { value } })
  const long = await create({ [`${'k'.repeat(600)}😀`]: 1, a: 'x' })
  const cut = `/value/${'k'.repeat(249)}…`
  t.same(long.json(), invalidBody('body', [cut, 'must be a string'], ['/value/a', `must be one of ${values.slice(0, 20).join(', ')}, …`.slice(0, 256) + '…']))
  const many = await create(Object.fromEntries(Array.from({ length: 300 }, (_, n) => [n, 'x'])))
  t.ok(many.json().errors.length < 20 && many.body.length < 16_000)
  t.ok(lines.every(line => line.length < 2000), 'short lines')
  t.same((await create({ ['k'.repeat(1025)]: 'choice number 1' })).json(), invalidBody('body', ['/value', 'must not have names of more than 1024 characters']))
  t.same((await create(Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`name ${n}`, n ? 'choice number 249' : 'x'])))).json().errors,
    [{ in: 'body', path: '/value/name 0', message: `must be one of ${values.slice(0, 20).join(', ')}, …`.slice(0, 256) + '…' }], 'the first problem of a large body')
})

test('a value that is nested too deeply for its schema is invalid', async t => {
  const schema = { anyOf: [{ type: 'string' }, { type: 'object', properties: { a: { $ref: '#/$defs/deep' } }, required: ['a'] }] }
  const problemsIn = checkerOf({ ...withValue({ $ref: '#/$defs/deep' }).schema, $defs: { deep: schema } } as never)
  const nested = (depth: number) => JSON.parse(`{"id":1,"value":${'{"a":'.repeat(depth)}"x"${'}'.repeat(depth)}}`)
  t.equal(problemsIn(nested(100)), undefined)
  t.same(problemsIn(nested(1e5)), [{ path: '', message: 'must not be nested so deeply' }])
  t.throws(() => problemsIn({ id: 1, get value () { throw new Error('other errors are not hidden') } }), { message: 'other errors are not hidden' })
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, hostileCollections) })
  t.equal((await app.inject({ method: 'POST', url: '/api/trees', payload: `{"value":${'['.repeat(100)}1${']'.repeat(100)}}` })).json().errors[0].message, 'must not be nested more than 100 times')
})

test('a body, and a record after a PATCH, has a limited number of arrays and objects', async t => {
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: withValue(true) }), BODY_LIMIT: '4000' })
  const send = (method: 'POST' | 'PATCH', url: string, value: string) => app.inject({ method, url, payload: `{"value":${value}}` })
  const parts = (count: number, part = '{}') => `[${Array(count - 1).fill(part)}]`
  t.same((await send('POST', '/api/notes', parts(400))).json(), invalidBody('body', ['', 'must not have more than 400 arrays and objects']))
  t.equal((await send('POST', '/api/notes', parts(399))).statusCode, 201)
  t.equal((await send('POST', '/api/notes', parts(399, '"[{\\"[{"'))).statusCode, 201, 'brackets in texts do not count')
  const first = await send('POST', '/api/notes', `{"a":${parts(300)}}`)
  const patched = await send('PATCH', String(first.headers.location).replace('.', '/api'), `{"b":${parts(100)}}`)
  t.same([first.statusCode, patched.statusCode], [201, 413])
})

test('a number that JavaScript cannot represent is invalid also in a field of any type', async t => {
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: withValue(true) }) })
  const create = (value: string) => app.inject({ method: 'POST', url: '/api/notes', payload: `{"value":${value}}` })
  for (const [value, path] of [['1e400', ''], ['[1,{"a/b":[-1e999]}]', '/1/a~1b/0']] as const) t.same((await create(value)).json(), invalidBody('body', [`/value${path}`, 'must be a number']))
  const first = await create('[1e308,null,"1e400",{}]')
  t.equal(first.statusCode, 201)
  for (const method of ['PUT', 'PATCH'] as const) {
    const changed = await app.inject({ method, url: String(first.headers.location).replace('.', '/api'), payload: '{"value":{"a":1e400}}' })
    t.same(changed.json(), invalidBody('body', ['/value/a', 'must be a number']), method)
  }
  const many = await app.inject({ method: 'POST', url: '/api/notes/batch', payload: '[{"value":1},{"value":[1e400]}]' })
  t.same(many.json(), invalidBody('body', ['/1/value/0', 'must be a number']))
  t.same((await app.inject('/api/notes')).json(), [first.json()])
})

test('properties with the names of methods are optional or required like others', async t => {
  const value = { type: 'object', properties: { constructor: { type: 'integer' }, toString: { type: 'string' } }, required: ['valueOf'] }
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: withValue(value) }) })
  const create = (value: object) => app.inject({ method: 'POST', url: '/api/notes', payload: { value } })
  t.equal((await create({ valueOf: 1 })).statusCode, 201)
  t.same((await create({ toString: 1 })).json(), invalidBody('body', ['/value/valueOf', 'is required'], ['/value/toString', 'must be a string']))
})

test('a record does not grow beyond BODY_LIMIT', async t => {
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: withValue(true) }), BODY_LIMIT: '2000' })
  const send = (method: 'POST' | 'PUT' | 'PATCH', url: string, payload: string) => app.inject({ method, url, payload })
  t.equal((await send('POST', '/api/notes', `{"value":{"a":"${'x'.repeat(1500)}"}}`)).statusCode, 201)
  const refused = await send('PATCH', '/api/notes/1', `{"value":{"b":"${'x'.repeat(500)}"}}`)
  t.same([refused.statusCode, refused.json()], [413, { detail: 'The request body is too large' }])
  t.equal((await send('PATCH', '/api/notes/1', `{"value":{"b":"${'x'.repeat(400)}"}}`)).statusCode, 200)
  const numbers = `{"value":[${'1e20,'.repeat(300)}1]}`
  for (const [method, url] of [['POST', '/api/notes'], ['PUT', '/api/notes/1']] as const) t.equal((await send(method, url, numbers)).statusCode, 413, method)
  t.equal((await app.inject('/api/notes')).json().length, 1)
})

test('defaults do not make a record larger than BODY_LIMIT', async t => {
  const withDefault = (more: object) => withValue({ type: 'array', items: { type: 'object', properties: { a: { type: 'string', default: 'x'.repeat(100), ...more } } } })
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: withDefault({}), dates: withDefault({ readOnly: true }) }), BODY_LIMIT: '2000' })
  for (const name of ['notes', 'dates']) {
    const send = async (method: 'POST' | 'PUT', url: string, value: object) => (await app.inject({ method, url: `/api/${name}${url}`, payload: value })).statusCode
    const [few, many] = [1, 30].map(length => ({ value: Array(length).fill({}) }))
    t.same([await send('POST', '', { ...few }), await send('PUT', '/1', { ...few })], [201, 200])
    t.same([await send('POST', '', { ...many }), await send('PUT', '/1', { ...many }), await send('POST', '/batch', [many])], [413, 413, 413], name)
    t.equal((await app.inject(`/api/${name}`)).json().length, 1)
  }
})

test('a large body is handled in several turns of the event loop', async t => {
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: { ...withValue(true), idSource: 'server' }, defaults: withValue({ type: 'array', default: [] }) }) })
  await app.ready()
  const few = await turnsOf('POST', 'notes', 1)
  for (const [method, url, steps] of [['POST', 'notes', 3], ['PUT', 'notes/1', 3], ['PATCH', 'notes/1', 10], ['POST', 'defaults', 4]] as const) {
    t.equal(await turnsOf(method, url, 300_000), few + 2 * steps, `${method} ${url}: between two steps, others have two turns`)
  }

  async function turnsOf (method: 'POST' | 'PUT' | 'PATCH', url: string, length: number) {
    const request = app.inject({ method, url: `/api/${url}`, payload: { id: 1, value: Array(length).fill(1) } })
    const state = { turns: 0, isDone: false }
    request.finally(() => { state.isDone = true })
    for (; !state.isDone; state.turns++) await nextTurn()
    t.ok((await request).statusCode < 300)
    return state.turns
  }
})

test('a record of a host that is nested too deeply is invalid', async t => {
  const app = build(t, { COLLECTIONS_FILE: fileOf(t, { notes: { ...withValue(true), idSource: 'server' } }) })
  await app.ready()
  let value: unknown = 1
  for (let n = 0; n < 100_000; n++) value = [value]
  const { notes } = app.stores as unknown as Stores<{ notes: { id: number, value: unknown } }>
  await t.rejects(async () => notes.append({ value }), { message: /must not be nested so deeply/ })
})

test('the code that Ajv generates still has what we replace in it', async t => {
  const recursive = { anyOf: [{ quiet: { type: 'integer' } }, { type: 'array', items: { $ref: '#/$defs/set' } }] }
  const schema = { type: 'object', properties: { one: { $ref: '#/$defs/set' }, 'text ",data}': { $ref: '#/$defs/set' }, other: { $ref: '#/$defs/set' } }, $defs: { set: recursive } }
  for (const [allErrors, ours, theirs] of [
    [false, /[^+]errors\+\+;/, /const err\d+ = \{\};/],
    [false, /vErrors = \w+\.errors;errors\+\+;/, /vErrors\.concat/],
    [false, /parentSchema:[^,]+\}/, /,data(?::data\d)?\}(?!")/],
    [true, /parentSchema:[^,]+\}/, /,data(?::data\d)?\}(?!")/],
    [true, /vErrors\.length < 500 \?/, /: vErrors\.concat/]
  ] as const) {
    const { opts } = sharedAjv(allErrors)
    let code = ''
    createAjv({ ...opts, code: { process: text => { code += text; return text } } }).compile(schema)
    const replaced = String(opts.code.process?.(code))
    t.match(code, theirs)
    t.match(replaced, ours)
    t.notMatch(replaced, theirs)
    t.match(replaced, /"text \\",data\}"/)
  }
})
