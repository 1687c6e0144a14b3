import { AsyncResource } from 'node:async_hooks'
import http, { type IncomingMessage, METHODS, type RequestListener, type Server, type ServerResponse } from 'node:http'
import https from 'node:https'
import dns from 'node:dns'
import { once } from 'node:events'
import net, { type AddressInfo, type ListenOptions } from 'node:net'
import type { FastifyHttpOptions, FastifyHttpsOptions } from 'fastify'
import { isRefused, newestResponse, previousResponse, waitingRequests, type Connection } from './connections.js'
import { clientErrorHandler, frameworkErrors, invalidRequest, ProtocolError } from './protocol-errors.js'

/** Options for `Fastify()`: a faster HTTP/1.1 server, and our error format for requests that do not reach a route. */
export const httpServerOptions = { serverFactory, frameworkErrors, clientErrorHandler }

/** A host name or IP address, and an optional port (RFC 9112, section 3.2). */
const validHost = /^(\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:\d*)?$/i

function serverFactory (listener: RequestListener, options: Options): https.Server
function serverFactory (listener: RequestListener, options: Options): Server
function serverFactory (listener: RequestListener, options: Options) {
  if (options.http2) throw new Error('httpServerOptions cannot serve HTTP/2. Remove the option http2, or do not use httpServerOptions.')
  const { connectionTimeout, keepAliveTimeout, maxRequestsPerSocket, requestTimeout } = options
  const open = new Set<Connection>()
  const handle = inOrder(inBatches(listener, () => open.size > 1), drop)
  const settings = { ...options.http, ...options.https, keepAliveTimeout, requestTimeout, requireHostHeader: false }
  const server = options.https ? https.createServer(settings, checked(handle)) : http.createServer(settings, checked(handle))
  Object.assign(server, {
    timeout: connectionTimeout,
    maxRequestsPerSocket,
    maxHeadersCount: 0, // the size of the headers is limited; Node would silently drop headers beyond this number
    httpAllowHalfOpen: true // a client that closes its side after the last request still gets the response
  })
  server.on(options.https ? 'secureConnection' : 'connection', function track (connection: Connection) {
    open.add(connection)
    connection.once('close', () => open.delete(connection))
  })
  server.on('checkContinue', checked(handleExpectant))
  server.on('checkExpectation', checked(request => refuse(request, new ProtocolError(417))))
  server.on('connect', request => refuse(request, new ProtocolError(405, undefined, ['allow: '])))
  listenOnLocalhost(server)
  return server

  function checked (handleChecked: RequestListener): RequestListener {
    return function serve (request, response) {
      if (isIgnored(request.socket)) return handle(request, response)
      const problem = problemWith(request)
      if (problem) return refuse(request, problem)
      // Node does not parse what follows a request with `Upgrade`, even if the server does not upgrade.
      if (request.headers.upgrade !== undefined) response.setHeader('connection', 'close')
      handleChecked(request, response)
    }
  }

  /** Sends `100 Continue` when the body is read. If the request is rejected before that, the connection is closed, because the body may follow or not. */
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

  /** Rejects a request in the same way as one that Node cannot parse. */
  function refuse (request: IncomingMessage, problem: ProtocolError) {
    request.resume() // some clients read the response only after they have sent the whole body
    server.emit('clientError', problem, request.socket)
  }

  /**
   * Closes a connection without a response, and logs why. Node still parses what it has read of it. Until that is released, the
   * other connections read nothing: many of them could have sent as much at the same time.
   */
  function drop (connection: Connection) {
    const others = [...open].filter(other => !other.isPaused())
    for (const other of others) other.pause()
    connection.once('close', () => { for (const other of others) other.resume() })
    server.emit('clientError', new ProtocolError(0, { detail: 'Too many pipelined requests' }), connection)
    connection.destroy()
  }
}

type Options = FastifyHttpOptions<Server> & Partial<FastifyHttpsOptions<https.Server>> & { http2?: boolean }

const methods = new Set(METHODS)

/** Checks what Node's parser does not check: methods of other protocols, the HTTP version, transfer codings and `Host`. */
function problemWith ({ method = '', httpVersion, headers, rawHeaders }: IncomingMessage) {
  if (!methods.has(method) || (httpVersion !== '1.1' && httpVersion !== '1.0')) return invalidRequest()
  const { host, 'transfer-encoding': coding = 'chunked' } = headers
  // A proxy that speaks HTTP/1.0 does not know this header, so that it sees another end of the request (RFC 9112, section 6.1).
  if (httpVersion === '1.0' && headers['transfer-encoding'] !== undefined) return invalidRequest()
  if (coding.toLowerCase() !== 'chunked') return new ProtocolError(501)
  if (host === undefined) return httpVersion === '1.1' ? invalidRequest('headers', 'is required', '/host') : undefined
  if (!validHost.test(host)) return invalidRequest('headers', 'must be a host name and an optional port', '/host')
  let hosts = 0
  for (let n = 0; n < rawHeaders.length; n += 2) if (rawHeaders[n]?.length === 4 && rawHeaders[n]?.toLowerCase() === 'host') hosts++
  if (hosts > 1) return invalidRequest('headers', 'must be sent only once', '/host')
}

