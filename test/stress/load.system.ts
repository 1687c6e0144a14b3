import { test } from 'tap'
import { onEveryEngine } from '../support/engines.js'
import { generated } from './generated.js'
import { serve } from './service.js'
import { soak } from './soak.js'
import { mangled, neverReads, slowClients } from './wire.js'

onEveryEngine((t, address, engine) => {
  t.test('generated requests get the responses of the document and of a model', async t => {
    const { url } = await serve(t, { DATABASE_URL: address(), DOCS: 'true' })
    const create = { method: 'POST', target: '/api/users', headers: { 'content-type': 'application/json' }, body: Buffer.from('{"id":7,"name":"Grace"}') }
    // What 100 generated requests do not always contain.
    const examples = [create, { method: 'DELETE', target: '/api/users/7', headers: {} }, { ...create, headers: { ...create.headers, origin: 'https://example.com' } }]
    const { requests, statuses } = await generated(url, { requests: 100, examples })
    for (const status of [200, 201, 204, 400, 403, 404, 405]) t.ok(statuses[status], `${status} in ${requests} requests`)
  })

  if (engine !== 'memory') return // drills.long.ts has the others

  t.test('memory, handles and timers do not grow under load', async t => {
    const { requests, heap, rss, handles, timers } = await soak(t, address(), { seconds: 1, looks: 6 })
    t.ok(requests > 0, `${requests} requests`)
    t.ok(heap < 1.2, `the heap is ${heap} times as large`)
    t.ok(rss < 1.3, `all memory is ${rss} times as large`)
    t.ok(handles <= 2 && timers <= 2, `${handles} handles and ${timers} timers more`)
  })
})

test('requests that arrive in pieces are answered in order, and corrupted ones do not affect others', async t => {
  const { url } = await serve(t)
  t.match(await mangled(url, { runs: 100 }), { connections: 100 })
})

test('next to a thousand slow clients, others are served', async t => {
  t.match(await slowClients(t, { clients: 1000, requests: 20 }), { clients: 1000 })
})

test('clients that do not read a long list use little memory for it, and others are served', async t => {
  t.match(await neverReads(t, { records: 400, name: 'x'.repeat(50_000), readers: 10, requests: 100 }), { readers: 10 })
})
