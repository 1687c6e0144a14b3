// A bare Fastify with its doc page, to compare the time to start with.
import Fastify from 'fastify'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import { port } from './contract.js'

const app = Fastify()
await app.register(swagger)
await app.register(swaggerUi)
app.get('/api/items', async () => [])
app.listen({ port })
