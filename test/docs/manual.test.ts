import { execFile } from 'node:child_process'
import { createSign, generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type { FastifyInstance, InjectOptions } from 'fastify'
import { test, type Test } from 'tap'
import { Config } from '../../schemas/config.js'
import { readConfig } from '../../src/read-config.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { examplesIn, pages } from '../support/markdown.js'
import { freePort } from '../support/postgres.js'

const curl =
  /^curl (?:-[is] )?'?http:\/\/127\.0\.0\.1:(\d+)([^\s']*)'?(?: -H '(.+?): (.+?)')?(?: -d '(.+)')?(?: \| grep (\w+))?$/
const start = /^(?:(.+) )?npm start$/

// first-application.md is one story, with a test of its own.
for (const page of pages.filter(page => page !== 'docs/first-application.md')) {
  test(`the examples in ${page} have the responses that it shows`, async t => {
    const metricsPort = await freePort()
    const examples = examplesIn(page)
    let section = ''
    let settings = {}
    let app: ReturnType<typeof build> | undefined
    for (const [n, { section: heading, language, code }] of examples.entries()) {
      if (heading !== section) [section, settings, app] = [heading, {}, undefined]
      if (language !== 'sh') continue
      const expected = examples[n + 1]
      const [, variables] = start.exec(code) ?? []
      if (code.includes('--collections')) {
        settings = {
          COLLECTIONS_FILE: fileWith(t, examples.slice(0, n).findLast(({ language }) => language === 'json')?.code)
        }
      }
      if (variables) {
        settings = Object.fromEntries(variables.split(' ').map(variable => variable.split('=')))
        if (expected?.language === 'text') t.throws(() => readConfig(settings), { message: expected.code })
      }
      if (!code.startsWith('curl')) continue
      if (!app) {
        app = build(t, { ...settings, ...'METRICS_PORT' in settings && { METRICS_PORT: String(metricsPort) } })
        await app.ready()
      }
      const [, port, url = '', header, value = '', body, word] = curl.exec(code) ?? []
      t.ok(port, code)
      if (port === '3000') {
        const response = await app.inject({
          method: body ? 'POST' : 'GET',
          url,
          body,
          headers: header ? { [header]: value } : {}
        })
        if (expected?.language === 'http') compare(t, response, expected.code)
        else t.equal(response.body, expected?.code, code)
      } else {
        const text = await (await fetch(`http://127.0.0.1:${metricsPort}${url}`)).text()
        t.equal(text.split('\n').filter(line => line.includes(String(word))).join('\n'), expected?.code, code)
      }
    }
  })
}

test('links between the pages lead to files and headings that exist', async t => {
  for (const page of [...pages, 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md']) {
    for (const [, target = ''] of readFileSync(page, 'utf8').matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path = '', heading] = target.split('#')
      const file = path ? join(dirname(page), path) : page
      t.ok(existsSync(file), `${page}: ${target}`)
      if (heading) t.ok(headingsOf(readFileSync(file, 'utf8')).includes(heading), `${page}: ${target}`)
    }
  }

  /** The anchors of headings, as GitHub builds them. */
  function headingsOf (text: string) {
    return Array.from(text.matchAll(/^#+ (.+)$/gm), ([, title = '']) =>
      title
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, '')
        .replaceAll(' ', '-')
    )
  }
})

