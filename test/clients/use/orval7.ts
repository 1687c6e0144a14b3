import { createItem, createManyLoans, createUser, deleteUser, getItem, listItems, listLoans } from './generated/orval7/fetch.js'
import { createItemBody, createManyLoansBody, listItemsResponse, listLoansQueryParams, listLoansResponse } from './generated/orval7/zod.js'
import type { Client } from './main.js'

export const orval7: Client = {
  async page (query) {
    const { data, headers } = await listItems(query)
    return { items: listItemsResponse.parse(data), link: headers.get('link') }
  },
  async create (item, key) {
    const { status, data } = await createItem(createItemBody.parse(item), { headers: { 'Idempotency-Key': key } })
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
    createManyLoansBody.parse(loans) // The type of the output has no recursion.
    const { status, data } = await createManyLoans(loans)
    return status === 201 ? data : undefined
  },
  async find (query) {
    const { data, headers } = await listLoans(listLoansQueryParams.parse(query))
    return { loans: listLoansResponse.parse(data), total: headers.get('x-total-count') }
  }
}
