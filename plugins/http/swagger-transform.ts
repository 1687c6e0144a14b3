import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import fp from 'fastify-plugin'
import { idOf } from '../../schemas/component.js'
import { metadata } from './plugin.js'

type Transform = NonNullable<FastifyDynamicSwaggerOptions['transform']>

/**
 * Keeps the document of a host valid: our routes are documented as they are, whatever the `transform` of the host expects,
 * and without examples in Swagger 2.0, which does not have the keyword `examples`.
 */
export default fp(async function swaggerTransform (app) {
  app.addHook('onRoute', function addTransform (route) {
    route.config = { swaggerTransform: transform, ...route.config }
  })
}, metadata('swagger-transform'))

const transform: Transform = function transform ({ schema, url, ...document }) {
  if (!('swaggerObject' in document)) return { schema, url }
  for (const [name, definition] of Object.entries<Definition>({ ...document.swaggerObject.definitions })) {
    if ([name, definition.title].some(text => text?.startsWith(idOf('')))) delete definition.examples
  }
  return { schema: withoutExamples(schema), url }
}

interface Definition {
  title?: string
  examples?: unknown
}

function withoutExamples<T> (schema: T): T {
  return JSON.parse(JSON.stringify(schema), (key, value) => key === 'examples' ? undefined : value)
}
