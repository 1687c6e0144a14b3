import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { test } from 'tap'
import { readConfig } from '../../src/read-config.js'
import itemsUsers, { auth } from '../../src/index.js'
import { listen, request } from '../support/connection.js'
import { newFolder } from '../support/folder.js'
import { build, everything, host } from '../support/helper.js'
import { start } from '../support/process.js'
import { until } from '../support/until.js'

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const item = { id: 7, name: 'Kettle', price: 19.99 }

test('with AUTH_TOKENS, all paths of the API require a token, and the pages and probes do not', async t => {
  const app = build(t, { AUTH_TOKENS: 'one,two+/=' })
  for (const url of ['/api/items', '/api/items/1', '/api/users', '/api/nope', '/api']) {
    const missing = await app.inject(url)
    t.same([missing.statusCode, missing.headers['www-authenticate']], [401, 'Bearer'], url)
    t.same(missing.json(), { detail: 'A bearer token is required' })
    for (const authorization of ['Bearer three', 'Bearer', 'Bearer ', 'Bearer on', 'Bearer one,two+/=']) {
      const { statusCode, headers, body } = await app.inject({ url, headers: { authorization } })
      t.same([statusCode, headers['www-authenticate']], [401, 'Bearer error="invalid_token"'], authorization)
      t.equal(body, '{"detail":"The bearer token is not valid"}')
    }
    for (const authorization of ['Basic b25lOnR3bw==', 'basic one', 'one', 'Token one', 'Bearerone']) {
      const { statusCode, headers, json } = await app.inject({ url, headers: { authorization } })
      t.same([statusCode, headers['www-authenticate']], [401, 'Bearer'], authorization)
      t.equal(json().detail, 'A bearer token is required: Authorization must be "Bearer" and a token')
    }
  }
  for (const authorization of ['Bearer one', 'bearer one', 'Bearer two+/=']) {
    t.equal((await app.inject({ url: '/api/items', headers: { authorization } })).statusCode, 200)
  }
  t.equal((await app.inject({ url: '/api/nope', headers: bearer('one') })).statusCode, 404)
  t.equal((await app.inject({ method: 'POST', url: '/api/items', payload: item })).statusCode, 401)
  t.equal((await app.inject({ url: '/api/items', headers: bearer('one') })).json().length, 1)
  for (const url of ['/docs', '/redoc', '/openapi.json', '/livez', '/readyz']) {
    t.equal((await app.inject(url)).statusCode, 200, url)
  }
})

test('tokens do not appear in logs, errors or the document', async t => {
  const lines: string[] = []
  const env = { ...everything, AUTH_TOKENS: 'sesame', LOG_LEVEL: 'trace' }
  const app = build(t, env, { write: line => lines.push(line) })
  const seen: string[] = []
  for (const url of ['/api/items', '/api/nope', '/openapi.json', '/docs/json']) {
    for (const token of ['sesame', 'sesame2']) seen.push((await app.inject({ url, headers: bearer(token) })).body)
  }
  t.ok(lines.length > 5)
  t.notMatch([...lines, ...seen].join('\n'), 'sesame')
  const message = /^(?!.*sesame).* AUTH_TOKENS must be tokens separated by commas/s
  t.throws(() => readConfig({ AUTH_TOKENS: 'sesame, open' }), { message })
})

