import fp from 'fastify-plugin'
import { metadata } from '../common/plugin.js'
import errors from './errors.js'
import jsonBody from './json-body.js'
import validation from './validation.js'

/**
 * Parses, validates and serializes the requests of a scope, and answers its errors, whatever the host does for its own
 * routes. With `errorHandler: false`, the error handler of the host answers errors.
 */
export default fp<{ errorHandler?: boolean | undefined }>(async function api (app, { errorHandler = true }) {
  app.register(errors, { errorHandler })
  app.register(jsonBody)
  app.register(validation)
  // Records are sent as the JSON text that stores return. The rest, such as errors, needs no fast serializer.
  app.setReplySerializer(body => JSON.stringify(body))
  app.setSerializerCompiler(() => JSON.stringify)
}, metadata('api'))

/** A unique operation id, and a tag for each API version. */
export function namesIn (prefix: string, operationId: string, tag: string) {
  if (prefix === '' || prefix === '/api') return { operationId, tags: [tag] }
  // '/api/v1' is 'ApiV1' and '/api-v1' is 'Api_2dv1'.
  const suffix = prefix
    .replaceAll(/\/([A-Za-z0-9]?)/g, (_, first: string) => first.toUpperCase())
    .replaceAll(/[^A-Za-z0-9]/g, character => `_${character.charCodeAt(0).toString(16)}`)
  return { operationId: operationId + suffix, tags: [`${tag} (${prefix})`] }
}
