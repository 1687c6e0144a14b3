import fp from 'fastify-plugin'
import { details } from '../schemas/http.js'

/** Answers 404 on an unknown path, and 405 on a known one that does not offer the method. */
export default fp(async function notFound (app) {
  app.setNotFoundHandler(function onNotFound (request, reply) {
    const allowed: string[] = app.supportedMethods.filter(method => isOffered(method, request.url))
    // A route may be there and still find nothing, as that of the static files does.
    const unknown = allowed.length === 0 || allowed.includes(request.method)
    if (unknown) return reply.code(404).send({ detail: 'Path not found' })
    return reply.code(405).header('allow', allowed.join(', ')).send({ detail: details[405] })
  })

  /** Tells whether a route is for this path. One for every path, as that for preflights, tells nothing of this one. */
  function isOffered (method: string, url: string) {
    const route = app.findRoute({ method, url })
    return route !== null && route.params['*'] !== url
  }
}, { fastify: '5.x', name: 'not-found' })
