import { Elysia } from 'elysia'
import { find, items, notFound, port, refusal, stored } from './contract.js'

new Elysia()
  .get('/api/items', () => items)
  .get('/api/items/:id', ({ params, status }) => find(params.id) ?? status(404, notFound))
  .post('/api/items', ({ body, status }) => {
    const refused = refusal(body)
    return refused ? status(400, refused) : status(201, stored(body))
  })
  .listen(port)
