import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { test, type Test } from 'tap'
import { readConfig } from '../../src/read-config.js'
import itemsUsers, { auth } from '../../src/index.js'
import { listen, request } from '../support/connection.js'
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
      for (const authorization of ['Bearer three', 'Bearer', 'Bearer ', 'Bearer on', 'Bearer one,two+/=']) {
        const wrong = await app.inject({ url, headers: { authorization } })
        t.equal(wrong.statusCode, 401, authorization)
        t.equal(wrong.headers['www-authenticate'], 'Bearer error="invalid_token"')
        t.same(wrong.json(), { detail: 'The bearer token is not valid' })
      }
      for (const authorization of ['Basic b25lOnR3bw==', 'basic one', 'one', 'Token one', 'Bearerone']) {
        const other = await app.inject({ url, headers: { authorization } })
        t.equal(other.statusCode, 401, authorization)
        t.equal(other.headers['www-authenticate'], 'Bearer')
        t.same(other.json(), { detail: 'A bearer token is required: Authorization must be "Bearer" and a token' })
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
  t.throws(() => readConfig({ AUTH_TOKENS: 'sesame, open' }), { message: /^(?!.*sesame).* AUTH_TOKENS must be tokens separated by commas/s })
})

test('a new AUTH_TOKENS_FILE takes effect without a restart, and an invalid one is logged and not used', async t => {
  const file = `${newFolder(t)}/tokens`
  writeFileSync(file, 'one\n  two\r\n')
  const lines: string[] = []
  const app = helper.build(t, { AUTH_TOKENS: 'always', AUTH_TOKENS_FILE: file, LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  const status = async (token: string) => (await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode
  for (const token of ['one', 'two', 'always']) t.equal(await status(token), 200)
  t.equal(await status('four'), 401)

  // as a mounted secret is replaced
  writeFileSync(`${file}.new`, 'four')
  renameSync(`${file}.new`, file)
  await until(async () => await status('four') === 200)
  t.equal(await status('one'), 401)
  t.equal(await status('always'), 200)

  const failure = () => lines.find(line => line.includes('the previous tokens stay valid'))
  writeFileSync(file, 'five\nses,ame\n')
  await until(() => failure() !== undefined)
  t.same(await Promise.all(['four', 'five', 'ses,ame', 'always'].map(status)), [200, 401, 401, 200])
  t.match(JSON.parse(String(failure())), { level: 50, err: { message: /^Invalid tokens or scopes:\n {2}line 2 of the option file must be TOKEN or NAME:TOKEN/ } })
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
  writeFileSync(file, '\uFEFF# the token of the shop\none\n\n \t\n  # another word\ntwo+/== # and its comment\n#three\nreports:four\n')
  const app = helper.build(t, { AUTH_TOKENS_FILE: file })
  const status = async (token: string) => (await app.inject({ url: '/api/items', headers: bearer(token) })).statusCode
  for (const token of ['one', 'two+/==', 'four']) t.equal(await status(token), 200, token)
  for (const token of ['#', 'the', 'token', 'of', 'shop', 'another', 'word', '# another word', 'two+/== # and its comment', 'and', 'comment', 'three', '#three', 'reports', 'reports:four', '']) {
    t.equal(await status(token), 401, token)
  }
})

test('an AUTH_TOKENS_FILE that is missing, empty or invalid ends the process with one message without tokens', async t => {
  const file = `${newFolder(t)}/tokens`
  const server = start(t, { AUTH_TOKENS_FILE: file })
  t.same(await server.exit, [1, null])
  t.match(server.errors(), /^Cannot read AUTH_TOKENS_FILE: ENOENT.*\/tokens.*\n$/)

  for (const empty of ['', '\n\n', '# later\n']) {
    writeFileSync(file, empty)
    await t.rejects(async () => helper.build(t, { AUTH_TOKENS: 'one', AUTH_TOKENS_FILE: file }).ready(), { code: 'ERR_STARTUP', message: 'The option file contains no tokens.' })
  }

  const scopes = 'must be a token and then its scopes, each read, write, COLLECTION:read or COLLECTION:write'
  const rule = 'must be TOKEN or NAME:TOKEN, of letters, digits and -._~+/, with = only at the end'
  writeFileSync(file, ['fine', 'two words', '', 'one,two', 'a=b', 'name:', ':token', 'a:b:c', 'sesame#3', 'zoë', 'name: token'].join('\n'))
  await t.rejects(async () => helper.build(t, { AUTH_TOKENS_FILE: file }).ready(), {
    code: 'ERR_STARTUP', message: ['Invalid tokens or scopes:', ...[2, 4, 5, 6, 7, 8, 9, 10, 11].map(n => `  line ${n} of the option file ${n === 2 ? scopes : rule}`)].join('\n')
  })
  for (const tokens of ['name:', 'a:b:c', 'a, b', 'a:b,']) t.throws(() => readConfig({ AUTH_TOKENS: tokens }), { message: /AUTH_TOKENS must be tokens separated by commas, each TOKEN or NAME:TOKEN/ })
})

test('log lines of a request contain the name of its token and never the token', async t => {
  const file = `${newFolder(t)}/tokens`
  writeFileSync(file, 'reports:open-sesame\nsesame2\n')
  const lines: string[] = []
  const app = helper.build(t, { AUTH_TOKENS: 'shop:sesame,sesame1', AUTH_TOKENS_FILE: file, LOG_LEVEL: 'info' }, { write: line => lines.push(line) })
  app.addHook('preHandler', async function fail ({ url }) { if (url === '/api/users') throw new Error('boom') })
  for (const [token, name] of [['sesame', 'shop'], ['open-sesame', 'reports'], ['sesame1', undefined], ['sesame2', undefined], ['sesame3', undefined]] as const) {
    lines.length = 0
    for (const url of ['/api/items', '/api/items/9', '/api/nope', '/api/users']) await app.inject({ url, headers: bearer(token) })
    const parsed = lines.map(line => JSON.parse(line))
    t.equal(parsed.length, token === 'sesame3' ? 4 : 5, 'one line per request, and one for the error')
    for (const line of parsed) t.equal(line.token, name)
    t.notMatch(lines.join(), 'sesame')
  }
})

test('a host can check tokens with its own function', async t => {
  const app = helper.host(t)
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

test('invalid tokens of a host are reported at startup', async t => {
  const app = helper.host(t)
  app.register(auth, { tokens: ['shop:one', 'a b'] })
  await t.rejects(async () => app.ready(), { code: 'ERR_STARTUP', message: /^Invalid tokens or scopes:\n {2}entry 2 of the option tokens must be TOKEN or NAME:TOKEN/ })
})

test('of several Authorization headers, the first one counts', async t => {
  const send = await listen(helper.build(t, { AUTH_TOKENS: 'one,two' }))
  for (const [tokens, expected] of [[['one', 'wrong'], 200], [['wrong', 'one'], 401]] as const) {
    const headers = tokens.map(token => `Authorization: Bearer ${token}`)
    t.equal((await send(request('GET', '/api/items', '', ...headers))).status, expected)
  }
})
