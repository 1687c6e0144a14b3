import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import fp from 'fastify-plugin'
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { details, jsonType, type Fault } from '../schemas/http.js'
import { errorBody, invalid } from './errors.js'

/** What Node's parser gives up on, other than for being malformed. */
const statuses: Record<string, 408 | 413 | 431> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  HPE_HEADER_OVERFLOW: 431
}

/** The newest response on each connection. */
const responses = new WeakMap<Duplex, ServerResponse>()

/**
 * Options for `Fastify()` that give our shape to the answers which come from below its routes. A missing `Host` is
 * left to the plugin, since Node would refuse it with an empty body.
 */
export const wireOptions = { frameworkErrors, clientErrorHandler, http: { requireHostHeader: false } }

/** Answers in our shape what Node would refuse without a body, or not answer at all. */
export default fp(async function wire (app) {
  app.addHook('onRequest', function requireHost ({ headers, raw }, reply, done) {
    responses.set(raw.socket, reply.raw)
    const missing = headers.host === undefined && raw.httpVersionMinor === 1
    done(missing ? invalid('headers', [{ path: '/host', message: 'is required' }]) : undefined)
  })

  app.server.on('checkExpectation', function refuseExpectation (_request: IncomingMessage, response: ServerResponse) {
    const body = JSON.stringify({ detail: details[417] })
    response.writeHead(417, { 'content-type': jsonType, 'content-length': Buffer.byteLength(body) }).end(body)
  })

  app.server.on('connect', function refuseTunnel (_request: IncomingMessage, socket: Duplex) {
    end(socket, 405, { detail: details[405] })
  })
}, { fastify: '5.x', name: 'wire' })

/** What Fastify's router gives up on: a path that is malformed, or too long to be any of ours. */
function frameworkErrors (error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply) {
  const tooLong = error.statusCode === 414
  reply.code(tooLong ? 414 : 400)
  request.log.info({ req: request, res: reply, responseTime: reply.elapsedTime }, 'request refused')
  return reply.send(tooLong ? { detail: details[414] } : refusal('path', 'must be a valid URL'))
}

/** What Node's parser gives up on. The requests that came whole before it on the connection are answered first. */
function clientErrorHandler (this: FastifyInstance, error: ConnectionError, socket: Duplex) {
  const status = statuses[error.code] ?? 400
  const body = status === 400 ? refusal('request', 'must be well-formed HTTP') : { detail: details[status] }
  this.log.info({ err: error, res: { statusCode: status } }, 'request refused')
  const earlier = responses.get(socket)
  if (earlier?.req.complete && !earlier.writableFinished) earlier.once('close', () => end(socket, status, body))
  else end(socket, status, body)
}

function refusal (part: Fault['in'], message: string) {
  return errorBody(invalid(part, [{ path: '', message }]), 400)
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
