import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import fp from 'fastify-plugin'

/** The id of a request: the client's `X-Request-Id` if it is at most 128 visible ASCII characters, otherwise a new one. */
export function genReqId ({ headers }: Pick<IncomingMessage, 'headers'>) {
  const id = String(headers['x-request-id'] ?? '')
  return /^[!-~]{1,128}$/.test(id) ? id : randomUUID()
}

/** Returns the id of a request in `X-Request-Id` if the client sent one. (Errors return it in any case.) */
export default fp(async function requestId (app) {
  app.addHook('onRequest', function returnRequestId (request, reply, done) {
    if (request.headers['x-request-id'] !== undefined) reply.header('x-request-id', request.id)
    done()
  })
}, { fastify: '5.x', name: 'fastify-items-users/request-id' })
