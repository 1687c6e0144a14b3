import { readFileSync, writeFileSync } from 'node:fs'
import { test } from 'tap'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { examplesIn } from '../support/markdown.js'

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
      const schema = String(file).replace('"tool", "due"]', '"tool", "due", "returned"]').replace('"deposit_cents": {', `${step}$&`)
      writeFileSync(settings.COLLECTIONS_FILE, schema)
      app = build(t, settings)
    }
  }
})
