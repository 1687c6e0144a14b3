import express from 'express'
import { find, items, notFound, port, refusal, stored } from './contract.js'

const app = express()
app.use(express.json())

app.get('/api/items', (request, response) => response.json(items))

app.get('/api/items/:id', (request, response) => {
  const item = find(request.params.id)
  if (item) response.json(item)
  else response.status(404).json(notFound)
})

app.post('/api/items', (request, response) => {
  const refused = refusal(request.body)
  if (refused) response.status(400).json(refused)
  else response.status(201).json(stored(request.body))
})

app.listen(port)
