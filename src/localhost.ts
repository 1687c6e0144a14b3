import dns from 'node:dns'
import { once } from 'node:events'
import type { Server } from 'node:http'
import net, { type AddressInfo, type ListenOptions } from 'node:net'

/**
 * Makes a server listen on every address of `localhost`. Fastify does so for its own server, but not for one of a
 * server factory.
 */
export function listenOnLocalhost (server: Server) {
  const listen: (options: ListenOptions) => unknown = server.listen.bind(server)

  Object.assign(server, {
    listen (options: ListenOptions) {
      if (options.host === 'localhost') dns.lookup('localhost', { all: true }, listenOnAll)
      else listen(options)
      return server

      async function listenOnAll (_error: unknown, addresses: dns.LookupAddress[] = []) {
        let { port = 0 } = options
        for (const { address } of addresses.slice(1)) port = await listenBeside(address, port)
        listen({ ...options, port })
      }
    }
  })

  /** Passes the connections of another address to the server. Like Fastify, it ignores an address that cannot be used. */
  async function listenBeside (host: string, port: number) {
    const beside = net.createServer({ allowHalfOpen: true, noDelay: true }, socket => server.emit('connection', socket))
    try {
      await once(beside.listen({ host, port }), 'listening')
    } catch {
      return port
    }
    server.once('error', () => beside.close()) // the server itself cannot listen
    closeTogether(beside)
    return (beside.address() as AddressInfo).port
  }

  /** Makes the server wait for the connections of the other address when it closes. */
  function closeTogether (beside: net.Server) {
    const close = server.close.bind(server)
    const closed = once(beside, 'close')
    server.close = callback => {
      beside.close()
      return close(error => closed.then(() => callback?.(error)))
    }
  }
}
