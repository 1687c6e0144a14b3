// Takes the screenshots in docs/: node --import=tsx scripts/screenshots.ts
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/read-config.js'
import { launch } from '../test/support/browser.js'

const teardowns: (() => unknown)[] = []
const app = buildApp(readConfig({ LOG_LEVEL: 'silent' }))
const base = await app.listen({ port: 3000 })
const browser = await launch({ teardown: end => { teardowns.unshift(end) } })
for (const { path, file, ready } of [
  { path: '/docs', file: 'docs/swagger-ui.png', ready: '.opblock' },
  { path: '/redoc', file: 'docs/redoc.png', ready: 'div[data-section-id*="operation/"]' }
]) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } })
  await page.goto(base + path)
  await page.waitForSelector(ready)
  await page.screenshot({ path: file })
}
for (const end of teardowns) await end()
await app.close()
