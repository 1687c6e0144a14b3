import type { IncomingMessage } from 'node:http'
import { posix } from 'node:path'
import swaggerUi from '@fastify/swagger-ui'
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import redoc from './redoc.js'

/** Everything from this server and nothing from any other. Both pages style their elements in place. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'",
  'worker-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'"
].join('; ')

export type Answer = (request: FastifyRequest, reply: FastifyReply) => void

/**
 * Opens the pages that show the document of an app: an app of their own, since to that one nothing can be added any
 * more. What they do not have, and what goes wrong, that one answers.
 */
export async function openPages (app: FastifyInstance, title: string): Promise<Answer> {
  const replies = new WeakMap<IncomingMessage, FastifyReply>()
  const pages = Fastify()
  pages.register(fp(async document => { document.decorate('swagger', app.swagger) }, { name: '@fastify/swagger' }))
  pages.setNotFoundHandler(({ raw }) => { replies.get(raw)?.callNotFound() })
  pages.setErrorHandler((error, { raw }) => { replies.get(raw)?.send(error) })

  pages.register(async function show (scope) {
    scope.register(swaggerUi, {
      routePrefix: '/docs',
      indexPrefix: '.',
      staticCSP: contentSecurityPolicy,
      theme: { title },
      // The page reads a copy of the document that lies one level deeper.
      transformSpecification: ({ servers, ...document }) => ({ ...document, servers: servers.map(deeper) }),
      transformSpecificationClone: false
    })
    scope.register(redoc, { title, contentSecurityPolicy })
  }, { prefix: app.prefix })

  await pages.ready()
  return function answer ({ raw }, reply) {
    replies.set(raw, reply)
    // What hooks of the app have set comes along.
    for (const [name, value = ''] of Object.entries(reply.getHeaders())) reply.raw.setHeader(name, value)
    pages.routing(raw, reply.raw)
  }
}

function deeper (server: { url: string }) {
  return { ...server, url: posix.join('..', server.url) }
}
