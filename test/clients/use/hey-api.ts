import {
  createItem, createManyLoans, createUser, deleteUser, getItem, listItems, listLoans
} from './generated/hey/index.js'
import type { Client } from './main.js'

export const heyApi: Client = {
  async page (query) {
    const { data, response } = await listItems({ query })
    return { items: data, link: response?.headers.get('link') }
  },
  async create (body, key) {
    return (await createItem({ body, headers: { 'Idempotency-Key': key } })).data
  },
  async get (id) {
    return (await getItem({ path: { item_id: id } })).data
  },
  async deleteUser (body) {
    await createUser({ body })
    return (await deleteUser({ path: { id: body.id } })).response?.status ?? 0
  },
  async problems (body) {
    const { error } = await createItem({ body })
    return error && 'errors' in error ? error.errors : undefined
  },
  async detail (id) {
    return (await getItem({ path: { item_id: id } })).error?.detail
  },
  async createMany (body) {
    return (await createManyLoans({ body })).data
  },
  async find (query) {
    const { data, response } = await listLoans({ query })
    return { loans: data, total: response?.headers.get('x-total-count') }
  }
}
