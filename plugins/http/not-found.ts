import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/errors.js'
import { sendError } from './errors.js'

/** The `detail` of an unknown path, which differs from that of an unknown record. */
const unknownPath = 'Path not found'

/** Answers 404 on an unknown path, and 405 on a known one that does not offer the method. */
export default fp(async function notFound (app) {
  // Before the body is read, which nobody has asked for. (Fastify takes any hook here; its types know of two.)
  app.setNotFoundHandler({ preParsing: onNotFound } as object, onNotFound)

  async function onNotFound (request: FastifyRequest, reply: FastifyReply) {
    const allowed: string[] = app.supportedMethods.filter(method => app.findRoute({ method, url: request.url }) !== null)
    // The preflights of browsers have a route for every path, which tells nothing of this one. And a route may be there
    // and still find nothing, as that of the static files does.
    const unknown = allowed.every(method => method === 'OPTIONS') || allowed.includes(request.method)
    if (unknown) return sendError(request, reply, 404, { detail: unknownPath })
    return sendError(request, reply.header('allow', allowed.join(', ')), 405, { detail: details[405] })
  }
}, { fastify: '5.x', name: 'fastify-items-users/not-found' })
