import { createServer, STATUS_CODES, type RequestListener, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import fp from 'fastify-plugin'
import type { ConnectionError, FastifyHttpOptions, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { details, jsonType, type Fault } from '../schemas/http.js'
import { errorBody, invalid } from '../plugins/http/errors.js'

/** What Node's parser gives up on, other than for being malformed. */
const statuses: Record<string, 408 | 413 | 431> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  HPE_HEADER_OVERFLOW: 431
}

/** What is said of what is no HTTP, or so old that it has no version. */
const malformedHttp = 'must be well-formed HTTP'

const newestResponse = Symbol('newest response')
const bytesMoved = Symbol('bytes moved')

/** A connection that knows its newest response. (A property, since a `WeakMap` costs 3 % of all requests.) */
interface Connection extends Socket {
  [newestResponse]?: ServerResponse
  /** How many bytes had come and gone when it was last looked at. */
  [bytesMoved]?: number
  /** The response that is being sent; Node's own, for want of another way to know. */
  _httpMessage?: ServerResponse | null
}

interface HttpServerOptions {
  /** How long nothing may move on a connection before it is ended, or at most twice that, in milliseconds; for ever unless it is said. */
  stalledAfter?: number
}

/** Options for `Fastify()` that give our shape to the answers which come from below its routes. */
export const httpServerOptions = { serverFactory, frameworkErrors, clientErrorHandler }

/**
 * Makes clients leave when the app closes. Fastify tells those so whose requests come after; the requests already
 * under way would keep their connections, and the app, open. And has those leave who neither send nor take anything:
 * Node's own time-out for that costs every request a twentieth.
 */
export default fp<HttpServerOptions>(async function httpServer (app, { stalledAfter }) {
  const connections = new Set<Connection>()
  const sweep = stalledAfter && setInterval(function endStalled () {
    for (const connection of connections) {
      const moved = connection.bytesRead + connection.bytesWritten
      if (moved === connection[bytesMoved]) connection.destroy()
      connection[bytesMoved] = moved
    }
  }, stalledAfter).unref()

  app.server.on('connection', function follow (connection) {
    connections.add(connection)
    connection.once('close', () => connections.delete(connection))
  })

  app.addHook('onClose', async function stopSweeping () {
    clearInterval(sweep)
  })

  app.addHook('preClose', async function dismiss () {
    for (const connection of connections) {
      const response = connection[newestResponse]
      if (response?.headersSent === false) response.setHeader('connection', 'close')
      else response?.once('close', () => app.server.closeIdleConnections())
      // One that was opened in advance is not idle to Node, since nothing has come on it yet.
      if (connection.bytesRead === 0) connection.destroy()
    }
  })
}, { fastify: '5.x', name: 'fastify-items-users/http-server' })

/** Node's server, but that it answers with a body what Node would refuse without one, or not answer at all. */
function serverFactory (listener: RequestListener, options: FastifyHttpOptions<Server>) {
  const handle = together(listener)
  const { http, connectionTimeout, keepAliveTimeout, maxRequestsPerSocket, requestTimeout } = options
  const server = createServer({ ...http, keepAliveTimeout, requestTimeout, requireHostHeader: false }, (request, response) => {
    const connection: Connection = request.socket
    connection[newestResponse] = response
    const { headers, httpVersion } = request
    if (httpVersion === '1.1' ? headers.host !== undefined : httpVersion === '1.0') return handle(request, response)
    send(response, 400, httpVersion === '1.1' ? refusal('headers', 'is required', '/host') : refusal('request', malformedHttp))
  })
  // Fastify leaves these to whoever makes the server. Headers are limited by their bytes; by their number, Node would
  // drop some and say nothing.
  Object.assign(server, { timeout: connectionTimeout, maxRequestsPerSocket, maxHeadersCount: 0 })
  server.on('checkExpectation', (_request, response) => send(response, 417, { detail: details[417] }))
  server.on('connect', (_request, socket) => end(socket, 405, { detail: details[405] }))
  return server
}

/**
 * Handles the requests that one turn of the event loop brings when all of them are read, one after the other. Under
 * load that answers a fifth more of them than to read and answer in alternation (measured; why, was not).
 */
function together (handle: RequestListener): RequestListener {
  let waiting: Parameters<RequestListener>[1][] = []

  return (_request, response) => {
    if (waiting.push(response) === 1) setImmediate(handleAll)
  }

  function handleAll () {
    const responses = waiting
    waiting = []
    for (const response of responses) handle(response.req, response)
  }
}

/** What Fastify's router gives up on: a path that is malformed, or too long to be any of ours. */
function frameworkErrors (error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply) {
  const tooLong = error.statusCode === 414
  reply.code(tooLong ? 414 : 400)
  const { method, url, ip } = request
  request.log.info({ method, url, status: reply.statusCode, ip }, 'request refused')
  return reply.send(tooLong ? { detail: details[414] } : refusal('path', 'must be a valid URL'))
}

/** What Node's parser gives up on. The requests that came whole before it on the connection are answered first. */
function clientErrorHandler (this: FastifyInstance, error: ConnectionError, socket: Connection) {
  if (socket.destroyed) return // it broke, and nobody is there to be answered
  const status = statuses[error.code] ?? 400
  const body = status === 400 ? refusal('request', malformedHttp) : { detail: details[status] }
  this.log.info({ status, reason: error.message }, 'request refused')
  answer()

  function answer () {
    const newest = socket[newestResponse]
    const malformed = newest?.req.complete ? undefined : newest
    if (socket._httpMessage && socket._httpMessage !== malformed) socket._httpMessage.once('close', answer)
    else if (malformed?.headersSent) socket.destroySoon() // it was answered before its rest came
    else end(socket, status, body)
  }
}

function refusal (part: Fault['in'], message: string, path = '') {
  return errorBody(invalid(part, [{ path, message }]), 400)
}

function send (response: ServerResponse, status: number, body: object) {
  const json = JSON.stringify(body)
  response.writeHead(status, { 'content-type': jsonType, 'content-length': Buffer.byteLength(json) }).end(json)
}

/** Writes an answer where there is no response object to do so, and ends the connection. */
function end (socket: Duplex, status: number, body: object) {
  if (!socket.writable) return socket.destroy()
  const json = JSON.stringify(body)
  socket.end([
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `content-type: ${jsonType}`,
    `content-length: ${Buffer.byteLength(json)}`,
    'connection: close',
    '',
    json
  ].join('\r\n'))
}
