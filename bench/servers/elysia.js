import { Elysia } from 'elysia'
import { items, notFound, port, refusal, stored } from './contract.js'

new Elysia()
  .get('/api/items', () => items)
  .get('/api/items/:id', ({ params, status }) => {
    const id = Number(params.id)
    return items.find(item => item.id === id) ?? status(404, notFound)
  })
  .post('/api/items', ({ body, status }) => {
    const refused = refusal(body)
    return refused ? status(400, refused) : status(201, stored(body))
  })
  .listen(port)
