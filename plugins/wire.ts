import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import fp from 'fastify-plugin'
import type { ConnectionError, FastifyReply, FastifyRequest } from 'fastify'
import { details, type Fault } from '../schemas/http.js'
import { errorBody, invalid } from './errors.js'

const contentType = 'application/json; charset=utf-8'

/** What Node's parser gives up on, other than for being malformed. */
const statuses: Record<string, 408 | 413 | 431> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  HPE_HEADER_OVERFLOW: 431
}

/** What Fastify's router gives up on: a path that is malformed, or too long to be any of ours. */
function frameworkErrors (error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply) {
  const tooLong = error.statusCode === 414
  reply.code(tooLong ? 414 : 400)
  request.log.info({ req: request, res: reply, responseTime: reply.elapsedTime }, 'request refused')
  return reply.send(tooLong ? { detail: details[414] } : refusal('path', 'must be a valid URL'))
}

function clientErrorHandler (error: ConnectionError, socket: Socket) {
  if (!socket.writable) return socket.destroy()
  const status = statuses[error.code]
  const body = JSON.stringify(status ? { detail: details[status] } : refusal('request', 'must be well-formed HTTP'))
  socket.end([
    `HTTP/1.1 ${status ?? 400} ${STATUS_CODES[status ?? 400]}`,
    `content-type: ${contentType}`,
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
    '',
    body
  ].join('\r\n'))
}

/**
 * Options for `Fastify()` that give our shape to the answers which come from below its routes. A missing `Host`
 * is left to the plugin below, since Node would refuse it with an empty body.
 */
export const wireOptions = { frameworkErrors, clientErrorHandler, http: { requireHostHeader: false } }

/** Refuses, in our shape, what Node would refuse without a body. */
export default fp(async function wire (app) {
  app.addHook('onRequest', async function requireHost ({ headers, raw }) {
    if (headers.host === undefined && raw.httpVersionMinor === 1) {
      throw invalid('headers', [{ path: '/host', message: 'is required' }])
    }
  })

  app.server.on('checkExpectation', function onExpectation (_request: IncomingMessage, response: ServerResponse) {
    const body = JSON.stringify({ detail: details[417] })
    response.writeHead(417, { 'content-type': contentType, 'content-length': Buffer.byteLength(body) }).end(body)
  })
}, { fastify: '5.x', name: 'wire' })

function refusal (part: Fault['in'], message: string) {
  return errorBody(invalid(part, [{ path: '', message }]), 400)
}
