import type { TProperties } from '@sinclair/typebox'
import type { FastifyInstance, RouteOptions } from 'fastify'
import { InvalidRequest } from '../../schemas/error-body.js'

interface Response { $ref?: string, description?: string, headers?: TProperties }

type Responses = Record<string, Response>
type ErrorsOf = (route: RouteOptions) => Responses

/** Documents the error responses of a guard, and its headers of successful responses, in the routes of its scope. */
export function documentGuard (app: FastifyInstance, errorsOf: ErrorsOf, headers: TProperties = {}) {
  app.addHook('onRoute', function addResponses (route) {
    const responses = { ...route.schema?.response as Responses }
    // Other routes, such as those with `errorHandler: false`, answer errors in a format of the host.
    if (responses[400]?.$ref !== InvalidRequest.$id) return

    for (const [status, response] of Object.entries(responses)) {
      if (status.startsWith('2')) responses[status] = { ...response, headers: { ...response.headers, ...headers } }
    }
    for (const [status, error] of Object.entries(errorsOf(route))) {
      responses[status] = either(responses[status], error)
    }
    route.schema = { ...route.schema, response: responses }
  })
}

/** The response of a status that two guards answer with. */
function either (one: Response | undefined, other: Response): Response {
  const { description: before = '' } = { ...one }
  const { description: after = '' } = other
  if (before === '' || before === after) return other
  const description = `${before}, or ${after.charAt(0).toLowerCase()}${after.slice(1)}`
  return { ...one, ...other, description }
}
