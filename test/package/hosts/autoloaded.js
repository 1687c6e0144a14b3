// Each folder is a collection.
import { fileURLToPath } from 'node:url'
import Fastify from 'fastify'

export async function build ({ autoload }) {
  const app = Fastify()
  app.register(autoload, { dir: fileURLToPath(new URL('autoload', import.meta.url)), options: { config: { own: true } } })
  return app
}
