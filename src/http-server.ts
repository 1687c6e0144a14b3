import { AsyncResource } from 'node:async_hooks'
import http, { type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import https from 'node:https'
import type { FastifyHttpOptions, FastifyHttpsOptions } from 'fastify'
import { details, type ErrorBody } from '../schemas/errors.js'
import { currentResponse, isRefused, newestResponse, type Connection } from './connections.js'
import { listenOnLocalhost } from './localhost.js'
import { clientErrorHandler, frameworkErrors, invalidRequest, malformedHttp, ProtocolError } from './protocol-errors.js'

/** Options for `Fastify()`: a faster HTTP/1.1 server, and our error bodies for requests that reach no route. */
export const httpServerOptions = { serverFactory, frameworkErrors, clientErrorHandler }

/** A registered name or an address, and a port (RFC 9112, section 3.2). */
const validHost = /^(\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:\d*)?$/i

function serverFactory (listener: RequestListener, options: Options): https.Server
function serverFactory (listener: RequestListener, options: Options): Server
function serverFactory (listener: RequestListener, options: Options) {
  if (options.http2) throw new Error('httpServerOptions cannot serve HTTP/2. Remove the option http2, or do not use httpServerOptions.')
  const { connectionTimeout, keepAliveTimeout, maxRequestsPerSocket, requestTimeout } = options
  const handle = inOrder(inBatches(listener))
  const settings = { ...options.http, ...options.https, keepAliveTimeout, requestTimeout, requireHostHeader: false }
  const server = options.https ? https.createServer(settings, checked(handle)) : http.createServer(settings, checked(handle))
  Object.assign(server, {
    timeout: connectionTimeout,
    maxRequestsPerSocket,
    maxHeadersCount: 0, // headers are limited by their size; Node would drop those beyond a number without an error
    httpAllowHalfOpen: true // a client that has sent its last request is still answered
  })
  server.on('checkContinue', checked(handleExpectant))
  server.on('checkExpectation', request => refuse(request, 417, { detail: details[417] }))
  server.on('connect', request => refuse(request, 405, { detail: details[405] }))
  listenOnLocalhost(server)
  return server

  function checked (handle: RequestListener): RequestListener {
    return function serve (request, response) {
      const fault = faultOf(request)
      if (fault === undefined) handle(request, response)
      else refuse(request, 400, fault)
    }
  }

  /** Asks for the body when it is about to be read. A request that is refused before that ends its connection, as its body may follow or not. */
  function handleExpectant (request: IncomingMessage, response: ServerResponse) {
    const connection = response.getHeader('connection') ?? request.headers.connection ?? 'keep-alive'
    response.setHeader('connection', 'close')
    request.once('resume', function askForBody () {
      if (response.headersSent) return
      response.setHeader('connection', connection)
      response.writeContinue()
    })
    handle(request, response)
  }

  /** Answers a request that is not HTTP as we serve it in the same way as one that Node cannot parse. */
  function refuse (request: IncomingMessage, status: number, body: ErrorBody) {
    request.resume() // for a client that reads the response after it has sent its whole body
    server.emit('clientError', new ProtocolError(status, body), request.socket)
  }
}

type Options = FastifyHttpOptions<Server> & Partial<FastifyHttpsOptions<https.Server>> & { http2?: boolean }

/** What HTTP asks of the head of a request and Node does not check in this way. */
function faultOf ({ httpVersion, headers, rawHeaders }: IncomingMessage) {
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return invalidRequest('request', malformedHttp)
  const { host } = headers
  if (host === undefined) return httpVersion === '1.1' ? invalidRequest('headers', 'is required', '/host') : undefined
  if (!validHost.test(host)) return invalidRequest('headers', 'must be a host name and an optional port', '/host')
  let hosts = 0
  for (let n = 0; n < rawHeaders.length; n += 2) if (rawHeaders[n]?.length === 4 && rawHeaders[n]?.toLowerCase() === 'host') hosts++
  if (hosts > 1) return invalidRequest('headers', 'must be sent only once', '/host')
}

/** Handles a pipelined request after the response before it has been sent, and reads no further requests until then. */
function inOrder (handle: RequestListener): RequestListener {
  return function handleInOrder (request, response) {
    const connection: Connection = request.socket
    if (connection[isRefused]) return
    const previous = connection[newestResponse]
    connection[newestResponse] = response
    if (previous === undefined || previous.writableFinished) {
      connection[currentResponse] = response
      return handle(request, response)
    }
    connection.pause()
    previous.once('close', AsyncResource.bind(function handleNext () {
      if (!connection.writable) return // the client is gone, or was told that the connection ends
      connection[currentResponse] = response
      if (connection[newestResponse] === response) connection.resume()
      else connection.pause() // Node resumes it with each response
      handle(request, response)
    }))
  }
}

/**
 * Handles the requests that arrive in one turn of the event loop after all of them have been read, each in its own
 * async context. Under load this takes a sixth less time: there are as many system calls, but parsing code and handler
 * code each run many times in a row and stay in the caches of the processor.
 */
function inBatches (listener: RequestListener): RequestListener {
  let waiting: Waiting[] = []

  return function handleSoon (request, response) {
    if (waiting.push({ request, response, resource: new AsyncResource('HttpRequest') }) === 1) setImmediate(handleWaiting)
  }

  function handleWaiting () {
    const batch = waiting
    waiting = []
    handleBatch(batch)
  }

  function handleBatch (batch: Waiting[], first = 0) {
    let n = first
    try {
      for (; n < batch.length; n++) {
        const { request, response, resource } = batch[n] as Waiting
        resource.runInAsyncScope(listener, undefined, request, response)
      }
    } finally {
      // A request that throws does not take the others with it.
      if (n < batch.length) setImmediate(handleBatch, batch, n + 1)
    }
  }
}

interface Waiting {
  request: IncomingMessage
  response: Parameters<RequestListener>[1]
  resource: AsyncResource
}
