import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { items, notFound, port, refusal, stored } from './contract.js'

const app = new Hono()

app.get('/api/items', c => c.json(items))

app.get('/api/items/:id', c => {
  const id = Number(c.req.param('id'))
  const item = items.find(item => item.id === id)
  return item ? c.json(item) : c.json(notFound, 404)
})

app.post('/api/items', async c => {
  const item = await c.req.json()
  const refused = refusal(item)
  return refused ? c.json(refused, 400) : c.json(stored(item), 201)
})

if (globalThis.Bun) globalThis.Bun.serve({ fetch: app.fetch, port })
else serve({ fetch: app.fetch, port })
