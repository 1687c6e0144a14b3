import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { find, items, notFound, port, refusal, stored } from './contract.js'

const app = new Hono()

app.get('/api/items', c => c.json(items))

app.get('/api/items/:id', c => {
  const item = find(c.req.param('id'))
  return item ? c.json(item) : c.json(notFound, 404)
})

app.post('/api/items', async c => {
  const item = await c.req.json()
  const refused = refusal(item)
  return refused ? c.json(refused, 400) : c.json(stored(item), 201)
})

serve({ fetch: app.fetch, port })
