import fp from 'fastify-plugin'

/** How often the plugin is registered in each app, which is known by its server. */
const registrations = new WeakMap<object, number>()

/** Names the operations of each further registration in an app after its prefix too, since an id stands for one. */
export default fp(async function operationIds (app) {
  const earlier = registrations.get(app.server) ?? 0
  registrations.set(app.server, earlier + 1)
  if (earlier === 0) return
  const suffix = app.prefix.replaceAll(/[^A-Za-z0-9]*([A-Za-z0-9]*)/g, (_, word: string) => word.slice(0, 1).toUpperCase() + word.slice(1))

  app.addHook('onRoute', function nameAfterPrefix (route) {
    const { schema } = route
    if (schema?.operationId) route.schema = { ...schema, operationId: schema.operationId + suffix }
  })
}, { fastify: '5.x', name: 'operation-ids' })
