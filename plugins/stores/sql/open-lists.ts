import { once } from 'node:events'
import type { Readable } from 'node:stream'

/**
 * While another list needs a connection, a list that its client reads more slowly than this can be closed, in bytes per second.
 * The longer a list is open, the faster it must be, so that a few clients that are just fast enough cannot hold all connections.
 */
const minRate = 64 * 1024

/** The lists of an engine that are being read, and how fast. */
export function openLists (timeout: number) {
  /** A list has this time until it must be fast. A list that waits for a connection waits no longer than half of it. */
  const grace = 2 * timeout
  const lists = new Map<Readable, { rate (): number, isSlow (): boolean }>()
  return { track, closeSlowest }

  /** Adds a list. The returned function notes the size of each piece that the client begins to read. */
  function track (list: Readable) {
    const opened = Date.now()
    let [since, bytes] = [opened, 0]
    const age = () => Date.now() - since
    const rate = () => bytes / age() * 1000
    const isSlow = () => age() > grace && rate() < minRate * (Date.now() - opened) / grace
    lists.set(list, { rate, isSlow })
    list.once('close', () => lists.delete(list))
    return function onPiece (size: number) {
      // A list that was read fast enough gets no advantage later.
      if (age() > grace && !isSlow()) [since, bytes] = [Date.now(), 0]
      bytes += size
    }
  }

  /** Closes the list that is read most slowly, if it is too slow. */
  async function closeSlowest () {
    const slow = [...lists].filter(([, { isSlow }]) => isSlow())
    const [[slowest] = []] = slow.sort(([, one], [, other]) => one.rate() - other.rate())
    if (slowest) await once(slowest.destroy(new Error('The client reads the list too slowly')), 'close').catch(() => {})
  }
}
