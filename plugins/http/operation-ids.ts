import fp from 'fastify-plugin'

/** Whose each operation is, in each app, which is known by its server. */
const apps = new WeakMap<object, Map<string, object>>()

/** Names an operation after its prefix too, where another registration in the app has one of that name already. */
export default fp(async function operationIds (app) {
  const owners = apps.get(app.server) ?? new Map<string, object>()
  apps.set(app.server, owners)
  const suffix = app.prefix.replaceAll(/[^A-Za-z0-9]*([A-Za-z0-9]*)/g, (_, word: string) => word.slice(0, 1).toUpperCase() + word.slice(1)) || 'Again'

  app.addHook('onRoute', function nameAfterPrefix (route) {
    let operationId = String(route.schema?.operationId)
    while ((owners.get(operationId) ?? app) !== app) operationId += suffix
    owners.set(operationId, app)
    route.schema = { ...route.schema, operationId }
  })
}, { fastify: '5.x', name: 'fastify-items-users/operation-ids' })