/** Returns whether further requests of a connection are ignored: one was rejected, or was the last one. */
function isIgnored (connection: Connection) {
  return connection[isRefused] || connection[newestResponse]?.shouldKeepAlive === false
}

/** Number of waiting requests that a connection may always have, and that all connections may have together. Each needs about 2 kB. */
const maxWaiting = { ofConnection: 10, inAll: 5000 }

/**
 * Handles a pipelined request after the previous response has been sent, and reads no further requests until then. Node parses
 * all requests of the 64 KiB that it reads at once. Node keeps them, and those that are ignored, as long
 * as the connection is open. If these are too many, `drop` closes it.
 */
function inOrder (handle: RequestListener, drop: (connection: Connection) => void): RequestListener {
  let waiting = 0

  return function handleInOrder (request, response) {
    const connection: Connection = request.socket
    const previous = connection[newestResponse]
    const isLate = isIgnored(connection)
    if (!isLate) {
      connection[newestResponse] = response
      connection[previousResponse] = previous
      if (previous === undefined || previous.writableFinished) return handle(request, response)
    }
    if (connection.destroyed) return
    const ahead = connection[waitingRequests] ??= newQueue(connection)
    if (ahead.kept >= maxWaiting.ofConnection && waiting >= maxWaiting.inAll) return drop(connection)
    ahead.kept++
    waiting++
    // (`AsyncResource.bind` is slow in Node 20.)
    if (isLate || ahead.queue.push({ request, response, resource: new AsyncResource('HttpRequest') }) > 1 || previous === undefined) return
    waitFor(previous, connection)
    process.nextTick(() => connection.pause()) // Node may be about to resume the connection, and would not notice a pause before that
  }

  function newQueue (connection: Connection) {
    const ahead: NonNullable<Connection[typeof waitingRequests]> = { queue: [], kept: 0 }
    connection.once('close', () => {
      waiting -= ahead.kept
      ahead.queue = []
    })
    // Node resumes the connection when a body is read, and with each response.
    connection.on('resume', () => { if (ahead.queue.length > 0 && connection.writable) connection.pause() })
    return ahead
  }

  function waitFor (response: ServerResponse, connection: Connection) {
    // Other connections get their turn in between.
    response.once('close', () => { if (connection.writable) setImmediate(handleNext, connection) })
  }

  function handleNext (connection: Connection) {
    const ahead = connection[waitingRequests]
    const next = connection.writable && ahead?.queue.shift()
    if (!ahead || !next) return // the connection was closed meanwhile, or is about to be closed
    ahead.kept--
    waiting--
    const { request, response, resource } = next
    if (connection[newestResponse] === response) connection.resume()
    else waitFor(response, connection)
    resource.runInAsyncScope(handle, undefined, request, response)
  }
}

/**
 * Handles all requests of one turn of the event loop after they have been parsed, each in its own async context. This
 * saves a sixth of the time under load, because parser code and handler code each stay in the CPU caches. A single
 * connection has nothing to batch, and its requests are handled at once.
 */
function inBatches (listener: RequestListener, isWorthwhile: () => boolean): RequestListener {
  const waiting: { request: IncomingMessage, response: Parameters<RequestListener>[1], resource: AsyncResource }[] = []

  return function handleSoon (request, response) {
    if (!isWorthwhile()) listener(request, response)
    else if (waiting.push({ request, response, resource: new AsyncResource('HttpRequest') }) === 1) setImmediate(handleWaiting)
  }

  function handleWaiting (batch = waiting.splice(0).values()) {
    try {
      for (const { request, response, resource } of batch) {
        if (!request.socket.destroyed) resource.runInAsyncScope(listener, undefined, request, response)
      }
    } catch (error) {
      setImmediate(handleWaiting, batch) // the others are still handled
      throw error
    }
  }
}

/** Makes a server listen on every address of `localhost`. Fastify does so for its own server, but not for one of a server factory. */
function listenOnLocalhost (server: Server) {
  const listen: (options: ListenOptions, ...rest: never[]) => unknown = server.listen.bind(server)

  Object.assign(server, {
    listen (options: ListenOptions, ...rest: never[]) {
      if (options.host === 'localhost') dns.lookup('localhost', { all: true }, listenOnAll)
      else listen(options, ...rest)
      return server

      async function listenOnAll (_error: unknown, addresses: dns.LookupAddress[] = []) {
        let { port = 0 } = options
        for (const { address } of addresses.slice(1)) port = await listenBeside(address, port)
        listen({ ...options, port }, ...rest)
      }
    }
  })

  /** Passes the connections of another address to the server. Like Fastify, it ignores an address that cannot be used. */
  async function listenBeside (host: string, port: number) {
    const beside = net.createServer({ allowHalfOpen: true, noDelay: true }, socket => server.emit('connection', socket))
    const isUsable = await once(beside.listen({ host, port }), 'listening').then(() => true, () => false)
    if (!isUsable) return port
    server.once('error', () => beside.close()) // the server itself cannot listen
    const close = server.close.bind(server)
    const closed = once(beside, 'close')
    // When the server closes, it also waits for the connections of the other address.
    server.close = callback => {
      beside.close()
      return close(error => closed.then(() => callback?.(error)))
    }
    return (beside.address() as AddressInfo).port
  }
}
