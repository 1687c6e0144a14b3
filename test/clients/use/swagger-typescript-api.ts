import { Api, type ErrorBody, type HttpResponse, type InvalidRequest } from './generated/swagger-typescript-api.js'
import type { Client } from './main.js'

const { api } = new Api()

export const swaggerTypescriptApi: Client = {
  async page (query) {
    const { data, headers } = await api.listItems(query)
    return { items: data, link: headers.get('link') }
  },
  async create (item, key) {
    return (await api.createItem(item, { headers: { 'Idempotency-Key': key } })).data
  },
  async get (id) {
    return (await api.getItem(id)).data
  },
  async deleteUser (user) {
    await api.createUser(user)
    return (await api.deleteUser(user.id)).status
  },
  async problems (item) {
    const { error } = await api.createItem(item).catch((response: HttpResponse<undefined, InvalidRequest>) => response)
    return error && 'errors' in error ? error.errors : undefined
  },
  async detail (id) {
    return (await api.getItem(id).catch((response: HttpResponse<undefined, ErrorBody>) => response)).error?.detail
  },
  async createMany (loans) {
    return (await api.createManyLoans(loans)).data
  },
  async find (query) {
    const { data, headers } = await api.listLoans(query)
    return { loans: data, total: headers.get('x-total-count') }
  }
}
