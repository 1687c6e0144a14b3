import { ok } from '@oazapfts/runtime'
import { createItem, createManyLoans, createUser, deleteUser, getItem, listItems, listLoans } from './generated/oazapfts.js'
import type { Client } from './main.js'

export const oazapfts: Client = {
  async page (query) {
    const response = await listItems(query)
    return { items: await ok(Promise.resolve(response)), link: response.headers.get('link') }
  },
  create: (item, idempotencyKey) => ok(createItem(item, { idempotencyKey })),
  get: id => ok(getItem(id)),
  async deleteUser (user) {
    await createUser(user)
    return (await deleteUser(user.id)).status
  },
  async problems (item) {
    const { data } = await createItem(item)
    return 'errors' in data ? data.errors : undefined
  },
  async detail (id) {
    const response = await getItem(id)
    return 'data' in response && 'detail' in response.data ? response.data.detail : undefined
  },
  createMany: loans => ok(createManyLoans(loans)),
  async find ({ member_id: memberId, 'price.gte': priceGte, 'due.lt': dueLt, 'damaged.exists': damagedExists, ...query }) {
    const response = await listLoans({ ...query, memberId, priceGte, dueLt, damagedExists })
    return { loans: await ok(Promise.resolve(response)), total: response.headers.get('x-total-count') }
  }
}
