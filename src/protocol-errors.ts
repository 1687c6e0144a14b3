import { STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { errorBody, invalid, sendError } from '../plugins/http/errors.js'
import { genReqId } from '../plugins/http/request-id.js'
import { jsonType, noCache } from '../plugins/http/responses.js'
import { details, type ErrorBody, type Fault } from '../schemas/errors.js'
import { currentResponse, isRefused, newestResponse, type Connection } from './connections.js'

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
  const tooLong = error.statusCode === 414
  const status = tooLong ? 414 : 400
  request.log.info({ req: request, res: { statusCode: status }, err: error }, 'request rejected')
  return sendError(request, reply, status, tooLong ? { detail: details[414] } : invalidRequest('path', 'must be a valid URL'))
}

/** A request that is rejected before Fastify sees it, with its response. */
export class ProtocolError extends Error {
  constructor (readonly status: number, readonly body: ErrorBody) {
    super(body.detail)
  }
}

/**
 * Answers a request that Node's parser or our server rejects, after the responses to earlier requests on the connection,
 * and closes the connection.
 */
export function clientErrorHandler (this: FastifyInstance, error: ConnectionError | ProtocolError, socket: Connection) {
  if (socket.destroyed || socket[isRefused]) return // the connection is closed or about to be closed
  socket[isRefused] = true
  const { status, body } = error instanceof ProtocolError ? error : parserError(error)
  const reqId = genReqId({ headers: {} })
  this.log.info({ reqId, res: { statusCode: status }, err: error }, 'request rejected')
  answer()

  function answer () {
    const newest = socket[newestResponse]
    const current = socket[currentResponse]
    const malformed = newest?.req.complete ? undefined : newest
    const pending = malformed ? current : newest
    if (pending && pending !== malformed && !pending.writableFinished) pending.once('close', answer)
    else if (malformed?.headersSent) socket.destroySoon() // it was answered before the malformed part arrived
    else respond(socket, status, body, reqId)
  }
}

function parserError ({ code }: ConnectionError) {
  const status = statuses[code]
  return status ? { status, body: { detail: details[status] } } : { status: 400, body: invalidRequest('request', malformedHttp) }
}

/** The body of a 400 for a request that does not reach a route. */
export function invalidRequest (part: Fault['in'], message: string, path = '') {
  return errorBody(invalid(part, [{ path, message }]), 400)
}

/** Writes a response directly to the connection and closes it. */
function respond (socket: Duplex, status: number, body: ErrorBody, reqId: string) {
  if (!socket.writable) return socket.destroy()
  const json = JSON.stringify(body)
  socket.end([
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `content-type: ${jsonType}`,
    `content-length: ${Buffer.byteLength(json)}`,
    `cache-control: ${noCache}`,
    `x-request-id: ${reqId}`,
    `date: ${new Date().toUTCString()}`,
    'connection: close',
    '',
    json
  ].join('\r\n'))
}
