import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { Validator } from '@seriousme/openapi-schema-validator'
import Fastify from 'fastify'
import { test, type Test } from 'tap'
import itemsUsers, { docs } from '../../src/index.js'
import { launch } from '../support/browser.js'
import { newFolder } from '../support/folder.js'
import { build, everything } from '../support/helper.js'

const operations = {
  'GET /livez': ['isLive', '200 400 4XX 500 503'],
  'GET /readyz': ['isReady', '200 400 4XX 500 503'],
  'GET /api/items': ['listItems', '200 400 4XX 500 503'],
  'POST /api/items': ['createItem', '201 400 403 409 413 422 4XX 500 503'],
  'GET /api/items/{item_id}': ['getItem', '200 400 404 4XX 500 503'],
  'GET /api/users': ['listUsers', '200 400 4XX 500 503'],
  'POST /api/users': ['createUser', '201 400 403 409 413 422 4XX 500 503'],
  'GET /api/users/{id}': ['getUser', '200 400 404 4XX 500 503'],
  'DELETE /api/users/{id}': ['deleteUser', '204 400 403 404 413 4XX 500 503']
}

test('openapi.json in the repository is the document that the service serves', async t => {
  const response = await build(t).inject('/openapi.json')
  t.equal(response.statusCode, 200)
  t.same(response.json(), JSON.parse(await readFile('openapi.json', 'utf8')), 'run npm run openapi')
})

test('the document describes every operation in full', async t => {
  const { openapi, info, components, paths } = (await build(t).inject('/openapi.json')).json()
  const { name, description, license, version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.equal(openapi, '3.1.0')
  t.same(info, { title: 'Items and users', description, version, contact: { name }, license: { name: license, identifier: license } })
  t.same(Object.keys(components.schemas), ['ErrorBody', 'Fault', 'InvalidRequest', 'Item', 'User'])

  const described: Record<string, string[]> = {}
  for (const [path, methods] of Object.entries<Record<string, any>>(paths)) {
    for (const [method, { operationId, responses, requestBody, ...operation }] of Object.entries(methods)) {
      described[`${method.toUpperCase()} ${path}`] = [operationId, Object.keys(responses).sort().join(' ')]
      t.type(operation.summary, 'string')
      t.equal(operation.tags.length, 1)
      const bodies = Object.entries<any>({ ...responses, ...requestBody && { body: requestBody } })
      for (const [status, body] of bodies.filter(([status]) => status !== '204')) {
        t.ok(body.content['application/json'].example, `${operationId} ${status} has an example`)
      }
    }
  }
  t.same(described, operations)
  t.same(paths['/api/items'].post.requestBody.content['application/json'].schema, { $ref: '#/components/schemas/Item' })
  t.ok(paths['/api/items'].post.responses[201].headers.Location)
})

test('the pages have a content security policy and only relative links', async t => {
  const app = build(t)
  t.equal((await app.inject('/docs/json')).json().servers[0].url, '..')
  for (const url of ['/docs', '/docs/', '/redoc', '/redoc/']) {
    const response = await app.inject(url)
    t.equal(response.statusCode, 200)
    t.equal(response.headers['content-type'], 'text/html; charset=utf-8')
    t.match(response.headers['content-security-policy'], /^default-src 'none'; script-src 'self'; /)
    t.notMatch(response.headers['content-security-policy'], /https?:|upgrade-insecure-requests/)
    const links = Array.from(response.body.matchAll(/(?:src|href|data-document)="([^"]+)"/g), ([, link]) => String(link))
    t.ok(links.length > 2)
    for (const link of links.filter(link => !link.startsWith('data:'))) {
      const { pathname } = new URL(link, `http://localhost${url}`)
      t.match(link, /^\./)
      t.equal((await app.inject(pathname)).statusCode, 200, pathname)
    }
  }
})

test('the license of Redoc is included', async t => {
  const app = build(t)
  t.match((await app.inject('/redoc/LICENSE')).body, /MIT License/)
  t.equal((await app.inject('/redoc/redoc.standalone.js.LICENSE.txt')).statusCode, 200)
})

test('an unknown file of a documentation page is answered with 404', async t => {
  const app = build(t)
  for (const url of ['/redoc/nothing', '/docs/static/nothing']) {
    const response = await app.inject(url)
    t.equal(response.statusCode, 404)
    t.same(response.json(), { detail: 'Path not found' })
  }
})

test('the document is valid OpenAPI 3.1', async t => {
  t.same(await new Validator().validate(JSON.parse(await readFile('openapi.json', 'utf8'))), { valid: true })
})

test('the document contains the responses of the features that are enabled, and is valid', async t => {
  const plain = (await build(t).inject('/openapi.json')).json()
  t.equal(plain.components.securitySchemes, undefined)
  const document = (await build(t, everything).inject('/openapi.json')).json()
  t.same(document.components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } })
  const ids: string[] = []
  for (const [path, methods] of Object.entries<Record<string, any>>(document.paths)) {
    for (const { operationId, security, responses } of Object.values(methods)) {
      ids.push(operationId)
      if (!path.startsWith('/api')) continue
      t.same(security, [{ bearer: [] }])
      t.ok(responses[401].headers['WWW-Authenticate'])
      t.ok(responses[429].headers['Retry-After'])
      for (const status of Object.keys(responses).filter(status => status.startsWith('2'))) t.ok(responses[status].headers['X-RateLimit-Limit'])
      for (const [status, { content }] of Object.entries<any>(responses)) {
        if (status !== '204') t.ok(content['application/json'].example, `${operationId} ${status} has an example`)
      }
    }
  }
  t.equal(new Set(ids).size, ids.length)
  t.same(document.paths['/api/items'].post.requestBody.content['application/json'],
    { schema: { $ref: '#/components/schemas/NewItem' }, example: { name: 'Teapot', price: 24.5 } })
  const file = `${newFolder(t)}/openapi.json`
  writeFileSync(file, JSON.stringify(document))
  const { stderr } = await promisify(execFile)('node_modules/.bin/redocly', ['lint', file], { env: { ...process.env, NODE_OPTIONS: '' } })
  t.match(stderr, /is valid/)
})

