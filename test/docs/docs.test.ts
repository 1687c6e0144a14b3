import { createHook } from 'node:async_hooks'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import { Validator } from '@seriousme/openapi-schema-validator'
import type { BrowserContextOptions, Page } from 'playwright-core'
import { test, type Test } from 'tap'
import itemsUsers, { docs } from '../../src/index.js'
import { loadRelative, showAddress } from '../../plugins/docs/pages.js'
import { ensureBuilt } from '../support/built.js'
import { launchFor } from '../support/browser.js'
import { newFolder } from '../support/folder.js'
import { build, everything, followed, host } from '../support/helper.js'

const operations = {
  'GET /livez': ['isLive', '200 400 500 503 default'],
  'GET /readyz': ['isReady', '200 400 500 503 default'],
  'GET /api/items': ['listItems', '200 304 400 412 500 503 default'],
  'POST /api/items': ['createItem', '201 400 403 409 412 413 422 500 503 default'],
  'GET /api/items/{item_id}': ['getItem', '200 304 400 404 412 500 503 default'],
  'GET /api/users': ['listUsers', '200 304 400 412 500 503 default'],
  'POST /api/users': ['createUser', '201 400 403 409 412 413 422 500 503 default'],
  'GET /api/users/{id}': ['getUser', '200 304 400 404 412 500 503 default'],
  'DELETE /api/users/{id}': ['deleteUser', '204 400 403 404 409 412 413 500 503 default']
}

test('openapi.json in the repository is the document that the service serves', async t => {
  const response = await build(t).inject({ url: '/openapi.json', headers: { host: '127.0.0.1:3000' } })
  t.equal(response.statusCode, 200)
  t.same(response.json(), JSON.parse(await readFile('openapi.json', 'utf8')), 'run npm run openapi')
})

