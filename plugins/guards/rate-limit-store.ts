import type { FastifyRateLimitStore } from '@fastify/rate-limit'

/** Maximum number of clients. When there are more, the oldest are removed. */
const maxClients = 100_000

type Done = Parameters<FastifyRateLimitStore['incr']>[1]

/**
 * Counts requests in memory. The `LocalStore` of @fastify/rate-limit returns the counter object itself, so that
 * simultaneous requests all see the highest count.
 */
export class MemoryStore implements FastifyRateLimitStore {
  /** In the order of their start. */
  readonly #windows = new Map<string, { current: number, end: number }>()

  incr (key: string, done: Done, timeWindow: number) {
    const now = Math.round(performance.now()) // a fraction could make the time window a second longer
    const window = this.#open(key, now) ?? this.#start(key, now, timeWindow)
    window.current++
    done(null, { current: window.current, ttl: window.end - now })
  }

  /** Returns the count without changing it. */
  read (key: string, done: Done) {
    const now = Math.round(performance.now())
    const { current, end } = this.#open(key, now) ?? { current: 0, end: now }
    done(null, { current, ttl: end - now })
  }

  /** A separate store for a route with its own limit. */
  child () {
    return new MemoryStore()
  }

  #open (key: string, now: number) {
    const window = this.#windows.get(key)
    return window && window.end > now ? window : undefined
  }

  #start (key: string, now: number, timeWindow: number) {
    const window = { current: 0, end: now + timeWindow }
    this.#windows.delete(key)
    for (const [oldest, { end }] of this.#windows) {
      if (end > now && this.#windows.size < maxClients) break
      this.#windows.delete(oldest)
    }
    this.#windows.set(key, window)
    return window
  }
}
