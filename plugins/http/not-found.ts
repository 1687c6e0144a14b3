import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/errors.js'
import { sendError } from './errors.js'

/** The `detail` for an unknown path. It differs from the one for an unknown record. */
const unknownPath = 'Path not found'

/** Answers 404 for an unknown path, OPTIONS with the methods of the path, and 405 for a method that it does not support. */
export default fp(async function notFound (app) {
  // preParsing runs before the body is read. (Fastify accepts any hook here; its types list only two.)
  app.setNotFoundHandler({ preParsing: onNotFound } as object, onNotFound)

  async function onNotFound (request: FastifyRequest, reply: FastifyReply) {
    const isOptions = request.method === 'OPTIONS'
    const methods = methodsOf(app, request.url)
    // A route can exist and still call the not-found handler, as the one for static files does.
    if (methods.length === 1 || (methods.includes(request.method) && !isOptions)) return sendError(request, reply, 404, { detail: unknownPath })
    reply.header('allow', methods.join(', '))
    if (isOptions) return reply.code(204).header('x-request-id', request.id).send()
    return sendError(request, reply, 405, { detail: details[405] })
  }
}, { fastify: '5.x', name: 'fastify-items-users/not-found' })

/** The methods that a path supports. Every path supports OPTIONS. */
export function methodsOf (app: FastifyInstance, url: string): string[] {
  return [...app.supportedMethods.filter(method => method !== 'OPTIONS' && app.findRoute({ method, url }) !== null), 'OPTIONS']
}
