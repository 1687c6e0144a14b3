import { renameSync, rmSync, writeFileSync } from 'node:fs'
import Fastify from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { auth } from '../../src/index.js'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import * as helper from '../support/helper.js'
import { start } from '../support/process.js'
import { until } from '../support/until.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const item = { id: 7, name: 'Kettle', price: 19.99 }

onEveryEngine((t, address) => {
  const build = (t: Test, env?: NodeJS.ProcessEnv) => helper.build(t, { DATABASE_URL: address(), ...env })

  t.test('with AUTH_TOKENS, all paths under the prefix require a token, and the documentation pages and probes do not', async t => {
    const app = build(t, { AUTH_TOKENS: 'one,two+/=' })
    for (const url of ['/api/items', '/api/items/1', '/api/users', '/api/nope', '/api']) {
      const missing = await app.inject(url)
      t.equal(missing.statusCode, 401, url)
      t.equal(missing.headers['www-authenticate'], 'Bearer')
      t.same(missing.json(), { detail: 'A bearer token is required' })
      for (const authorization of ['Bearer three', 'Bearer', 'Bearer ', 'Bearer on', 'Bearer one,two+/=', 'Basic one', 'one']) {
        const wrong = await app.inject({ url, headers: { authorization } })
        t.equal(wrong.statusCode, 401, authorization)
        t.equal(wrong.headers['www-authenticate'], 'Bearer error="invalid_token"')
        t.same(wrong.json(), { detail: 'The bearer token is not valid' })
      }
    }
    for (const authorization of ['Bearer one', 'bearer one', 'Bearer two+/=']) {
      t.equal((await app.inject({ url: '/api/items', headers: { authorization } })).statusCode, 200)
    }
    t.equal((await app.inject({ url: '/api/nope', headers: bearer('one') })).statusCode, 404)
    t.equal((await app.inject({ method: 'POST', url: '/api/items', payload: item })).statusCode, 401)
    t.equal((await app.inject({ method: 'POST', url: '/api/items', body: '{', headers: bearer('x') })).statusCode, 401)
    t.equal((await app.inject({ url: '/api/items', headers: bearer('one') })).json().length, 1)
    for (const url of ['/docs', '/redoc', '/openapi.json', '/livez', '/readyz']) t.equal((await app.inject(url)).statusCode, 200)
  })
})

test('tokens do not appear in logs, errors or the document', async t => {
  const lines: string[] = []
  const app = helper.build(t, { ...helper.everything, AUTH_TOKENS: 'sesame', LOG_LEVEL: 'trace' }, { write: line => lines.push(line) })
  const seen: string[] = []
  for (const options of [{ url: '/api/items' }, { url: '/api/nope' }, { url: '/openapi.json' }, { url: '/docs/json' }, { method: 'POST', url: '/api/items', body: '{' }] as const) {
    for (const token of ['sesame', 'sesame2']) seen.push((await app.inject({ ...options, headers: bearer(token) })).body)
  }
  t.ok(lines.length > 5)
  t.notMatch([...lines, ...seen].join('\n'), 'sesame')
  const server = start(t, { AUTH_TOKENS: 'sesame, open' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^ {2}AUTH_TOKENS must be tokens separated by commas/m)
  t.notMatch(server.errors(), 'sesame')
})

test('changes of AUTH_TOKENS_FILE take effect without a restart', async t => {
  const folder = newFolder(t)
  const file = `${folder}/tokens`
  writeFileSync(file, 'one\n  two,three\n')
  const lines: string[] = []
  const app = helper.build(t, { AUTH_TOKENS: 'always', AUTH_TOKENS_FILE: file, LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  const status = async (token: string) => (await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode
  for (const token of ['one', 'two', 'three', 'always']) t.equal(await status(token), 200)
  t.equal(await status('four'), 401)

  // as a mounted secret is replaced
  writeFileSync(`${file}.new`, 'four')
  renameSync(`${file}.new`, file)
  await until(async () => await status('four') === 200)
  t.equal(await status('one'), 401)
  t.equal(await status('always'), 200)

  rmSync(file)
  await until(() => lines.join().includes('cannot be reloaded'))
  t.equal(await status('four'), 200, 'the previous tokens stay valid')

  writeFileSync(file, '')
  await until(async () => await status('four') === 401)
  t.equal(await status('always'), 200)
})

test('a missing AUTH_TOKENS_FILE ends the process with one clear line', async t => {
  const server = start(t, { AUTH_TOKENS_FILE: '/nowhere/tokens' })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot read AUTH_TOKENS_FILE: ENOENT.*\/nowhere\/tokens.*\n$/)
})

test('a host can check tokens with its own function', async t => {
  const app = host(t)
  app.register(async function guarded (scope) {
    scope.register(auth, {
      check: async (token, request) => {
        if (token === 'broken') throw new Error('the secret of the inside')
        return token === `for ${request.method}`
      }
    })
    scope.register(itemsUsers, { prefix: '/api' })
    scope.get('/mine', { schema: { response: { 200: { type: 'string' } } } }, async request => request.getDecorator('bearerToken'))
  })
  app.get('/open', async () => 'open')
  t.equal((await app.inject({ url: '/api/items', headers: bearer('for GET') })).statusCode, 200)
  t.equal((await app.inject({ url: '/api/items', headers: bearer('for POST') })).statusCode, 401)
  const broken = await app.inject({ url: '/api/items', headers: bearer('broken') })
  t.equal(broken.statusCode, 500)
  t.equal(broken.body, '{"detail":"Internal server error"}')
  t.equal((await app.inject({ url: '/mine', headers: bearer('for GET') })).body, 'for GET')
  t.equal((await app.inject('/mine')).statusCode, 401)
  t.equal((await app.inject('/open')).body, 'open')
})

function host (t: Test, options = {}) {
  const app = Fastify(options)
  t.teardown(() => app.close())
  return app
}
