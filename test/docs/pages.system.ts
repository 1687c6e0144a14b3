import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { BrowserContextOptions, Page } from 'playwright-core'
import { test, type Test } from 'tap'
import { launchFor } from '../support/browser.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'

interface Document { paths: Record<string, Record<string, { operationId: string }>> }

const { paths } = JSON.parse(readFileSync('openapi.json', 'utf8')) as Document
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { operationId }]) => ({
    name: `${method.toUpperCase()} ${path}`,
    operationId
  })))

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

  const screen = {
    slash: '',
    where: 'on a screen',
    options: { viewport: { width: 1440, height: 900 }, colorScheme: 'light' }
  } as const
  const phone = {
    slash: '/',
    where: 'on a phone in dark mode',
    options: { viewport: { width: 390, height: 900 }, colorScheme: 'dark' }
  } as const

  for (const { base, slash, where, options } of [{ base: direct, ...screen }, { base: proxied, ...phone }]) {
    const shownAt = `${base.replace(/:\d+/, '')}/docs${slash}`
    t.test(`${shownAt} renders every operation ${where}, and "Try it out" posts an item`, async t => {
      const { page, problems } = await open(`${base}/docs${slash}`, options)
      await page.waitForSelector('.opblock')
      const shown = await page.$$eval('.opblock-summary', blocks => blocks.map(block => [
        block.querySelector('.opblock-summary-method')?.textContent,
        block.querySelector('.opblock-summary-path')?.textContent?.replaceAll('\u200b', '')
      ].join(' ')))
      t.same(shown.sort(), operations.map(({ name }) => name).sort())
      await page.click('#operations-items-listItems .opblock-summary-control')
      await page.click('#operations-items-listItems .try-out__btn')
      t.equal(await page.locator('#operations-items-listItems .parameters input:placeholder-shown').count(), 2,
        'its other parameters are empty')
      t.equal(await page.inputValue('#operations-items-listItems tr[data-param-name="limit"] input'), '100',
        'a list of all records would be slow')
      t.same(await look(page, '.title', '.swagger-ui'), options)

      const before = (await app.inject('/api/items')).json().length
      await page.click('#operations-items-createItem .opblock-summary-control')
      await page.click('#operations-items-createItem .try-out__btn')
      const sent = page.waitForRequest(request => request.method() === 'POST')
      await page.click('#operations-items-createItem .execute')
      t.equal((await sent).url(), `${base}/api/items`)
      const { origin, 'sec-fetch-site': site } = await (await sent).allHeaders()
      t.same([origin, site], [new URL(base).origin, undefined],
        'cross-origin protection compares the Origin with the Host')
      await page.waitForSelector('#operations-items-createItem .live-responses-table tbody .response-col_status')
      t.match(await page.textContent('#operations-items-createItem .live-responses-table tbody .response-col_status'),
        /201/)
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
      t.same(Array.from(new Set(shown)).sort(), operations.map(({ operationId }) => operationId).sort())
      t.match(await page.textContent('div[data-section-id*="listItems"]'), `${base}/api/items`,
        'the server has its address')
      t.same(await look(page, 'h1', 'body'), options)
      t.same(problems, [])
    })
  }

  t.test('all texts of both pages have a contrast of at least 4.5 in light and in dark mode', async t => {
    const COLLECTIONS_FILE = `${newFolder(t)}/collections.json`
    // One collection with all operations and several kinds of fields, because the time grows with the page.
    const properties = {
      id: { type: 'integer' },
      text: { type: 'string', pattern: '^a', description: 'A text' },
      price: { type: 'number', minimum: 0, examples: [1.5] },
      colour: { type: ['string', 'null'], enum: ['red', null] },
      due: { type: 'string', format: 'date' }
    }
    writeFileSync(COLLECTIONS_FILE,
      JSON.stringify({
        items: null,
        users: null,
        notes: { schema: { type: 'object', required: ['id', 'price'], properties }, filters: ['due'] }
      }))
    const service = build(t, { COLLECTIONS_FILE, AUTH_TOKENS: 'sesame', PUBLIC_SCOPES: 'read', RATE_LIMIT_MAX: '1000' })
    const base = await service.listen({ port: 0, host: '127.0.0.1' })
    const { page, problems } = await open(`${base}/docs`, screen.options)
    await page.waitForSelector('.opblock')
    await clickAll(page, '.opblock-summary-control[aria-expanded="false"], .json-schema-2020-12-expand-deep-button')
    await page.click('#operations-notes-listNotes .try-out__btn')
    await page.click('#operations-notes-listNotes .execute')
    await page.waitForSelector('#operations-notes-listNotes .live-responses-table tbody .response-col_status')
    t.same(problems, [], 'no component is missing')
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
    const harmful = '<meta http-equiv="refresh" content="0;url=/livez"><img src="x" onerror="document.title = 1">'
    const described = build(t, { API_DESCRIPTION: `Before ${harmful} after` })
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
    t.match(await page.textContent('#operations-items-createItem .live-responses-table tbody .response-col_status'),
      /201/)
    t.same(problems, [])
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

/**
 * Lists the visible texts of a page with a contrast below 4.5, as WCAG 2.2 defines it, and how many texts there are if
 * they are few.
 */
const lowContrasts = `(() => {
  for (const animation of document.getAnimations()) animation.cancel()
  const parse = color => color.match(/[\\d.]+/g).map(Number)
  const over = ([r, g, b, alpha = 1], under) => [r, g, b].map((value, n) => value * alpha + under[n] * (1 - alpha))
  const luminance = color => color.map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
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
    if (element.getClientRects().length === 0 || element.closest('svg')) continue
    if (getComputedStyle(element).visibility !== 'visible') continue
    const nodes = Array.from(element.childNodes).filter(({ nodeType }) => nodeType === Node.TEXT_NODE)
    const own = nodes.map(({ textContent }) => textContent).join('').trim() || element.value
    const pseudo = ['::before', '::after'].map(name => [name, getComputedStyle(element, name).content])
      .filter(([, content]) => /^".*[^\\s\\u200b].*"$/.test(content))
    const shown = element.placeholder && !element.value ? [['::placeholder', element.placeholder]] : []
    for (const [name, text] of [...own ? [[undefined, own]] : [], ...pseudo, ...shown]) {
      const { background, opacity } = paint(element)
      if (opacity === 0) continue
      const [r, g, b, alpha = 1] = parse(getComputedStyle(element, name).color)
      const [dark, bright] = [over([r, g, b, alpha * opacity], background), background].map(luminance)
        .sort((one, other) => one - other)
      const contrast = (bright + 0.05) / (dark + 0.05)
      texts++
      const place = [element.tagName, element.className, name, text.slice(0, 30)]
      if (contrast < 4.5) found.add([contrast.toFixed(2), ...place, [r, g, b], background.map(Math.round)].join(' '))
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
