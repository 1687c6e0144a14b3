import { randomInt } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { serve } from '../stress/service.js'
import { onPostgres } from '../support/databases.js'
import { newFolder } from '../support/folder.js'

interface Loan {
  id: number
  member_id: number
}

const id = { type: 'integer' }
const collections = {
  members: {
    schema: { type: 'object', required: ['id'], properties: { id, email: { type: 'string' } } },
    unique: ['id', 'email'],
    idSource: 'client'
  },
  loans: {
    schema: { type: 'object', required: ['id', 'member_id'], properties: { id, member_id: id } },
    references: { member_id: 'members' },
    unique: ['id'],
    idSource: 'client'
  }
}
const seconds = 60

onPostgres('four processes that write two collections for a minute never deadlock', async (t, server) => {
  const url = server.database()
  const file = `${newFolder(t)}/collections.json`
  writeFileSync(file, JSON.stringify({ ...collections, items: null, users: null }))
  const services = await Promise.all([1, 2, 3, 4].map(() => serve(t, { DATABASE_URL: url, COLLECTIONS_FILE: file })))

  const statuses: Record<number, number> = {}
  const end = Date.now() + seconds * 1000
  const write = async (api: string) => {
    while (Date.now() < end) {
      const [method, path, body] = anyRequest()
      const response = await fetch(api + path, { method, body: body && JSON.stringify(body) })
      await response.text()
      statuses[response.status] = (statuses[response.status] ?? 0) + 1
    }
  }
  const clients = services.flatMap(({ url }) => Array.from({ length: 8 }, () => write(`${url}/api`)))
  await Promise.all(clients)

  const [row] = await server.query('select deadlocks from pg_stat_database where datname = current_database()')
  t.comment({ statuses, ...row })
  t.same(Object.keys(statuses).filter(status => !/^(200|201|204|404|409)$/.test(status)), [])
  t.equal(Object.keys(statuses).length, 5, 'each outcome happens')

  const all = async (name: string) => {
    const response = await fetch(`${services[0]?.url}/api/${name}`)
    return await response.json() as Loan[]
  }
  const ids = new Set((await all('members')).map(({ id }) => id))
  const loans = await all('loans')
  t.ok(loans.length > 0)
  t.same(loans.filter(({ member_id: member }) => !ids.has(member)), [], 'no reference is dangling')
})

/** A request to create, change or delete records, most of which others use at the same time. */
function anyRequest (): [method: string, path: string, body?: object] {
  const any = () => randomInt(1, 100)
  const member = () => ({ id: any(), email: String(any()) })
  const loan = () => ({ id: any(), member_id: any() })
  const requests: [string, string, object?][] = [
    ['POST', '/members', member()],
    ['POST', '/members/batch', [member(), member()]],
    ['PATCH', `/members/${any()}`, { email: String(any()) }],
    ['DELETE', `/members/${any()}`],
    ['POST', '/loans', loan()],
    ['POST', '/loans/batch', [loan(), loan()]],
    ['PATCH', `/loans/${any()}`, { member_id: any() }],
    ['DELETE', `/loans/${any()}`]
  ]
  return requests[randomInt(requests.length)] as [string, string, object?]
}
