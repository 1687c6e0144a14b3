// Does every operation with a client that is generated from openapi.json, without a single manual fix.
import createClient from 'openapi-fetch'
import type { components, paths } from './schema.js'

type Item = components['schemas']['Item']
type User = components['schemas']['User']

const client = createClient<paths>({ baseUrl: process.argv[2] ?? '' })
const said: string[] = []

const { data: live } = await client.GET('/livez')
said.push(live?.status ?? '')
const { data: ready } = await client.GET('/readyz')
said.push(ready?.status ?? '')

const body: Item = { id: 2, name: 'Teapot', price: 24.5 }
const created = await client.POST('/api/items', { body, params: { header: { 'Idempotency-Key': 'once' } } })
const item: Item | undefined = created.data
said.push(`${created.response.status} ${item?.name}`)
const conflict = await client.POST('/api/items', { body: { ...body, price: 1 }, params: { header: { 'Idempotency-Key': 'once' } } })
said.push(`${conflict.response.status} ${conflict.error?.detail}`)
// @ts-expect-error A price is required.
const invalid = await client.POST('/api/items', { body: { id: 2, name: 'Teapot' } })
said.push(invalid.error && 'errors' in invalid.error ? invalid.error.errors.map(({ path, message }) => `${path} ${message}`).join() : '')

const { data: items = [] } = await client.GET('/api/items')
said.push(items.map(({ price }) => price.toFixed(2)).join())
const page = await client.GET('/api/items', { params: { query: { limit: 1 } } })
said.push(`${page.data?.length} ${page.response.headers.get('link')?.includes('rel="next"')}`)
const found = await client.GET('/api/items/{item_id}', { params: { path: { item_id: 2 } } })
said.push(found.data?.name ?? '')
const missing = await client.GET('/api/items/{item_id}', { params: { path: { item_id: 99 } } })
const detail: string | undefined = missing.error?.detail
said.push(`${missing.response.status} ${detail}`)

const user: User = { id: 2, name: 'Grace' }
said.push((await client.POST('/api/users', { body: user })).data?.name ?? '')
said.push(String((await client.GET('/api/users')).data?.length))
said.push((await client.GET('/api/users/{id}', { params: { path: { id: 2 } } })).data?.name ?? '')
said.push(String((await client.DELETE('/api/users/{id}', { params: { path: { id: 2 } } })).response.status))
said.push((await client.DELETE('/api/users/{id}', { params: { path: { id: 2 } } })).error?.detail ?? '')

console.log(said.join('\n'))