test('the document describes every operation in full', async t => {
  const { openapi, info, components, paths } = (await build(t).inject('/openapi.json')).json()
  const { name, description, license, version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.equal(openapi, '3.1.0')
  t.same(info, { title: 'Items and users', description, version, contact: { name }, license: { name: license, identifier: license } })
  t.same(Object.keys(components.schemas), ['ErrorBody', 'Problem', 'InvalidRequest', 'ConflictingRequest', 'Item', 'User'])

  const described: Record<string, string[]> = {}
  for (const [path, methods] of Object.entries<Record<string, any>>(paths)) {
    for (const [method, { operationId, responses, requestBody, ...operation }] of Object.entries(methods)) {
      described[`${method.toUpperCase()} ${path}`] = [operationId, Object.keys(responses).sort().join(' ')]
      t.type(operation.summary, 'string')
      t.equal(operation.tags.length, 1)
      const bodies = Object.entries<any>({ ...responses, ...requestBody && { body: requestBody } })
      for (const [status, body] of bodies.filter(([status]) => status !== '204' && status !== '304')) {
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
    t.match(response.body, '<meta name="viewport" content="width=device-width, initial-scale=1">')
    for (const link of links.filter(link => !link.startsWith('data:'))) {
      const { pathname } = new URL(link, `http://localhost${url}`)
      t.match(link, /^\./)
      t.equal((await app.inject(pathname)).statusCode, 200, pathname)
    }
  }
})

test('the scripts and style sheets of the pages are compressed, and browsers cache them', async t => {
  const app = build(t)
  for (const url of ['/docs/static/swagger-ui-bundle.js', '/docs/static/swagger-ui.css', '/redoc/redoc.standalone.js']) {
    for (const coding of ['gzip', 'identity']) {
      const { headers } = await app.inject({ method: 'HEAD', url, headers: { 'accept-encoding': coding } })
      t.match(headers, { vary: 'accept-encoding', 'content-encoding': coding === 'gzip' ? 'gzip' : undefined }, 'HEAD before the first GET')
    }
    const plain = await app.inject(url)
    t.ok(plain.rawPayload.length > 10_000)
    for (const [coding, decode] of Object.entries({ gzip: gunzipSync, br: brotliDecompressSync })) {
      for (const time of ['first', 'second']) {
        const compressed = await app.inject({ url, headers: { 'accept-encoding': coding } })
        t.match(compressed.headers, { 'content-encoding': coding, vary: 'accept-encoding', 'cache-control': 'public, max-age=3600' })
        t.ok(compressed.rawPayload.length < plain.rawPayload.length / 3)
        t.ok(decode(compressed.rawPayload).equals(plain.rawPayload), `${url} ${coding}, the ${time} time`)
        t.equal((await app.inject({ url, headers: { 'accept-encoding': coding, 'if-none-match': compressed.headers.etag } })).statusCode, 304)
      }
    }
  }
})

test('a page or file that is requested with Accept-Encoding is handled once', async t => {
  const app = build(t)
  const handled: string[] = []
  app.addHook('onRequest', async ({ url }) => { handled.push(url) })
  const urls = ['/docs', '/docs/static/index.css', '/redoc', '/redoc/init.js']
  for (const url of urls) t.equal((await app.inject({ url, headers: { 'accept-encoding': 'gzip' } })).statusCode, 200)
  t.same(handled, urls)
})

test('every page, file and document is sent in every coding, and HEAD and 304 have the headers of GET', async t => {
  for (const headers of [{}, { 'if-modified-since': new Date().toUTCString() }, { range: 'bytes=0-9' }]) {
    const app = build(t)
    for (const url of ['/docs', '/docs/', '/docs/json', '/docs/yaml', '/docs/static/index.css', '/docs/static/favicon-16x16.png', '/docs/static/logo.svg',
      '/docs/static/swagger-initializer.js', '/redoc', '/redoc/init.js', '/openapi.json', '/api/items']) {
      const head = await app.inject({ method: 'HEAD', url, headers })
      const plain = await app.inject({ url, headers })
      t.equal(plain.statusCode, 200, url)
      t.match(plain.headers, { vary: 'accept-encoding', 'accept-ranges': undefined, 'last-modified': undefined })
      t.same({ ...head.headers, date: '' }, { ...plain.headers, date: '' }, `HEAD ${url}`)
      for (const [coding, decode] of Object.entries({ gzip: gunzipSync, br: brotliDecompressSync })) {
        for (const accepted of [coding, `${coding}, identity;q=0`]) {
          const compressed = await app.inject({ url, headers: { ...headers, 'accept-encoding': accepted } })
          const isCompressed = compressed.headers['content-encoding'] === coding
          t.ok(isCompressed || (accepted === coding && plain.rawPayload.length < 1024), `${url} ${accepted}`)
          t.ok((isCompressed ? decode(compressed.rawPayload) : compressed.rawPayload).equals(plain.rawPayload), `${url} ${accepted}`)
          const compressedHead = await app.inject({ method: 'HEAD', url, headers: { ...headers, 'accept-encoding': accepted } })
          t.same({ ...compressedHead.headers, date: '' }, { ...compressed.headers, date: '' }, `HEAD ${url} ${accepted}`)
        }
      }
      if (String(plain.headers['content-type']).startsWith('text/html')) continue
      for (const method of ['GET', 'HEAD'] as const) {
        const { statusCode, headers: { etag, vary, 'cache-control': cacheControl } } = await app.inject({ method, url, headers: { 'if-none-match': plain.headers.etag } })
        t.same([statusCode, etag, vary, cacheControl], [304, plain.headers.etag, plain.headers.vary, plain.headers['cache-control']], `304 ${url}`)
      }
    }
  }
})

test('the document is generated and compressed once for each format, coding and address', async t => {
  let compressions = 0
  const hook = createHook({ init: (_id, type) => { if (type === 'ZLIB') compressions++ } }).enable()
  t.teardown(() => hook.disable())
  const app = build(t)
  for (const url of ['/openapi.json', '/openapi.json?relative', '/docs/json', '/docs/yaml']) {
    compressions = 0
    const bodies: Buffer[] = []
    for (let n = 0; n < 5; n++) bodies.push((await app.inject({ url, headers: { 'accept-encoding': 'gzip' } })).rawPayload)
    t.equal(compressions, 1, url)
    t.ok(bodies.every(body => body.equals(bodies[0] as Buffer)))
  }
  for (let n = 0; n < 25; n++) t.equal((await app.inject({ url: '/openapi.json', headers: { host: `host-${n}` } })).json().servers[0].url, `http://host-${n}`)
})

test('Swagger UI resolves the server URLs of the document, and leaves other responses as they are', async t => {
  const text = '{"servers":[{"url":"."},{"url":"https://example.com/v1"}],"paths":{"/a":{"get":{"parameters":[{"name":"limit","schema":{"examples":[100]}}]}},"/b":{"get":{"parameters":[{"name":"limit"}]}},"/c":{"get":{}},"/d":{}}}'
  const { text: resolved } = showAddress({ url: 'http://127.0.0.1/some/where/openapi.json?relative', text })
  t.same(JSON.parse(resolved).servers, [{ url: 'http://127.0.0.1/some/where' }, { url: 'https://example.com/v1' }])
  t.equal(JSON.parse(resolved).paths['/a'].get.parameters[0].example, 100)
  t.equal(showAddress({ url: 'http://127.0.0.1/api/items', text }).text, text)
  t.same(loadRelative({ url: '/openapi.json', loadSpec: true }).url, '/openapi.json?relative')
  t.same(loadRelative({ url: '/api/items' }).url, '/api/items')
})

test('two API versions are separate groups', async t => {
  const { tags, paths } = (await build(t, { API_PREFIX: '/api,/api/v1' }).inject('/openapi.json')).json()
  t.same(tags.map(({ name }: { name: string }) => name), ['items', 'users', 'items (/api/v1)', 'users (/api/v1)', 'health'])
  t.equal(tags[2].description, tags[0].description)
  t.same(paths['/api/items'].get.tags, ['items'])
  t.same(paths['/api/v1/items'].get.tags, ['items (/api/v1)'])
})

test('the tags are in the order of the collections, and health is the last one', async t => {
  const COLLECTIONS_FILE = `${newFolder(t)}/collections.json`
  const schema = { type: 'object', required: ['id'], properties: { id: { type: 'integer' } } }
  writeFileSync(COLLECTIONS_FILE, JSON.stringify({ items: null, users: null, b: { schema: { ...schema, description: 'A b' } }, a: { schema }, c: { schema: { ...schema, description: 'A c' } } }))
  const { tags } = (await build(t, { COLLECTIONS_FILE }).inject('/openapi.json')).json()
  t.same(tags, [{ name: 'b', description: 'A b' }, { name: 'a' }, { name: 'c', description: 'A c' }, { name: 'health', description: 'Probes for orchestrators and load balancers' }])
})

test('API_TITLE, API_VERSION and API_DESCRIPTION describe the API', async t => {
  const { info } = (await build(t, { API_TITLE: 'Shop', API_VERSION: '2.1', API_DESCRIPTION: 'All *orders*' }).inject('/openapi.json')).json()
  t.same(info, { title: 'Shop', version: '2.1', description: 'All *orders*' })
  const { info: { title, version } } = (await build(t, { API_VERSION: '2.1' }).inject('/openapi.json')).json()
  t.same([title, version], ['Items and users', '2.1'])
})

test('GET / redirects browsers to the documentation, and answers other clients with links', async t => {
  const browser = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' }
  const app = build(t, { API_PREFIX: '/api,/api/v1' })
  const redirect = await app.inject({ url: '/', headers: browser })
  t.same([redirect.statusCode, redirect.headers.location, redirect.headers.vary], [302, './docs', 'accept'])
  for (const headers of [{}, { accept: '*/*' }, { accept: 'application/json, text/plain, */*' }]) {
    const response = await app.inject({ url: '/', headers })
    t.match(response.headers, { 'content-type': 'application/json; charset=utf-8', vary: 'accept', 'cache-control': 'no-cache' })
    t.same(response.json(), {
      docs: ['./docs', './redoc', './openapi.json'],
      health: ['./livez', './readyz'],
      items: ['./api/items', './api/v1/items'],
      users: ['./api/users', './api/v1/users']
    })
    for (const link of Object.values<string>(response.json()).flat()) t.equal((await app.inject(followed(link, '/'))).statusCode, 200, link)
  }
  const bare = await build(t, { DOCS: 'false' }).inject({ url: '/', headers: browser })
  t.same(bare.json(), { health: ['./livez', './readyz'], items: ['./api/items'], users: ['./api/users'] })
})

test('a browser that requests an icon gets 204, and nothing is logged', async t => {
  const lines: string[] = []
  const response = await build(t, { LOG_LEVEL: 'info' }, { write: line => lines.push(line) }).inject('/favicon.ico')
  t.same([response.statusCode, response.body, response.headers['cache-control']], [204, '', 'public, max-age=86400'])
  t.same(lines, [])
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
  // redocly rejects localhost.
  const document = (await build(t, everything).inject({ url: '/openapi.json', headers: { host: '127.0.0.1' } })).json()
  t.same(document.components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } })
  const ids: string[] = []
  for (const [path, methods] of Object.entries<Record<string, any>>(document.paths)) {
    for (const [method, { operationId, security, responses }] of Object.entries(methods)) {
      ids.push(operationId)
      if (!path.startsWith('/api')) continue
      t.same(security, [{ bearer: [`${path.includes('items') ? 'items' : 'users'}:${method === 'get' ? 'read' : 'write'}`] }])
      t.ok(responses[403].headers['WWW-Authenticate'])
      t.ok(responses[401].headers['WWW-Authenticate'])
      t.ok(responses[429].headers['Retry-After'])
      for (const status of Object.keys(responses).filter(status => status.startsWith('2'))) t.ok(responses[status].headers['X-RateLimit-Limit'])
      for (const [status, { content }] of Object.entries<any>(responses)) {
        if (status !== '204' && status !== '304') t.ok(content['application/json'].example, `${operationId} ${status} has an example`)
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

test('in a browser', async t => {
  // Over plain HTTP to these hosts, browsers send Origin and no Sec-Fetch-Site.
  const launched = await launchFor(t)
  if (!launched) return
  const browser = launched

  const app = build(t)
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const direct = `http://service.test:${port}`
  const proxied = `http://proxy.test:${await proxy(t, port, '/some/where')}/some/where`

  const screen = { slash: '', where: 'on a screen', options: { viewport: { width: 1440, height: 900 }, colorScheme: 'light' } } as const
  const phone = { slash: '/', where: 'on a phone in dark mode', options: { viewport: { width: 390, height: 900 }, colorScheme: 'dark' } } as const

  for (const { base, slash, where, options } of [{ base: direct, ...screen }, { base: proxied, ...phone }]) {
    t.test(`${base.replace(/:\d+/, '')}/docs${slash} renders every operation ${where}, and "Try it out" posts an item`, async t => {
      const { page, problems } = await open(`${base}/docs${slash}`, options)
      await page.waitForSelector('.opblock')
      const shown = await page.$$eval('.opblock-summary', blocks => blocks.map(block => [
        block.querySelector('.opblock-summary-method')?.textContent,
        block.querySelector('.opblock-summary-path')?.textContent?.replaceAll('\u200b', '')
      ].join(' ')))
      t.same(shown.sort(), Object.keys(operations).sort())
      t.equal(await page.inputValue('.servers select'), base, 'the server has its address')
      t.equal(await page.inputValue('.download-url-input'), `${base}/openapi.json`, 'the bar shows the document')
      await page.click('#operations-items-listItems .opblock-summary-control')
      await page.click('#operations-items-listItems .try-out__btn')
      t.equal(await page.locator('#operations-items-listItems .parameters input:placeholder-shown').count(), 2, 'its other parameters are empty')
      t.equal(await page.inputValue('#operations-items-listItems tr[data-param-name="limit"] input'), '100', 'a list of all records would be slow')
      t.same(await look(page, '.title', '.swagger-ui'), options)

      const before = (await app.inject('/api/items')).json().length
      await page.click('#operations-items-createItem .opblock-summary-control')
      await page.click('#operations-items-createItem .try-out__btn')
      const sent = page.waitForRequest(request => request.method() === 'POST')
      await page.click('#operations-items-createItem .execute')
      const { origin, 'sec-fetch-site': site } = await (await sent).allHeaders()
      t.same([origin, site], [new URL(base).origin, undefined], 'cross-origin protection compares the Origin with the Host')
      await page.waitForSelector('#operations-items-createItem .live-responses-table tbody .response-col_status')
      t.match(await page.textContent('#operations-items-createItem .live-responses-table tbody .response-col_status'), /201/)
      const items = (await app.inject('/api/items')).json()
      t.equal(items.length, before + 1)
      t.same(items.at(-1), { id: 2, name: 'Teapot', price: 24.5 })
      t.same(problems, [])
    })
  }

  for (const { base, slash, where, options } of [{ base: direct, ...phone }, { base: proxied, ...screen }]) {
    t.test(`${base.replace(/:\d+/, '')}/redoc${slash} renders every operation ${where}`, async t => {
      const { page, problems } = await open(`${base}/redoc${slash}`, options)
      await page.waitForSelector('div[data-section-id*="operation/"]')
      const shown = await page.$$eval('div[data-section-id*="operation/"]', sections =>
        sections.map(section => section.getAttribute('data-section-id')?.split('operation/')[1]))
      t.same(Array.from(new Set(shown)).sort(), Object.values(operations).map(([id]) => id).sort())
      t.match(await page.textContent('div[data-section-id*="listItems"]'), `${base}/api/items`, 'the server has its address')
      t.same(await look(page, 'h1', 'body'), options)
      t.same(problems, [])
    })
  }

  t.test('all texts of both pages have a contrast of at least 4.5 in light and in dark mode', async t => {
    const COLLECTIONS_FILE = `${newFolder(t)}/collections.json`
    // One collection with all operations and several kinds of fields, because the time grows with the page.
    const properties = { id: { type: 'integer' }, text: { type: 'string', pattern: '^a', description: 'A text' }, price: { type: 'number', minimum: 0, examples: [1.5] }, colour: { type: ['string', 'null'], enum: ['red', null] } }
    writeFileSync(COLLECTIONS_FILE, JSON.stringify({ items: null, users: null, notes: { schema: { type: 'object', required: ['id', 'price'], properties } } }))
    const service = build(t, { COLLECTIONS_FILE, AUTH_TOKENS: 'sesame', PUBLIC_SCOPES: 'read', RATE_LIMIT_MAX: '1000' })
    const base = await service.listen({ port: 0, host: '127.0.0.1' })
    const { page } = await open(`${base}/docs`, screen.options)
    await page.waitForSelector('.opblock')
    await clickAll(page, '.opblock-summary-control[aria-expanded="false"], .json-schema-2020-12-expand-deep-button')
    await page.click('#operations-notes-listNotes .try-out__btn')
    await page.click('#operations-notes-listNotes .execute')
    await page.waitForSelector('#operations-notes-listNotes .live-responses-table tbody .response-col_status')
    // The button changes the mode, because a page with all this takes much longer to open than to check.
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      if (colorScheme === 'dark') await page.click('.dark-mode-toggle button')
      t.same(await page.evaluate(lowContrasts), [], `/docs in ${colorScheme} mode`)
      t.same(await look(page, '.title', '.swagger-ui'), { ...screen.options, colorScheme })
      await page.click('.auth-wrapper .authorize')
      await page.waitForSelector('.auth-container input')
      t.same(await page.evaluate(lowContrasts), [], `"Authorize" in ${colorScheme} mode`)
      await page.click('.auth-btn-wrapper .btn-done')

      const { page: redoc } = await open(`${base}/redoc`, { ...screen.options, colorScheme })
      await redoc.waitForSelector('div[data-section-id*="operation/"]')
      await clickAll(redoc, 'h3 + div button, [data-section-id] button:has(> strong)')
      t.same(await redoc.evaluate(lowContrasts), [], `/redoc in ${colorScheme} mode`)
    }
  })

  t.test('a description cannot leave the page or run scripts', async t => {
    const described = build(t, { API_DESCRIPTION: 'Before <meta http-equiv="refresh" content="0;url=/livez"><img src="x" onerror="document.title = 1"> after' })
    await described.listen({ port: 0, host: '127.0.0.1' })
    const address = `http://service.test:${(described.server.address() as AddressInfo).port}`
    for (const [path, rendered] of [['/docs', '.opblock'], ['/redoc', 'div[data-section-id*="operation/"]']] as const) {
      const { page } = await open(address + path, screen.options)
      await page.waitForSelector(rendered)
      t.match(await page.textContent('body'), /Before\s+after/)
      t.equal(await page.locator('meta[http-equiv="refresh" i], [onerror]').count(), 0, path)
      await page.waitForTimeout(200)
      t.equal(page.url(), address + path)
    }
  })

  t.test('"Authorize" takes a token that survives a reload, and "Try it out" sends it', async t => {
    const guarded = build(t, { AUTH_TOKENS: 'sesame' })
    await guarded.listen({ port: 0 })
    const { page, problems } = await open(`http://127.0.0.1:${(guarded.server.address() as AddressInfo).port}/docs`)
    await page.click('.auth-wrapper .authorize')
    await page.fill('.auth-container input', 'sesame')
    await page.click('.auth-btn-wrapper .authorize')
    await page.click('.auth-btn-wrapper .btn-done')
    await page.reload()
    await page.click('#operations-items-createItem .opblock-summary-control')
    await page.click('#operations-items-createItem .try-out__btn')
    await page.click('#operations-items-createItem .execute')
    await page.waitForSelector('#operations-items-createItem .live-responses-table tbody .response-col_status')
    t.match(await page.textContent('#operations-items-createItem .live-responses-table tbody .response-col_status'), /201/)
    t.same(problems, [])
  })

  t.test('the client works in a page of another origin', async t => {
    ensureBuilt()
    const site = createServer(({ url = '' }, response) => url.endsWith('.js')
      ? response.writeHead(200, { 'content-type': 'text/javascript' }).end(readFileSync(`dist/src/client${url}`))
      : response.writeHead(200, { 'content-type': 'text/html' }).end('<!DOCTYPE html>')
    ).listen(0, '127.0.0.1')
    t.teardown(() => site.close().closeAllConnections())
    await once(site, 'listening')
    const origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`
    const service = build(t, { CORS_ORIGIN: origin, AUTH_TOKENS: 'sesame' })
    await service.listen({ port: 0 })
    const { page } = await open(origin)
    const said = await page.evaluate(`(async () => {
      const { createClient, etag } = await import('/index.js')
      const { items, users } = createClient('http://127.0.0.1:${(service.server.address() as AddressInfo).port}/api', { token: async () => 'sesame', headers: { 'X-Tenant': 'acme' } })
      await items.create({ id: 2, name: 'Teapot 🫖', price: 24.5 })
      const names = []
      for await (const { name } of items.list({ pageSize: 1 })) names.push(name)
      await users.delete(1, { ifMatch: etag(await users.get(1)) })
      const { status, detail, requestId } = await users.get(1).catch(error => error)
      return { names, status, detail, hasRequestId: requestId !== null }
    })()`)
    t.same(said, { names: ['Lamp', 'Teapot 🫖'], status: 404, detail: 'Not found', hasRequestId: true })
  })

  /** Opens a page and notes what its console complains of, and every request to another origin. */
  async function open (url: string, options: BrowserContextOptions = {}) {
    const page = await browser.newPage(options)
    page.setDefaultTimeout(0) // the machine may be slow
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

  async function clickAll (page: Page, selector: string) {
    t.not(await page.evaluate(`(() => {
      const found = document.querySelectorAll('${selector}')
      for (const button of found) button.click()
      return found.length
    })()`), 0, selector)
  }

  /** The width of the page, and its color scheme by the colors of a text and its background. */
  async function look (page: Page, text: string, background: string) {
    const [width, ...colors] = await page.evaluate<[number, string, string]>(`[
      document.documentElement.scrollWidth,
      getComputedStyle(document.querySelector('${text}')).color,
      getComputedStyle(document.querySelector('${background}')).backgroundColor
    ]`)
    const [isBrightText, isBrightBackground] = colors.map(color => Number(/\d+/.exec(color)) > 128)
    return { viewport: { width, height: 900 }, colorScheme: isBrightText && !isBrightBackground ? 'dark' : 'light' }
  }
})

/** Lists the visible texts of a page with a contrast below 4.5, as WCAG 2.2 defines it, and how many texts there are if they are few. */
const lowContrasts = `(() => {
  for (const animation of document.getAnimations()) animation.cancel()
  const parse = color => color.match(/[\\d.]+/g).map(Number)
  const over = ([r, g, b, alpha = 1], under) => [r, g, b].map((value, n) => value * alpha + under[n] * (1 - alpha))
  const luminance = color => color.map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, n) => sum + value * [0.2126, 0.7152, 0.0722][n], 0)
  const found = new Set()
  let texts = 0
  const painted = new Map([[null, { background: [255, 255, 255], opacity: 1 }]])
  const paint = element => {
    if (painted.has(element)) return painted.get(element)
    const behind = paint(element.parentElement)
    const { backgroundColor, opacity } = getComputedStyle(element)
    const own = { background: over(parse(backgroundColor), behind.background), opacity: behind.opacity * opacity }
    painted.set(element, own)
    return own
  }
  for (const element of document.querySelectorAll('body *')) {
    if (element.getClientRects().length === 0 || element.closest('svg') || getComputedStyle(element).visibility !== 'visible') continue
    const own = Array.from(element.childNodes).filter(({ nodeType }) => nodeType === Node.TEXT_NODE).map(({ textContent }) => textContent).join('').trim() || element.value
    const pseudo = ['::before', '::after'].map(name => [name, getComputedStyle(element, name).content]).filter(([, content]) => /^".*[^\\s\\u200b].*"$/.test(content))
    for (const [name, text] of [...own ? [[undefined, own]] : [], ...pseudo, ...element.placeholder && !element.value ? [['::placeholder', element.placeholder]] : []]) {
      const { background, opacity } = paint(element)
      if (opacity === 0) continue
      const [r, g, b, alpha = 1] = parse(getComputedStyle(element, name).color)
      const [dark, bright] = [over([r, g, b, alpha * opacity], background), background].map(luminance).sort((one, other) => one - other)
      const contrast = (bright + 0.05) / (dark + 0.05)
      texts++
      if (contrast < 4.5) found.add([contrast.toFixed(2), element.tagName, element.className, name, text.slice(0, 30), [r, g, b], background.map(Math.round)].join(' '))
    }
  }
  return texts > 100 ? Array.from(found) : ['only ' + texts + ' texts']
})()`

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
