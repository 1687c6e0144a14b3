// A host that is bundled into one file. It prints the statuses of its own requests.
import Fastify from 'fastify'
import itemsUsers, { docs } from 'fastify-items-users'

const pages = ['/openapi.json', '/docs', '/docs/static/swagger-ui.css', '/redoc', '/redoc/redoc.standalone.js']

async function start () {
  const app = Fastify()
  const withDocs = process.argv.includes('docs')
  if (withDocs) await app.register(docs)
  app.register(itemsUsers, { prefix: '/api' })
  for (const url of ['/api/items', ...withDocs ? pages : []]) console.log(url, (await app.inject(url)).statusCode)
  await app.close()
}

start()