test('operation ids are unique with several prefixes', async t => {
  const app = host(t)
  await app.register(docs)
  for (const prefix of ['/api', '/api/v1', '/api-v1', '/:shop']) app.register(itemsUsers, { prefix })
  const { paths } = (await app.inject('/openapi.json')).json()
  const ids = Object.values<any>(paths).flatMap(methods => Object.values<any>(methods).map(({ operationId }) => operationId))
  t.equal(ids.length, 28)
  t.equal(new Set(ids).size, 28)
})

test('in a browser', { timeout: 120_000 }, async t => {
  const browser = await launch(t).catch((error: Error) => error)
  if (browser instanceof Error) {
    if (process.env.CI) throw browser
    return t.plan(0, `no browser can be started: ${browser.message}`)
  }

  const app = build(t)
  await app.listen({ port: 0, host: '0.0.0.0' })
  const { port } = app.server.address() as AddressInfo
  const direct = `http://127.0.0.2:${port}`
  const proxied = `http://127.0.0.1:${await proxy(t, port, '/some/where')}/some/where`

  for (const base of [direct, proxied]) {
    for (const slash of ['', '/']) {
      t.test(`${base.replace(/:\d+/, '')}/docs${slash} renders every operation, and "Try it out" posts an item`, async t => {
        const { page, problems } = await open(`${base}/docs${slash}`)
        await page.waitForSelector('.opblock')
        const shown = await page.$$eval('.opblock-summary', blocks => blocks.map(block => [
          block.querySelector('.opblock-summary-method')?.textContent,
          block.querySelector('.opblock-summary-path')?.textContent?.replaceAll('\u200b', '')
        ].join(' ')))
        t.same(shown.sort(), Object.keys(operations).sort())

        const before = (await app.inject('/api/items')).json().length
        await page.click('#operations-items-createItem .opblock-summary-control')
        await page.click('#operations-items-createItem .try-out__btn')
        await page.click('#operations-items-createItem .execute')
        await page.waitForSelector('#operations-items-createItem .live-responses-table tbody .response-col_status')
        t.match(await page.textContent('#operations-items-createItem .live-responses-table tbody .response-col_status'), /201/)
        const items = (await app.inject('/api/items')).json()
        t.equal(items.length, before + 1)
        t.same(items.at(-1), { id: 2, name: 'Teapot', price: 24.5 })
        t.same(problems, [])
      })

      t.test(`${base.replace(/:\d+/, '')}/redoc${slash} renders every operation`, async t => {
        const { page, problems } = await open(`${base}/redoc${slash}`)
        await page.waitForSelector('div[data-section-id*="operation/"]')
        const shown = await page.$$eval('div[data-section-id*="operation/"]', sections =>
          sections.map(section => section.getAttribute('data-section-id')?.split('operation/')[1]))
        t.same(Array.from(new Set(shown)).sort(), Object.values(operations).map(([id]) => id).sort())
        t.same(problems, [])
      })
    }
  }

  t.test('"Authorize" takes a token, and "Try it out" sends it', async t => {
    const guarded = build(t, { AUTH_TOKENS: 'sesame' })
    await guarded.listen({ port: 0 })
    const { page, problems } = await open(`http://127.0.0.1:${(guarded.server.address() as AddressInfo).port}/docs`)
    await page.click('.auth-wrapper .authorize')
    await page.fill('.auth-container input', 'sesame')
    await page.click('.auth-btn-wrapper .authorize')
    await page.click('.auth-btn-wrapper .btn-done')
    await page.click('#operations-items-listItems .opblock-summary-control')
    await page.click('#operations-items-listItems .try-out__btn')
    await page.click('#operations-items-listItems .execute')
    await page.waitForSelector('#operations-items-listItems .live-responses-table tbody .response-col_status')
    t.match(await page.textContent('#operations-items-listItems .live-responses-table tbody .response-col_status'), /200/)
    t.same(problems, [])
  })

  /** Opens a page and notes what its console complains of, and every request to another origin. */
  async function open (url: string) {
    const page = await (await browser as Exclude<typeof browser, Error>).newPage({ viewport: { width: 1200, height: 900 } })
    const problems: string[] = []
    page.on('console', message => { if (['error', 'warning'].includes(message.type())) problems.push(message.text()) })
    page.on('pageerror', error => problems.push(error.message))
    page.on('request', request => {
      const { origin, protocol } = new URL(request.url())
      if (protocol.startsWith('http') && origin !== new URL(url).origin) problems.push(request.url())
    })
    page.on('response', response => { if (response.status() >= 400) problems.push(response.url()) })
    await page.goto(url)
    return { page, problems }
  }
})

/** A proxy that serves the port under a path prefix, which it strips. */
async function proxy (t: Test, port: number, prefix: string) {
  const server = createServer((incoming, outgoing) => {
    const { method, headers, url = '' } = incoming
    if (!url.startsWith(`${prefix}/`)) return outgoing.writeHead(404).end()
    incoming.pipe(request({ port, method, headers, path: url.slice(prefix.length) }, response => {
      outgoing.writeHead(response.statusCode ?? 0, response.headers)
      response.pipe(outgoing)
    }))
  }).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

function host (t: Test) {
  const app = Fastify()
  t.teardown(() => app.close())
  return app
}
