type Done = (error: Error | null, result: { current: number, ttl: number }) => void

/** The most clients that are counted. Then the one that was seen first is forgotten. */
const mostClients = 100_000

/**
 * Counts requests in memory. (The store of @fastify/rate-limit gives simultaneous requests of a client one result,
 * which changes with the last of them, so that all are rejected.)
 */
export class RequestCounts {
  private readonly clients = new Map<string, { current: number, end: number }>()

  incr (client: string, done: Done, timeWindow: number) {
    const { current, ttl } = this.look(client, timeWindow)
    if (current === 0) this.clients.delete(client)
    this.clients.set(client, { current: current + 1, end: Date.now() + ttl })
    const [first = ''] = this.clients.keys()
    if (this.clients.size > mostClients) this.clients.delete(first)
    done(null, { current: current + 1, ttl })
  }

  read (client: string, done: Done, timeWindow: number) {
    done(null, this.look(client, timeWindow))
  }

  child () {
    return this
  }

  private look (client: string, timeWindow: number) {
    const { current, end } = this.clients.get(client) ?? { current: 0, end: 0 }
    const ttl = end - Date.now()
    return ttl > 0 ? { current, ttl } : { current: 0, ttl: timeWindow }
  }
}