test('docs/configuration.md lists every variable with its default and description', async t => {
  const page = readFileSync('docs/configuration.md', 'utf8')
  for (const [name, { default: value, description }] of Object.entries(Config.properties)) {
    t.match(page, `| \`${name}\` | ${value === undefined ? '–' : `\`${value}\``} | ${description} |`)
  }
  t.equal(page.match(/^\| `[A-Z_]+` \|/gm)?.length, Object.keys(Config.properties).length)
})

function fileWith (t: Test, content = '') {
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, content)
  return file
}

/** Compares a response with the HTTP response that a page shows. */
function compare (t: Test, response: Awaited<ReturnType<ReturnType<typeof build>['inject']>>, text: string) {
  const [head = '', body = ''] = text.split('\n\n')
  const [status = '', ...headers] = head.split('\n')
  t.equal(`HTTP/1.1 ${response.statusCode} ${response.statusMessage}`, status)
  t.equal(response.body, body)
  for (const header of headers) {
    const [name = '', ...value] = header.split(': ')
    const actual = String(response.headers[name])
    if (/^(retry-after|x-ratelimit-reset)$/.test(name)) {
      t.ok(Number(actual) <= Number(value) && Number(actual) > 0, `${name}: ${actual}`)
    } else t.equal(actual, value.join(': '), name)
  }
}

const page = 'docs/first-application.md'
const now = '2026-11-19T10:00:00.000Z'

test('who follows "Your first application" gets the responses that it shows', async t => {
  t.ok(readFileSync(page, 'utf8').split('\n').length <= 101, 'it has at most 100 lines')
  const folder = newFolder(t)
  const [file, , ...steps] = examplesIn(page).map(({ code }) => code)
  const settings = { COLLECTIONS_FILE: `${folder}/rentals.json`, DATABASE_URL: `sqlite:${folder}/rentals.db` }
  writeFileSync(settings.COLLECTIONS_FILE, String(file))
  let app = build(t, settings)
  for (const [n, step] of steps.entries()) {
    const [, url = '', body] = /^curl '?http:\/\/127\.0\.0\.1:3000([^\s']+)'?(?: -d '(.+)')?$/.exec(step) ?? []
    if (url) {
      const response = await app.inject({ method: body ? 'POST' : 'GET', url, body })
      t.equal(response.body.replaceAll(/2\d{3}-[\d-]+T[\d:]+\.\d{3}Z/g, now), steps[n + 1], step)
    } else if (step.startsWith('"returned"')) {
      await app.close()
      const schema = String(file)
        .replace('"tool", "due"]', '"tool", "due", "returned"]')
        .replace('"deposit_cents": {', `${step}$&`)
      writeFileSync(settings.COLLECTIONS_FILE, schema)
      app = build(t, settings)
    }
  }
})

const run = promisify(execFile)

// The package finds itself by its name, because this folder is in the repository.
const folder = '.tap/recipes'
rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })

const recipes = examplesIn('docs/recipes.md')
const ownRoute = examplesIn('docs/plugin.md').filter(({ code }) => code.includes('transaction'))
const compilerOptions = {
  target: 'es2022',
  module: 'nodenext',
  lib: ['es2023'],
  types: ['node'],
  strict: true,
  skipLibCheck: true,
  rootDir: '.'
}

for (const { section, language, code } of [...recipes, ...ownRoute]) {
  const text = code.replace('await app.listen({ port: 3000 })', 'export { app }')
  writeFileSync(`${folder}/${fileOf(section)}.${language}`, text)
}
writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions, include: ['*.ts'] }))

test('the recipes compile strictly', async t => {
  const { stdout } = await run('npx', ['tsc', '--project', folder]).catch(error => error)
  t.equal(stdout, '')
})

recipe('Authentication and rate limiting', async (t, ask) => {
  t.equal((await ask('/api/items')).status, 200)
  const headers = { authorization: 'Bearer a-long-random-token' }
  t.equal((await ask('/api/users/1', { method: 'DELETE', headers })).status, 204)
  t.equal((await ask('/api/users/1', { method: 'DELETE' })).status, 401)
})

test('the recipe "Tokens of an identity provider" accepts its tokens', async t => {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const key = { ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' }
  const provider = createServer((_, response) => response.end(JSON.stringify({ keys: [key] }))).listen(0, '127.0.0.1')
  await once(provider, 'listening')
  t.teardown(() => provider.close())
  const iss = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/`
  process.env.ISSUER = iss
  const ask = await open(t, 'Tokens of an identity provider')
  const status = async (claims: object, method: 'GET' | 'DELETE' = 'GET') =>
    (await ask('/api/users/1', { method, headers: { authorization: `Bearer ${signed(claims)}` } })).status
  const claims = { iss, aud: 'items', scope: 'users:read', exp: Date.now() / 1000 + 60 }
  t.equal(await status(claims), 200)
  t.equal(await status(claims, 'DELETE'), 403)
  t.equal(await status({ ...claims, exp: Date.now() / 1000 - 60 }), 401)
  t.equal(await status({ ...claims, iss: 'http://127.0.0.1:1/' }), 401)
  t.equal(await status({ ...claims, aud: 'others' }), 401)

  function signed (claims: object) {
    const parts = [{ alg: 'RS256', kid: 'one', typ: 'JWT' }, claims]
    const text = parts.map(part => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
    return `${text}.${createSign('sha256').update(text).sign(privateKey, 'base64url')}`
  }
})

recipe('Your own error format', async (t, ask) => {
  const { status, body } = await ask('/api/items/9')
  t.same([status, body], [404, { title: 'Not Found', status: 404, detail: 'Not found' }])
})

recipe('Roles, hidden and removed operations', async (t, ask) => {
  t.equal((await ask('/api/items', { method: 'POST', payload: {} })).status, 404)
  t.equal((await ask('/api/users/1', { method: 'DELETE' })).status, 403)
  t.equal((await ask('/api/users/1', { method: 'DELETE', headers: { 'x-role': 'admin' } })).status, 204)
})

recipe('Rules for each record', async (t, ask) => {
  const as = (user: string, options = {}) => ({ ...options, headers: { 'x-user': user } })
  const { body: note } = await ask('/notes', as('ada', { method: 'POST', payload: { text: 'Hi', owner: 'eve' } }))
  t.same(note, { id: 1, owner: 'ada', text: 'Hi' })
  t.equal((await ask('/notes/1', as('ada'))).status, 200)
  for (const method of ['GET', 'DELETE']) t.equal((await ask('/notes/1', as('eve', { method }))).status, 404)
  const change = { method: 'PATCH', payload: { text: 'Ho', owner: 'eve' } }
  t.equal((await ask('/notes/1', as('eve', change))).status, 404)
  t.same((await ask('/notes/1', as('ada', change))).body, { id: 1, owner: 'ada', text: 'Ho' })
})

recipe('Pages of another origin', async (t, ask) => {
  const headersOf = (origin: string) => ({ origin, 'sec-fetch-site': 'cross-site' })
  const remove = (origin: string) => ask('/api/users/1', { method: 'DELETE', headers: headersOf(origin) })
  t.equal((await remove('https://other.example.com')).status, 403)
  const { status, headers } = await remove('https://shop.example.com')
  t.same([status, headers['access-control-allow-origin']], [204, 'https://shop.example.com'])
})

recipe('Created and updated times', async (t, ask) => {
  const { body: [lamp] } = await ask('/items?updated_at.gt=2026-01-01T00:00:00Z')
  t.match(lamp, { id: 1, created_at: /Z$/, updated_at: lamp.created_at })
})

recipe('Tenants', async (t, ask) => {
  const of = (tenant: string, options = {}) => ({ ...options, headers: { 'x-tenant': tenant } })
  t.equal((await ask('/orders', of('red', { method: 'POST', payload: { quantity: 1 } }))).status, 201)
  t.same((await ask('/orders', of('red'))).body, [{ id: 1, quantity: 1 }])
  t.same((await ask('/orders', of('blue'))).body, [])
  t.same((await ask('/orders', of('green'))).body, { detail: 'Unknown tenant' })
})

recipe('An own route that reads and writes collections', async (t, ask) => {
  const as = (token: string, payload?: object) =>
    ({ ...payload && { method: 'POST' as const, payload }, headers: { authorization: `Bearer ${token}` } })
  t.equal((await ask('/rentals/1/return', as('guest', { late_days: 1 }))).status, 403)
  t.match((await ask('/rentals/1/return', as('clerk', { late_days: '1' }))).body, { errors: [{ path: '/late_days' }] })
  t.equal((await ask('/rentals/9/return', as('clerk', { late_days: 1 }))).status, 404)
  const returned = await ask('/rentals/1/return', as('clerk', { late_days: 1 }))
  t.same([returned.status, returned.body], [201, { id: 1, rental_id: 1, cents: 1500 }])
  t.same((await ask('/rentals/1', as('guest'))).body, { id: 1, days: 2, returned: true })
  const { body: refused } = await ask('/rentals/1/return', as('clerk', { late_days: 1 }))
  t.same(refused, { detail: 'The tool is back already' })
  const { body: { paths } } = await ask('/openapi.json', as('clerk'))
  t.match(paths['/rentals/{id}/return'].post, { operationId: 'returnTool', tags: ['rentals'] })
})

type Ask = Awaited<ReturnType<typeof open>>

function recipe (section: string, check: (t: Test, ask: Ask) => Promise<void>) {
  test(`the recipe "${section}" does what it says`, async t => check(t, await open(t, section)))
}

async function open (t: Test, section: string) {
  const file = pathToFileURL(`${folder}/${fileOf(section)}.js`).href
  const { app }: { app: FastifyInstance } = await import(file)
  t.teardown(() => app.close())
  return async (url: string, options: InjectOptions | object = {}) => {
    const response = await app.inject({ url, ...options })
    const body = response.body && response.json()
    return { status: response.statusCode, headers: response.headers, body }
  }
}

function fileOf (section: string) {
  return section.toLowerCase().replaceAll(/\W+/g, '-')
}
