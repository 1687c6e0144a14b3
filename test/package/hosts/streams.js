// A host whose hook looks at the bodies, and a proxy in front of it.
import Fastify from 'fastify'
import { collection, items } from 'fastify-items-users'

export async function build ({ proxy }) {
  const bodies = []
  const app = Fastify()
  app.addHook('onSend', async (_request, _reply, body) => { bodies.push(body?.destroyed) })
  const seed = Array.from({ length: 20_000 }, (_, id) => ({ id, name: 'x'.repeat(100), price: 1 }))
  app.register(collection, { ...items, seed, prefix: '/items' })
  const front = Fastify()
  app.addHook('onClose', () => front.close())
  if (proxy) front.register(proxy, { upstream: await app.listen(), prefix: '/shop', internalRewriteLocationHeader: false })
  return Object.assign(app, { bodies, front })
}
