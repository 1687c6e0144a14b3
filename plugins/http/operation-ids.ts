import fp from 'fastify-plugin'
import { idOf } from '../../schemas/component.js'
import { metadata } from './plugin.js'

/**
 * Makes the operation ids of the scope unique: adds our namespace, which `docs` removes again, and the prefix of the scope,
 * unless it is `/api`. Tags get the prefix too, so that each API version has its own groups in the documentation.
 */
export default fp(async function operationIds (app) {
  const isDefault = app.prefix === '' || app.prefix === '/api'
  const suffix = isDefault ? '' : suffixOf(app.prefix)

  app.addHook('onRoute', function makeUnique (route) {
    const { operationId, tags = [], ...schema } = { ...route.schema }
    /* c8 ignore next -- only some versions of Fastify do */
    if (String(operationId).startsWith(idOf(''))) return // Fastify calls it again for the HEAD route of a GET route
    route.schema = {
      ...schema,
      operationId: idOf(`${operationId}${suffix}`),
      tags: isDefault ? tags : tags.map(tag => `${tag} (${app.prefix})`)
    }
  })
}, metadata('operation-ids'))

/** '/api/v1' is 'ApiV1' and '/api-v1' is 'Api_2dv1'. */
function suffixOf (prefix: string) {
  return prefix
    .replaceAll(/\/([A-Za-z0-9]?)/g, (_, first: string) => first.toUpperCase())
    .replaceAll(/[^A-Za-z0-9]/g, character => `_${character.charCodeAt(0).toString(16)}`)
}
