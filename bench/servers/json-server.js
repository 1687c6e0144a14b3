// Its own routes, but for how it prints JSON. It checks no types and refuses an id that is taken.
import jsonServer from 'json-server'
import { items, port } from './contract.js'

const app = jsonServer.create()
const router = jsonServer.router({ items })
router.render = (request, response) => response.send(JSON.stringify(response.locals.data))
app.use((request, response, next) => {
  response.type('json')
  next()
})
app.use('/api', router)
app.listen(port)
