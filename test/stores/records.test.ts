import Database from 'libsql'
import pg from 'pg'
import { test, type Test } from 'tap'
import { engineAt } from '../../plugins/stores/engines.js'
import { nextId, NoIdLeft } from '../../plugins/stores/store.js'
import { databaseDefaults } from '../../schemas/config.js'
import { Item } from '../../schemas/item.js'
import { onEveryEngine } from '../engines.js'
import { build } from '../helper.js'

const largest = Number.MAX_SAFE_INTEGER
const idOf = (json: string): number => JSON.parse(json).id

/** Runs SQL beside the service, as a person would. */
async function runSql (url: string, sql: string) {
  if (url.startsWith('sqlite:')) {
    const database = new Database(url.slice('sqlite:'.length), { timeout: 5000 })
    database.exec(sql)
    return database.close()
  }
  const client = new pg.Client(url)
  await client.connect()
  await client.query(sql)
  await client.end()
}

onEveryEngine((t, address, name) => {
  async function open (t: Test, url = address()) {
    const engine = await engineAt(url, databaseDefaults)
    t.teardown(engine.close)
    return engine.open<Item>({ name: 'things', schema: Item, seed: [] })
  }

  t.test('generated ids are unique, whatever ids clients have chosen', async t => {
    const fields = { name: 'x', price: 1 }
    for (const [chosen, expected] of [
      [[2 ** 52], [2 ** 52 + 1, 2 ** 52 + 2, 2 ** 52 + 3]],
      [[2 ** 52 - 1, 2 ** 52 + 1, 2 ** 52 + 2, largest], [2 ** 52, 2 ** 52 + 3, 2 ** 52 + 4]],
      [[40, 2 ** 52 + 1, largest, -largest], [41, 42, 43]],
      [[-5, -largest], [1, 2, 3]]
    ] as const) {
      const store = await open(t)
      for (const id of chosen) await store.append({ id, ...fields })
      const generated = [await store.append(fields), ...await Promise.all([store.append(fields), store.append(fields, 'key')])]
      t.same(generated.map(idOf).sort((a, b) => a - b), expected)
    }
    const store = await open(t)
    const ids: number[] = []
    for (let n = 0; n < 50; n++) {
      const id = idOf(await store.append(fields))
      ids.push(id)
      if (n % 3 === 0) await store.append({ id: id + 1, ...fields })
      if (n % 5 === 0) await store.removeFirst(id)
    }
    t.equal(new Set(ids).size, ids.length)
  })

  if (name === 'memory') return

  t.test('when no id is left to generate, the answer is 503, and records with ids are still created', async t => {
    const url = address()
    const client = build(t, { DATABASE_URL: url })
    const app = build(t, { DATABASE_URL: url, ID_SOURCE: 'server' })
    await Promise.all([client.ready(), app.ready()])
    await runSql(url, `update last_ids set id = ${largest - 3}`)
    await client.inject({ method: 'POST', url: '/api/users', payload: { id: largest - 1, name: 'x' } })
    const post = (key?: string) => app.inject({
      method: 'POST', url: '/api/users', payload: { name: 'x' }, headers: key === undefined ? {} : { 'idempotency-key': key }
    })
    const answers = [...await Promise.all([post(), post(), post()]), await post('key')]
    t.same(answers.filter(({ statusCode }) => statusCode === 201).map(response => response.json().id), [largest - 2, largest])
    const refused = answers.filter(({ statusCode }) => statusCode !== 201)
    t.same(refused.map(({ statusCode, body }) => [statusCode, body]), Array(2).fill([503, '{"detail":"No id is left for another record"}']))
    t.equal((await client.inject({ method: 'POST', url: '/api/users', payload: { id: 7, name: 'x' } })).statusCode, 201)
    t.equal((await client.inject('/api/users')).json().length, 5)
  })
})

test('the next id is the first one that no record has, and there is one up to 2^53 - 1', async t => {
  t.equal(nextId(0, () => false), 1)
  t.equal(nextId(largest - 2, id => id < largest), largest)
  t.throws(() => nextId(largest - 2, () => true), new NoIdLeft())
  t.throws(() => nextId(largest, () => false), new NoIdLeft())
})
