// Uses every generated client against the running service, and prints what happened.
import { heyApi } from './hey-api.js'
import { orval } from './orval.js'

/** What every client must be able to do. */
export interface Client {
  /** Returns a page of the items, and its `Link` header. */
  page (query: { limit: number, after?: string }): Promise<{ items: Item[] | undefined, link?: string | null }>
  create (item: Item, key: string): Promise<Item | undefined>
  get (id: number): Promise<Item | undefined>
  /** Creates a user and deletes it. Returns the status. */
  deleteUser (user: { id: number, name: string }): Promise<number>
  /** Creates an item with a wrong id, and returns the problems from the typed error. */
  problems (item: Item): Promise<{ path: string, message: string }[] | undefined>
  /** Requests an item that does not exist, and returns the detail from the typed error. */
  detail (id: number): Promise<string | undefined>
  /** Creates many loans at once. */
  createMany (loans: NewLoan[]): Promise<Loan[] | undefined>
  /** Returns the loans that match, and the header with their number. */
  find (query: LoanQuery): Promise<{ loans: Loan[] | undefined, total: string | null | undefined }>
}

export interface Item {
  id: number
  name: string
  price: number
}

/** A record of test/clients/collections.json. */
interface NewLoan {
  member_id: number
  title: string
  price: number
  status?: 'open' | 'late'
  due?: string
  returned: string | null
}

interface Loan extends NewLoan {
  id: number
}

interface LoanQuery {
  member_id: number[]
  title: string[]
  'price.gte': number
  'due.lt': string
  'damaged.exists': boolean
  sort: '-price'
  total: boolean
}

const clients = { heyApi, orval }

for (const [n, [name, client]] of Object.entries(clients).entries()) {
  const item = { id: 100 + n, name: `${name} 🫖`, price: 24.5 }
  await client.create(item, name)
  const repeated = await client.create(item, name)
  const found: Item[] = []
  let after: string | undefined
  do {
    const { items = [], link } = await client.page({ limit: 2, ...after && { after } })
    found.push(...items)
    after = /after=([^&>]+)/.exec(link ?? '')?.[1]
  } while (after)
  const [dear, cheap] = [`${name} & 1`, `${name} & 2`]
  const loan = { member_id: 1, title: dear, price: 2.5, due: '2026-03-01T12:00:00Z', returned: null }
  const late = { ...loan, title: cheap, price: 0.5, status: 'late' as const }
  const loans = await client.createMany([late, loan, { ...loan, price: 0.1 }])
  const query = { 'price.gte': 0.5, 'due.lt': '2026-04-01T00:00:00Z', 'damaged.exists': false, total: true } as const
  console.log(JSON.stringify({
    name,
    created: loans?.length,
    matching: await client.find({ ...query, member_id: [1], title: [cheap, dear], sort: '-price' }),
    repeated,
    found: found.filter(({ id }) => id === item.id),
    got: await client.get(item.id),
    deleted: await client.deleteUser({ id: item.id, name }),
    problems: await client.problems({ ...item, id: 0.5 }),
    detail: await client.detail(99)
  }))
}
