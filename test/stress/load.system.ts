import { writeFileSync } from 'node:fs'
import { test } from 'tap'
import { onEveryEngine } from '../support/engines.js'
import { newFolder } from '../support/folder.js'
import { build } from '../support/helper.js'
import { randomCollections } from './collections.js'
import { generated } from './generated.js'
import { seedOf, serve } from './service.js'
import { growth, mangled, neverReads } from './wire.js'

const { seed = 5 } = seedOf()
const random = randomCollections(40, seed)

onEveryEngine((t, address, engine) => {
  t.test('random requests get the responses that the document describes, and change what they should', async t => {
    const { url } = await serve(t, { DATABASE_URL: address(), DOCS: 'true' })
    const headers = { 'content-type': 'application/json' }
    const create = { method: 'POST', target: '/api/users', headers, body: Buffer.from('{"id":7,"name":"Grace"}') }
    // What 100 random requests do not always contain.
    const examples = [create, { method: 'DELETE', target: '/api/users/7', headers: {} }]
    const statuses = await generated(url, { requests: 100, examples })
    for (const status of [200, 201, 204, 400, 404, 405]) t.ok(statuses[status], `${status}`)
  })

  t.test('what a random schema accepts is stored and returned unchanged, and what it rejects is 400', async t => {
    const file = `${newFolder(t)}/collections.json`
    writeFileSync(file, random.file)
    const app = build(t, { DATABASE_URL: address(), COLLECTIONS_FILE: file, DOCS: 'false' })
    const { problems, share } = await random.check(async (method, url, payload) => {
      const response = await app.inject({ method, url, payload })
      return { status: response.statusCode, body: response.json() }
    }, engine === 'memory' ? 6 : 3)
    t.same(problems, [], `TEST_SEED=${seed}`)
    t.ok(share > 0.1 && share < 0.9, `${share} of the records are accepted`)
  })
})

test('memory, handles and timers do not grow under load', async t => {
  const { heap, rss, handles, timers } = await growth(t, 'memory', 6)
  t.ok(heap < 1.3 && rss < 1.3, `the heap is ${heap} times as large, and all memory ${rss} times`)
  t.ok(handles <= 2 && timers <= 2, `${handles} handles and ${timers} timers more`)
})

test('requests that arrive in pieces are answered in order, and corrupted ones do not affect others', async t => {
  const { url } = await serve(t)
  await mangled(url, 100)
})

test('clients that do not read a long list use little memory for it, and others are served', async t => {
  await neverReads(t, 400, 'x'.repeat(50_000))
})
