import { STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { errorBody, invalid, sendError } from '../../plugins/http/errors.js'
import { jsonType, noCache } from '../../plugins/http/responses.js'
import { details, type ErrorBody, type Problem } from '../../schemas/errors.js'
import { isRefused, newestResponse, previousResponse, type Connection } from './connections.js'
import { genReqId } from './request-id.js'

/** Errors of Node's parser with a status other than 400. */
const statuses: Record<string, 408 | 413 | 431> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  HPE_HEADER_OVERFLOW: 431
}

/** The message for malformed HTTP. */
export const malformedHttp = 'must be well-formed HTTP'

/** Answers a request that Fastify's router rejects because its path is malformed or too long. */
export function frameworkErrors (error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply) {
  const { status, body } = error.statusCode === 414 ? new ProtocolError(414, { detail: details[414] }) : invalidRequest('path', 'must be a valid URL')
  request.log.info({ req: request, res: { statusCode: status }, reason: body.detail }, 'request rejected')
  return sendError(request, reply, status, body)
}

/** A request that is rejected before Fastify sees it, with its response. */
export class ProtocolError extends Error {
  constructor (readonly status: number, readonly body: ErrorBody, readonly headers: string[] = []) {
    super(body.detail)
  }
}

/**
 * Answers a request that Node's parser or our server rejects, after the responses to earlier requests on the connection,
 * and closes the connection.
 */
export function clientErrorHandler (this: FastifyInstance, error: ConnectionError | ProtocolError, socket: Connection) {
  const last = socket[newestResponse]
  const isEnding = last?.req.complete && !last.shouldKeepAlive // what follows the last request is ignored
  if (socket.destroyed || socket[isRefused] || isEnding) return
  socket[isRefused] = true
  const { status, body, headers } = error instanceof ProtocolError ? error : parserError(error)
  const reqId = genReqId({ headers: {} })
  // The error itself contains the bytes of the request.
  this.log.info({ reqId, res: { statusCode: status }, reason: error.message }, 'request rejected')
  const malformed = last?.req.complete ? undefined : last
  const before = malformed ? socket[previousResponse] : last
  if (before && !before.writableFinished) before.once('close', answer)
  else answer()

  function answer () {
    if (malformed?.headersSent) socket.destroySoon() // it was answered before the malformed part arrived
    else respond(socket, status, body, [...headers, `x-request-id: ${reqId}`])
  }
}

function parserError ({ code }: ConnectionError) {
  const status = statuses[code]
  return status ? new ProtocolError(status, { detail: details[status] }) : invalidRequest('request', malformedHttp)
}

/** A 400 for a request that does not reach a route. */
export function invalidRequest (part: Problem['in'], message: string, path = '') {
  return new ProtocolError(400, errorBody(invalid(part, [{ path, message }]), 400))
}

/** Writes a response directly to the connection and closes it. */
function respond (socket: Duplex, status: number, body: ErrorBody, headers: string[]) {
  if (!socket.writable) return socket.destroy()
  const json = JSON.stringify(body)
  socket.end([
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `content-type: ${jsonType}`,
    `content-length: ${Buffer.byteLength(json)}`,
    `cache-control: ${noCache}`,
    ...headers,
    `date: ${new Date().toUTCString()}`,
    'connection: close',
    '',
    json
  ].join('\r\n'))
}