test('a new AUTH_TOKENS_FILE takes effect without a restart, and an invalid one is logged and not used', async t => {
  const file = `${newFolder(t)}/tokens`
  writeFileSync(file, 'one\n  two\r\n')
  const lines: string[] = []
  const env = { AUTH_TOKENS: 'always', AUTH_TOKENS_FILE: file, LOG_LEVEL: 'info' }
  const app = build(t, env, { write: line => lines.push(line) })
  const status = async (token: string) => (await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode
  const statuses = (...tokens: string[]) => Promise.all(tokens.map(status))
  t.same(await statuses('one', 'two', 'always', 'four'), [200, 200, 200, 401])

  // as a mounted secret is replaced
  writeFileSync(`${file}.new`, 'four')
  renameSync(`${file}.new`, file)
  await until(async () => await status('four') === 200)
  t.same(await statuses('one', 'always'), [401, 200])

  const failure = () => lines.find(line => line.includes('the previous tokens stay valid'))
  writeFileSync(file, 'five\nses,ame\n')
  await until(() => failure() !== undefined)
  t.same(await statuses('four', 'five', 'ses,ame', 'always'), [200, 401, 401, 200])
  const message = /^Invalid tokens or scopes:\n {2}line 2 of the option file must be TOKEN or NAME:TOKEN/
  t.match(JSON.parse(String(failure())), { level: 50, err: { message } })
  t.notMatch(lines.join(), 'ses,ame')

  lines.length = 0
  rmSync(file)
  await until(() => failure() !== undefined)
  t.equal(await status('four'), 200, 'the previous tokens stay valid')

  writeFileSync(file, '# none any more\n')
  await until(async () => await status('four') === 401)
  t.equal(await status('always'), 200)
})

test('AUTH_TOKENS_FILE has one token per line, and comments and blank lines grant no access', async t => {
  const file = `${newFolder(t)}/tokens`
  const lines = ['\uFEFF# the shop', 'one', '', ' \t', '  # another word', 'two+/== # x', '#three', 'reports:four']
  writeFileSync(file, lines.join('\n'))
  const app = build(t, { AUTH_TOKENS_FILE: file })
  const status = async (token: string) => (await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode
  for (const token of ['one', 'two+/==', 'four']) t.equal(await status(token), 200, token)
  for (const token of ['#', 'the', 'word', '# another word', '#three', 'reports:four', '']) {
    t.equal(await status(token), 401, token)
  }
})

test('an AUTH_TOKENS_FILE that is missing, empty or invalid is one message without tokens at startup', async t => {
  const file = `${newFolder(t)}/tokens`
  const server = start(t, { AUTH_TOKENS_FILE: file })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot read AUTH_TOKENS_FILE: ENOENT.*\/tokens.*\n$/)

  const starting = async (content: string) => {
    writeFileSync(file, content)
    await build(t, { AUTH_TOKENS: 'one', AUTH_TOKENS_FILE: file }).ready()
  }
  await t.rejects(starting('# later\n'), { code: 'ERR_STARTUP', message: 'The option file contains no tokens.' })
  const wrong = ['one,two', 'a=b', 'name:', ':token', 'a:b:c', 'sesame#3', 'zoë', 'name: token']
  const rule = 'must be TOKEN or NAME:TOKEN, of letters, digits and -._~+/, with = only at the end'
  const problems = wrong.map((_, n) => `  line ${n + 2} of the option file ${rule}`)
  await t.rejects(starting(['fine', ...wrong].join('\n')), {
    code: 'ERR_STARTUP', message: ['Invalid tokens or scopes:', ...problems].join('\n')
  })
  for (const tokens of ['name:', 'a:b:c', 'a, b', 'a:b,']) {
    t.throws(() => readConfig({ AUTH_TOKENS: tokens }), { message: /AUTH_TOKENS must be tokens separated by commas/ })
  }
})

test('log lines of a request contain the name of its token and never the token', async t => {
  const lines: string[] = []
  const env = { AUTH_TOKENS: 'shop:sesame,sesame1', LOG_LEVEL: 'info' }
  const app = build(t, env, { write: line => lines.push(line) })
  app.addHook('preHandler', async function fail ({ url }) { if (url === '/api/users') throw new Error('boom') })
  for (const [token, name] of [['sesame', 'shop'], ['sesame1', undefined], ['sesame3', undefined]] as const) {
    lines.length = 0
    for (const url of ['/api/items', '/api/items/9', '/api/nope', '/api/users']) {
      await app.inject({ url, headers: bearer(token) })
    }
    t.equal(lines.length, token === 'sesame3' ? 4 : 5, 'one line per request, and one for the error')
    for (const line of lines) t.equal(JSON.parse(line).token, name)
    t.notMatch(lines.join(), 'sesame')
  }
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
    scope.get('/mine', async request => request.getDecorator<string>('bearerToken'))
  })
  app.get('/open', async () => 'open')
  t.equal((await app.inject({ url: '/api/items', headers: bearer('for GET') })).statusCode, 200)
  t.equal((await app.inject({ url: '/api/items', headers: bearer('for POST') })).statusCode, 401)
  const { statusCode, body } = await app.inject({ url: '/api/items', headers: bearer('broken') })
  t.same([statusCode, body], [500, '{"detail":"Internal server error"}'])
  t.equal((await app.inject({ url: '/mine', headers: bearer('for GET') })).body, 'for GET')
  t.equal((await app.inject('/mine')).statusCode, 401)
  t.equal((await app.inject('/open')).body, 'open')
})

test('auth inside another auth scope requires a token that both accept', async t => {
  const app = host(t)
  app.register(async function outer (scope) {
    await scope.register(auth, { tokens: ['reader', 'admin'] })
    scope.get('/read', async () => 'read')
    scope.register(async function inner (scope) {
      await scope.register(auth, { tokens: ['admin'] })
      scope.register(itemsUsers, { prefix: '/api' })
    })
  })
  const statuses = (url: string) => Promise.all(['reader', 'admin', 'other'].map(async token =>
    (await app.inject({ url, headers: bearer(token) })).statusCode))
  t.same(await statuses('/read'), [200, 200, 401])
  t.same(await statuses('/api/items'), [401, 200, 401])
})

test('of several Authorization headers, the first one counts', async t => {
  const send = await listen(build(t, { AUTH_TOKENS: 'one,two' }))
  for (const [tokens, expected] of [[['one', 'wrong'], 200], [['wrong', 'one'], 401]] as const) {
    const headers = tokens.map(token => `Authorization: Bearer ${token}`)
    t.equal((await send(request('GET', '/api/items', '', ...headers))).status, expected)
  }
})
