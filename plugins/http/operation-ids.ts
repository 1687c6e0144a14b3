import fp from 'fastify-plugin'

/**
 * Adds the prefix of the scope to its operation ids and tags, unless it is `/api`, so that the ids are unique and each API
 * version has its own groups in the documentation.
 */
export default fp(async function operationIds (app) {
  if (app.prefix === '' || app.prefix === '/api') return
  // '/api/v1' is 'ApiV1' and '/api-v1' is 'Api_2dv1'
  const suffix = app.prefix
    .replaceAll(/\/([A-Za-z0-9]?)/g, (_, first: string) => first.toUpperCase())
    .replaceAll(/[^A-Za-z0-9]/g, character => `_${character.charCodeAt(0).toString(16)}`)

  app.addHook('onRoute', function addPrefix (route) {
    const { operationId, tags = [], ...schema } = { ...route.schema }
    route.schema = { ...schema, operationId: `${operationId}${suffix}`, tags: tags.map(tag => `${tag} (${app.prefix})`) }
  })
}, { fastify: '5.x', name: 'fastify-items-users/operation-ids' })
