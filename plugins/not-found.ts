import fp from 'fastify-plugin'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { details } from '../schemas/http.js'

/** Answers 404 on an unknown path, and 405 on a known one that does not offer the method. */
export default fp(async function notFound (app) {
  app.setNotFoundHandler(onNotFound)

  // Before the body is read, since nobody has asked for it: the path alone decides.
  app.addHook('onRequest', async function onUnknownPath (request, reply) {
    if (request.is404) return onNotFound(request, reply)
  })

  function onNotFound (request: FastifyRequest, reply: FastifyReply) {
    const allowed = app.supportedMethods.filter(method => app.findRoute({ method, url: request.url }) !== null)
    if (allowed.length === 0) return reply.code(404).send({ detail: 'Path not found' })
    return reply.code(405).header('allow', allowed.join(', ')).send({ detail: details[405] })
  }
}, { fastify: '5.x', name: 'not-found' })
