import type { AsyncResource } from 'node:async_hooks'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Type, type Static } from '@sinclair/typebox'
import fp from 'fastify-plugin'
import { checkOptions, metadata, optional } from '../../plugins/plugin.js'

/** The newest response of a connection, and the one before it. */
export const newestResponse = Symbol('newest response')
export const previousResponse = Symbol('previous response')

/** Whether a request of a connection was rejected, so that no later one is handled. */
export const isRefused = Symbol('is refused')

/** The pipelined requests of a connection that wait for the response to the one before them, and the number of them and of those that are ignored. */
export const waitingRequests = Symbol('waiting requests')

/** A connection of our server. (A `WeakMap` instead of properties would cost 3 % of the requests per second.) */
export interface Connection extends Socket {
  [newestResponse]?: ServerResponse
  [previousResponse]?: ServerResponse | undefined
  [isRefused]?: boolean
  [waitingRequests]?: { queue: { request: IncomingMessage, response: ServerResponse, resource: AsyncResource }[], kept: number }
}

const ConnectionsOptions = Type.Object({
  /** Time without traffic after which a connection is closed, in milliseconds; it may take up to twice as long. Default: never. */
  stalledAfter: optional(Type.Integer({ minimum: 1 }))
})
export interface ConnectionsOptions extends Static<typeof ConnectionsOptions> {}

/**
 * Closes idle connections when the app closes, and the others after their response. Also closes connections without
 * traffic. (Node's own timeout for these would cost 5 % of the requests per second.)
 */
export default fp<ConnectionsOptions>(async function connections (app, options) {
  const { stalledAfter } = checkOptions(app, 'connections', ConnectionsOptions, options)
  const open = new Map<Connection, number>()
  const sweep = stalledAfter && setInterval(function closeStalled () {
    for (const [connection, seen] of open) {
      const bytes = connection.bytesRead + connection.bytesWritten
      if (bytes === seen) connection.destroy()
      open.set(connection, bytes)
    }
  }, stalledAfter).unref()

  app.server.on(app.initialConfig.https ? 'secureConnection' : 'connection', function track (connection: Connection) {
    open.set(connection, -1)
    connection.once('close', () => open.delete(connection))
  })

  app.addHook('onClose', async function stopSweeping () {
    clearInterval(sweep)
  })

  app.addHook('preClose', async function closeConnections () {
    for (const connection of open.keys()) {
      const response = connection[newestResponse]
      if (response?.headersSent === false) response.setHeader('connection', 'close')
      else response?.once('close', () => app.server.closeIdleConnections())
      // Node does not count a connection as idle before its first request.
      if (connection.bytesRead === 0) connection.destroy()
    }
  })
}, metadata('connections'))

/** Makes every response from now on close its connection, so that load balancers drain this instance. */
export function disableKeepAlive (server: Server) {
  for (const event of ['request', 'checkContinue', 'checkExpectation']) {
    server.prependListener(event, (_request, response) => { response.setHeader('connection', 'close') })
  }
}
