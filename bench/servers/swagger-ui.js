// A bare Fastify with its documentation page, to compare the time to start with.
import Fastify from 'fastify'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'

const app = Fastify()
await app.register(swagger)
await app.register(swaggerUi)
app.get('/api/items/1', async () => ({ id: 1 }))
app.listen({ port: Number(process.env.PORT) })
