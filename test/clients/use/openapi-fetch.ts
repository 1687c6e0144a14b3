import createClient from 'openapi-fetch'
import document from './generated/openapi.json'
import type { paths } from './generated/openapi-typescript.js'
import type { Client } from './main.js'

const { DELETE, GET, POST } = createClient<paths>({ baseUrl: document.servers[0]?.url ?? '' })

export const openapiFetch: Client = {
  async page (query) {
    const { data, response } = await GET('/api/items', { params: { query } })
    return { items: data, link: response.headers.get('link') }
  },
  async create (body, key) {
    return (await POST('/api/items', { body, params: { header: { 'Idempotency-Key': key } } })).data
  },
  async get (id) {
    return (await GET('/api/items/{item_id}', { params: { path: { item_id: id } } })).data
  },
  async deleteUser (body) {
    await POST('/api/users', { body })
    return (await DELETE('/api/users/{id}', { params: { path: { id: body.id } } })).response.status
  },
  async problems (body) {
    // @ts-expect-error A price is required.
    await POST('/api/items', { body: { id: 1, name: 'x' } })
    const { error } = await POST('/api/items', { body })
    return error && 'errors' in error ? error.errors : undefined
  },
  async detail (id) {
    return (await GET('/api/items/{item_id}', { params: { path: { item_id: id } } })).error?.detail
  },
  async createMany (body) {
    return (await POST('/api/loans/batch', { body })).data
  },
  async find (query) {
    // @ts-expect-error No loan has this status.
    await GET('/api/loans', { params: { query: { status: ['lost'] } } })
    const { data, response } = await GET('/api/loans', { params: { query } })
    return { loans: data, total: response.headers.get('x-total-count') }
  }
}
