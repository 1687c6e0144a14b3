import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { metadata } from './plugin.js'
import { failures, rateHeaders } from './responses.js'

type Responses = Record<string, TSchema>

/** Adds the responses of the guards in this scope to the schemas of its routes. A guard is detected by its decorator. */
export default fp(async function guardResponses (app) {
  app.addHook('onRoute', function addGuardResponses (route) {
    const { response, ...schema } = route.schema as { response: Responses }
    route.schema = { ...schema, response: { ...limited(response), ...refusals(app, String(route.method)) } }
  })

  function limited (response: Responses) {
    if (!app.hasDecorator('rateLimiter')) return response
    return Object.fromEntries(Object.entries(response).map(([status, schema]) =>
      [status, status.startsWith('2') ? { ...schema, headers: { ...schema.headers, ...rateHeaders } } : schema]))
  }
}, metadata('guard-responses'))

function refusals (app: FastifyInstance, method: string) {
  return {
    ...app.hasRequestDecorator('bearerToken') && { 401: failures[401] },
    ...app.hasDecorator('crossOriginProtection') && method !== 'GET' && method !== 'HEAD' && { 403: failures[403] },
    ...app.hasDecorator('rateLimiter') && { 429: failures[429] }
  }
}
