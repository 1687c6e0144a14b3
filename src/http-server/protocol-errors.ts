import { STATUS_CODES } from 'node:http'
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { errorBody, invalid, sendError } from '../../plugins/http/errors.js'
import { jsonType, noCache } from '../../plugins/http/responses.js'
import { details, type ErrorBody, type Problem } from '../../schemas/errors.js'
import { isRefused, newestResponse, previousResponse, type Connection } from './connections.js'
import { genReqId } from './request-id.js'

/** Answers a request that Fastify's router rejects because its path is malformed or too long. */
export function frameworkErrors (error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply) {
  const { status, body } = error.statusCode === 414 ? new ProtocolError(414) : invalidRequest('path', 'must be a valid URL')
  request.log.info({ req: request, res: { statusCode: status }, reason: body.detail }, 'request rejected')
  return sendError(request, reply, status, body)
}

/** A request that is rejected before Fastify sees it, with its response. With the status 0, the connection is closed without one. */
export class ProtocolError extends Error {
  constructor (readonly status: number, readonly body: ErrorBody = { detail: Object(details)[status] }, readonly headers: string[] = []) {
    super(body.detail)
  }
}

/** Errors of Node's parser with a status other than 400. */
const parserErrors: Record<string, ProtocolError> = {
  ERR_HTTP_REQUEST_TIMEOUT: new ProtocolError(408),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: new ProtocolError(413),
  HPE_HEADER_OVERFLOW: new ProtocolError(431)
}

/** Answers a request that Node's parser or our server rejects, after earlier responses on the connection, and closes the connection. */
export function clientErrorHandler (this: FastifyInstance, error: ConnectionError | ProtocolError, socket: Connection) {
  const last = socket[newestResponse]
  const isEnding = last?.req.complete && !last.shouldKeepAlive // what follows the last request is ignored
  if (socket.destroyed || socket[isRefused] || isEnding) return
  socket[isRefused] = true
  const { status, body, headers } = error instanceof ProtocolError ? error : parserErrors[error.code] ?? invalidRequest()
  const reqId = genReqId({ headers: {} })
  // The error itself contains the bytes of the request.
  if (status === 0) return this.log.info({ reqId, reason: error.message }, 'connection closed')
  this.log.info({ reqId, res: { statusCode: status }, reason: error.message }, 'request rejected')
  const malformed = last?.req.complete ? undefined : last
  const before = malformed ? socket[previousResponse] : last
  if (before && !before.writableFinished) before.once('close', answer)
  else answer()

  function answer () {
    if (malformed?.headersSent) return socket.destroySoon() // it was answered before the malformed part arrived
    if (!socket.writable) return socket.destroy()
    const json = JSON.stringify(body)
    socket.end([
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      `content-type: ${jsonType}`,
      `content-length: ${Buffer.byteLength(json)}`,
      `cache-control: ${noCache}`,
      ...headers,
      `x-request-id: ${reqId}`,
      `date: ${new Date().toUTCString()}`,
      'connection: close',
      '',
      json
    ].join('\r\n'))
    socket.resume() // a pipelined request may have paused it, and it would not notice that the client closes the connection
  }
}

/** A 400 for a request that does not reach a route. */
export function invalidRequest (part: Problem['in'] = 'request', message = 'must be well-formed HTTP', path = '') {
  return new ProtocolError(400, errorBody(invalid(part, [{ path, message }]), 400))
}
