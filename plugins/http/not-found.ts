import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/error-body.js'
import { metadata, shared } from '../common/plugin.js'
import { sendError } from './errors.js'

/** Answers 404 for an unknown path, OPTIONS with the methods of the path, and 405 for a method that it has not. */
const notFound = fp(async function notFound (app) {
  // preParsing runs before the body is read. (Fastify accepts any hook here; its types list only two.)
  app.setNotFoundHandler({ preParsing: onNotFound } as object, onNotFound)

  async function onNotFound (request: FastifyRequest, reply: FastifyReply) {
    const isOptions = request.method === 'OPTIONS'
    const methods = methodsOf(app, request)
    // A route can exist and still call the not-found handler, as the one for static files does.
    if (methods.length === 1 || (methods.includes(request.method) && !isOptions)) {
      return sendError(request, reply.code(404), { detail: 'Path not found' })
    }
    reply.header('allow', methods.join(', '))
    if (isOptions) return reply.code(204).header('x-request-id', request.id).send()
    return sendError(request, reply.code(405), { detail: details[405] })
  }
}, metadata('not-found'))

export default notFound

/** The methods that the path of a request supports. Every path supports OPTIONS. */
export function methodsOf (app: FastifyInstance, { url, headers }: FastifyRequest): string[] {
  const constraints = { host: headers.host, version: headers['accept-version']?.toString() }
  const others = app.supportedMethods.filter(method => method !== 'OPTIONS')
  return [...others.filter(method => app.findRoute({ method, url, constraints }) !== null), 'OPTIONS']
}

/** The prefixes whose unknown paths are answered. */
const prefixesOf = shared(() => new Set<string>())

/**
 * Does the same for the paths below the prefix of a scope. The handler is in a scope with a parameter, because two
 * handlers for one prefix crash the process, and the host may have one. Registrations with the same prefix share it.
 */
export const unknownPaths: FastifyPluginAsync = async function unknownPaths (app) {
  const prefixes = prefixesOf(app)
  if (prefixes.has(app.prefix)) return
  prefixes.add(app.prefix)
  app.register(async scope => scope.register(notFound), { prefix: '/:path(?:.*)' })
}
