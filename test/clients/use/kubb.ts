import { createItem, createManyLoans, createUser, deleteUser, getItem, listItems, listLoans } from './generated/kubb/client.js'
import type { CreateItem400, GetItem404 } from './generated/kubb/types.js'
import type { Client } from './main.js'

export const kubb: Client = {
  async page (query) {
    const { data, headers } = await listItems(query)
    return { items: data, link: headers.get('link') }
  },
  async create (item, key) {
    return (await createItem(item, { 'Idempotency-Key': key })).data
  },
  async get (id) {
    return (await getItem(id)).data
  },
  async deleteUser (user) {
    await createUser(user)
    return (await deleteUser(user.id)).status
  },
  // The client has the type of the success only; the types of the errors are exported.
  async problems (item) {
    const data: object = (await createItem(item)).data
    return (data as CreateItem400).errors
  },
  async detail (id) {
    const data: object = (await getItem(id)).data
    return (data as GetItem404).detail
  },
  async createMany (loans) {
    return (await createManyLoans(loans)).data
  },
  // The client joins several values with commas.
  async find ({ title, ...query }) {
    const pages = await Promise.all(title.map(one => listLoans({ ...query, title: [one] })))
    const loans = pages.flatMap(({ data }) => data).sort((a, b) => b.price - a.price)
    return { loans, total: String(pages.reduce((sum, { headers }) => sum + Number(headers.get('x-total-count')), 0)) }
  }
}
