import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/errors.js'
import { sendError } from './errors.js'

/** The `detail` for an unknown path. It differs from the one for an unknown record. */
const unknownPath = 'Path not found'

/** Answers 404 for an unknown path, and 405 if the path does not support the method. */
export default fp(async function notFound (app) {
  // preParsing runs before the body is read. (Fastify accepts any hook here; its types list only two.)
  app.setNotFoundHandler({ preParsing: onNotFound } as object, onNotFound)

  async function onNotFound (request: FastifyRequest, reply: FastifyReply) {
    const allowed: string[] = app.supportedMethods.filter(method => app.findRoute({ method, url: request.url }) !== null)
    // CORS adds an OPTIONS route for every path. And a route can exist and still call the not-found handler, as the one
    // for static files does.
    const unknown = allowed.every(method => method === 'OPTIONS') || allowed.includes(request.method)
    if (unknown) return sendError(request, reply, 404, { detail: unknownPath })
    return sendError(request, reply.header('allow', allowed.join(', ')), 405, { detail: details[405] })
  }
}, { fastify: '5.x', name: 'fastify-items-users/not-found' })
