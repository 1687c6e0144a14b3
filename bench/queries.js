// Compares queries of a million records with GET one, and POST to a collection with four filters with POST without.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { Readable } from 'node:stream'
import { openEngine } from '../dist/plugins/stores.js'

const { startPostgres } = await import('../test/support/postgres.ts')

const schema = {
  type: 'object',
  required: ['id', 'member_id', 'price', 'status', 'due'],
  properties: { id: { type: 'integer' }, member_id: { type: 'integer' }, price: { type: 'number' }, status: { type: 'string' }, due: { type: 'string' } }
}
const filters = ['member_id', 'price', 'status', 'due']
const loan = (id, members) => ({
  id, member_id: id % members, price: (id * 7919) % 100_003 / 100, status: id % 20 ? 'back' : 'open', due: new Date(id * 1e6).toISOString()
})

const queries = {
  'member_id=7 (10 matches)': { where: { member_id: 7 } },
  'sort=-price&limit=10': { sort: '-price', limit: 10 },
  'both together': { where: { member_id: 7 }, sort: '-price', limit: 10 }
}

/** Returns rows with a name and ratios: times for queries, rates for POST. */
export async function measureQueries (rounds, progress, records = 1_000_000) {
  const folder = mkdtempSync(join(tmpdir(), 'bench-'))
  const ends = [() => rmSync(folder, { recursive: true })]
  const postgres = await startPostgres({ teardown: end => ends.push(end), comment: console.error })
  const rows = []
  try {
    for (const [name, address] of [['memory', 'memory'], ['SQLite', `sqlite:${join(folder, 'loans.db')}`], ['PostgreSQL', postgres.database()]]) {
      progress(`${records} records: ${name}`)
      const engine = await openEngine(address, { timeout: 600_000, poolSize: 10 })
      ends.unshift(engine.close)
      const seed = Array.from({ length: records }, (_, id) => loan(id, records / 10))
      const store = engine.open({ name: 'loans', schema, seed, filters })
      const [plain, filtered] = [undefined, filters].map((filters, n) => engine.open({ name: `posted_${n}`, schema, seed: [], filters }))
      await engine.start()
      if (name === 'PostgreSQL') await postgres.query('analyze', address)

      const one = () => store.first(records / 2)
      const actions = Object.entries(queries).map(([query, selection]) => [query, async () => text(Readable.from((await store.select(selection)).list))])
      for (const [query, action, repeats] of [...actions.map(action => [...action, 50]), ['total=true for status=open', () => store.count({ where: { status: 'open' } }), 3]]) {
        const ratios = []
        for (let round = 0; round < rounds; round++) ratios.push(await timeOf(action, repeats) / await timeOf(one, 500))
        rows.push({ name: `${query} on ${name}: time, to GET one`, ratios })
      }
      const ratios = []
      for (let round = 0; round <= rounds; round++) {
        const ratio = await appendRate(filtered) / await appendRate(plain)
        if (round > 0) ratios.push(ratio)
      }
      rows.push({ name: `POST with four filters on ${name}: rate, to POST without`, ratios })
      await ends.shift()()
    }
  } finally {
    for (const end of ends) await end()
  }
  return rows
}

async function timeOf (action, repeats) {
  const began = performance.now()
  for (let n = 0; n < repeats; n++) await action()
  return (performance.now() - began) / repeats
}

/** Records that 64 callers append in a second. */
async function appendRate (store) {
  const began = performance.now()
  let done = 0
  await Promise.all(Array.from({ length: 64 }, async () => {
    for (; performance.now() < began + 1000; done++) {
      await store.append(loan(done, 1000))
      if (done % 64 === 0) await new Promise(setImmediate) // a call in memory returns at once
    }
  }))
  return done / (performance.now() - began) * 1000
}
