import { randomUUID } from 'node:crypto'
import { STATUS_CODES, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { errorBody, invalid, sendError } from '../plugins/http/errors.js'
import { jsonType, noCache } from '../plugins/http/responses.js'
import { details } from '../schemas/error-body.js'

const instance = randomUUID()
let requests = 0

/**
 * The id of a request: the client's `X-Request-Id` if it consists of at most 128 visible ASCII characters, otherwise
 * an id of this process and a number. (A UUID for each request would cost 3 % of the requests per second.)
 */
export function genReqId ({ headers }: Pick<IncomingMessage, 'headers'>) {
  const id = String(headers['x-request-id'] ?? '')
  return /^[!-~]{1,128}$/.test(id) ? id : `${instance}-${++requests}`
}

/** Options for `Fastify()`: timeouts, and our error format for requests that do not reach a route. */
export const httpServerOptions = {
  genReqId,
  frameworkErrors,
  clientErrorHandler,
  requestTimeout: 60_000,
  keepAliveTimeout: 72_000,
  // `checkRequest` answers requests without Host, because the response of Node has no body.
  http: { headersTimeout: 30_000, connectionsCheckingInterval: 5000, requireHostHeader: false },
  forceCloseConnections: 'idle' as const,
  // Requests that arrive during shutdown are still served.
  return503OnClosing: false
}

/** Where the request after a refused one begins is not certain, so it is ignored, and the connection is closed. */
const refused = new WeakSet<Socket>()

/** Rejects requests that proxies and Node may read differently, and those without Host. */
export default fp(async function checkRequest (app) {
  const open = new Set<Socket>()

  app.server.on('connection', function track (socket) {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
  })

  // Node does not count a connection as idle before its first request, and keeps those whose request is in progress.
  app.addHook('preClose', async function closeConnections () {
    for (const socket of open) if (socket.bytesRead === 0) socket.destroy()
    const timer = setInterval(() => app.server.closeIdleConnections(), 100).unref()
    app.server.once('close', () => clearInterval(timer))
  })

  app.addHook('onRequest', function checkHeaders (request, reply, done) {
    if (refused.has(request.raw.socket)) reply.hijack()
    else done(refusal(request, reply))
  })
})

/** Returns the problem of a request whose end is not certain, and closes its connection after the response. */
function refusal ({ raw, headers }: FastifyRequest, reply: FastifyReply) {
  const problem = problemOf(raw.httpVersion, headers)
  if (!problem) return
  refused.add(raw.socket)
  reply.header('connection', 'close')
  return problem
}

function problemOf (version: string, { host, 'transfer-encoding': coding }: IncomingMessage['headers']) {
  if (version !== '1.1' && version !== '1.0') return malformed()
  if (coding !== undefined && (version === '1.0' || coding.toLowerCase() !== 'chunked')) {
    return invalid('headers', [{ path: '/transfer-encoding', message: 'must be chunked, in HTTP/1.1' }])
  }
  if (host === undefined && version === '1.1') return invalid('headers', [{ path: '/host', message: 'is required' }])
}

function malformed () {
  return invalid('request', [{ path: '', message: 'must be well-formed HTTP' }])
}

/** Answers a request that Fastify's router rejects because its path is malformed or too long. */
function frameworkErrors (error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply) {
  // It has no `onRequest` hooks.
  if (refused.has(request.raw.socket)) {
    reply.hijack()
    return
  }
  refusal(request, reply)
  const invalidPath = errorBody(invalid('path', [{ path: '', message: 'must be a valid URL' }]), 400)
  if (error.statusCode === 414) sendError(request, reply.code(414), { detail: details[414] })
  else sendError(request, reply.code(400), invalidPath)
  request.log.info({ req: request, res: reply }, 'request rejected') // it has no `onResponse` hooks
}

/** The status of errors of Node's parser, if it is not 400. */
const parserErrors: Record<string, 408 | 413 | 431> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  HPE_HEADER_OVERFLOW: 431
}

/** Answers a request that Node cannot parse, and closes the connection. */
function clientErrorHandler (this: FastifyInstance, error: ConnectionError, socket: Socket) {
  if (error.code === 'ECONNRESET' || socket.destroyed) return
  const known = parserErrors[error.code]
  const status = known ?? 400
  const json = JSON.stringify(known ? { detail: details[known] } : errorBody(malformed(), status))
  const reqId = genReqId({ headers: {} })
  // The error itself contains the bytes of the request.
  this.log.info({ reqId, res: { statusCode: status }, reason: error.message }, 'request rejected')
  if (!socket.writable) return socket.destroy()
  socket.end([
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `content-type: ${jsonType}`,
    `content-length: ${Buffer.byteLength(json)}`,
    `cache-control: ${noCache}`,
    `x-request-id: ${reqId}`,
    'connection: close',
    '',
    json
  ].join('\r\n'))
}
