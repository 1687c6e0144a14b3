import { readFileSync, writeFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { test, type Test } from 'tap'
import type { Stores } from '../../plugins/host-stores.js'
import { newFolder } from '../support/folder.js'
import { build, invalidBody } from '../support/helper.js'
import { hostileBodies, hostileCollections } from '../support/hostile.js'
import { start } from '../support/process.js'

/** On a machine of today, each takes less than two seconds. */
const maxSeconds = 6

test('a process with a heap of 512 MB answers each body of 1 MB', { timeout: 300_000 }, async t => {
  const file = fileOf(t, hostileCollections)
  const flags = ['--max-old-space-size=512']
  const service = start(t, { COLLECTIONS_FILE: file, LOG_LEVEL: 'info' }, { flags })
  const url = await service.url
  for (const name of Object.keys(hostileCollections)) {
    for (const [kind, body] of Object.entries(hostileBodies)) {
      const before = cpuSeconds(service.process.pid)
      const response = await fetch(`${url}/api/${name}`, { method: 'POST', body: body() })
      const seconds = cpuSeconds(service.process.pid) - before
      await response.arrayBuffer()
      const { status, headers } = response
      t.ok([201, 400, 413].includes(status) && seconds < maxSeconds, `${name}, ${kind}: ${status} after ${seconds} s`)
      const id = headers.get('location')?.split('/').at(-1)
      if (id) await fetch(`${url}/api/${name}/${id}`, { method: 'DELETE' })
    }
  }
  t.ok((await fetch(`${url}/livez`)).ok)
  const longest = Math.max(...service.output().split('\n').map(({ length }) => length))
  t.ok(longest <= 8000, `the longest line of the log has ${longest} characters`)
})

/** The CPU time of a process in seconds; 0 where it is not known. Other processes do not change it. */
function cpuSeconds (pid: number | undefined) {
  if (process.platform !== 'linux') return 0
  const [user = 0, system = 0] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ').slice(13, 15).map(Number)
  return (user + system) / 100
}

test('paths, messages and the list of problems are cut', async t => {
  const values = Array.from({ length: 250 }, (_, n) => `choice number ${n}`)
  const map = { type: 'object', additionalProperties: { type: 'string', enum: values } }
  const app = buildWith(t, { maps: collection(map) })
  const create = async (value: object) => {
    const response = await app.inject({ method: 'POST', url: '/api/maps', payload: { value } })
    return response.json()
  }
  const choices = `must be one of ${values.slice(0, 20).join(', ')}, …`.slice(0, 256) + '…'
  t.same(await create({ [`${'k'.repeat(600)}😀`]: 1, a: 'x' }),
    invalidBody('body', [`/value/${'k'.repeat(249)}…`, 'must be a string'], ['/value/a', choices]))
  const few = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [n, 'x']))
  t.equal((await create(few)).errors.length, 50, 'at most 50 problems')
  const many = Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`name ${n}`, 'x']))
  t.same(
    (await create(many)).errors,
    [{ in: 'body', path: '/value/name 0', message: choices }],
    'the first problem of a large body'
  )
})

test('a value that is nested too deeply is invalid, in a request and in the code of a host', async t => {
  const app = buildWith(t, { notes: collection({}) })
  const payload = `{"value":${'['.repeat(100_000)}1${']'.repeat(100_000)}}`
  const response = await app.inject({ method: 'POST', url: '/api/notes', payload })
  t.same(response.json(), invalidBody('body', ['', 'must not be nested so deeply']))

  let value: unknown = 1
  for (let n = 0; n < 100_000; n++) value = [value]
  const { notes } = app.stores as unknown as Stores<{ notes: { id: number, value: unknown } }>
  await t.rejects(async () => notes.append({ value }), RangeError)
  t.same((await app.inject('/api/notes')).json(), [])
})

test('a number that JavaScript cannot represent is invalid also in a field of any type', async t => {
  const app = buildWith(t, { notes: collection({}) })
  const send = (method: 'POST' | 'PUT' | 'PATCH', url: string, payload: string) => app.inject({ method, url, payload })
  for (const [value, path] of [['1e400', ''], ['[1,{"a/b":[-1e999]}]', '/1/a~1b/0']] as const) {
    const response = await send('POST', '/api/notes', `{"value":${value}}`)
    t.same(response.json(), invalidBody('body', [`/value${path}`, 'must be a number']))
  }
  const first = await send('POST', '/api/notes', '{"value":[1e308,null,"1e400",{}]}')
  t.equal(first.statusCode, 201)
  for (const method of ['PUT', 'PATCH'] as const) {
    const changed = await send(method, '/api/notes/1', '{"value":{"a":1e400}}')
    t.same(changed.json(), invalidBody('body', ['/value/a', 'must be a number']), method)
  }
  const many = await send('POST', '/api/notes/batch', '[{"value":1},{"value":[1e400]}]')
  t.same(many.json(), invalidBody('body', ['/1/value/0', 'must be a number']))
  t.same((await app.inject('/api/notes')).json(), [first.json()])
})

test('a record does not grow beyond BODY_LIMIT', async t => {
  const app = buildWith(t, { notes: collection({}) }, { BODY_LIMIT: '2000' })
  const send = (method: 'POST' | 'PUT' | 'PATCH', url: string, payload: string) => app.inject({ method, url, payload })
  t.equal((await send('POST', '/api/notes', `{"value":{"a":"${'x'.repeat(1500)}"}}`)).statusCode, 201)
  const refused = await send('PATCH', '/api/notes/1', `{"value":{"b":"${'x'.repeat(500)}"}}`)
  t.same([refused.statusCode, refused.json()], [413, { detail: 'The request body is too large' }])
  t.equal((await send('PATCH', '/api/notes/1', `{"value":{"b":"${'x'.repeat(400)}"}}`)).statusCode, 200)
  const numbers = `{"value":[${'1e20,'.repeat(300)}1]}` // larger in the text that is stored
  t.equal((await send('PUT', '/api/notes/1', numbers)).statusCode, 413)
  t.equal((await app.inject('/api/notes')).json().length, 1)
})

test('compressed bodies are not decompressed', async t => {
  const app = build(t)
  const body = gzipSync(Buffer.alloc(100 * 1024 * 1024, ' '))
  for (const encoding of ['gzip', 'deflate', 'br', 'zstd']) {
    const headers = { 'content-encoding': encoding, 'content-type': 'application/json' }
    const response = await app.inject({ method: 'POST', url: '/api/items', body, headers })
    t.same(response.json(), invalidBody('body', ['', 'must be UTF-8']))
  }
})

/** The service with collections from a file. */
function buildWith (t: Test, collections: object, config: NodeJS.ProcessEnv = {}) {
  return build(t, { COLLECTIONS_FILE: fileOf(t, collections), DOCS: 'false', ...config })
}

function fileOf (t: Test, collections: object) {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify(collections))
  return file
}

/** A collection whose records have a value. */
function collection (value: object) {
  return { schema: { type: 'object', required: ['id'], properties: { id: { type: 'integer' }, value } } }
}
