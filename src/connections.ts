import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import fp from 'fastify-plugin'

/** The newest response of a connection, and the one whose request is being handled. */
export const newestResponse = Symbol('newest response')
export const currentResponse = Symbol('current response')

/** Whether a request of a connection was refused, so that none after it is handled. */
export const isRefused = Symbol('is refused')

/** A connection of our server. (These are properties because a `WeakMap` costs 3 % of all requests.) */
export interface Connection extends Socket {
  [newestResponse]?: ServerResponse
  [currentResponse]?: ServerResponse
  [isRefused]?: boolean
}

export interface ConnectionsOptions {
  /** After how many milliseconds without traffic a connection is closed, at most twice that long; never by default. */
  stalledAfter?: number
}

/**
 * Closes connections: idle ones when the app closes, those with a request under way after its response, and those
 * without traffic after some time. (Node's own timeout for the latter costs every request 5 %.)
 */
export default fp<ConnectionsOptions>(async function connections (app, { stalledAfter }) {
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
}, { fastify: '5.x', name: 'fastify-items-users/connections' })

/** Makes every response from now on close its connection, so that clients and load balancers open new ones elsewhere. */
export function disableKeepAlive (server: Server) {
  for (const event of ['request', 'checkContinue', 'checkExpectation']) {
    server.prependListener(event, (_request, response) => { response.setHeader('connection', 'close') })
  }
}
