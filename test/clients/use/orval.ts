import {
  createItem, createManyLoans, createUser, deleteUser, getItem, listItems, listLoans
} from './generated/orval/fetch.js'
import {
  CreateItemBody, CreateManyLoansBody, ListItemsResponse, ListLoansQueryParams, ListLoansResponse
} from './generated/orval/zod.js'
import type { Client } from './main.js'

export const orval: Client = {
  async page (query) {
    const { data, headers } = await listItems(query)
    return { items: ListItemsResponse.parse(data), link: headers.get('link') }
  },
  async create (item, key) {
    const { status, data } = await createItem(CreateItemBody.parse(item), { headers: { 'Idempotency-Key': key } })
    return status === 201 ? data : undefined
  },
  async get (id) {
    const { status, data } = await getItem(id)
    return status === 200 ? data : undefined
  },
  async deleteUser (user) {
    await createUser(user)
    return (await deleteUser(user.id)).status
  },
  async problems (item) {
    const { status, data } = await createItem(item)
    return status === 400 ? data.errors : undefined
  },
  async detail (id) {
    const { status, data } = await getItem(id)
    return status === 404 ? data.detail : undefined
  },
  async createMany (loans) {
    CreateManyLoansBody.parse(loans) // The type of the output has no recursion.
    const { status, data } = await createManyLoans(loans)
    return status === 201 ? data : undefined
  },
  async find (query) {
    const { data, headers } = await listLoans(ListLoansQueryParams.parse(query))
    return { loans: ListLoansResponse.parse(data), total: headers.get('x-total-count') }
  }
}
