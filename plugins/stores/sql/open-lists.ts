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
  const lists = new Map<Readable, Pace>()
  return { track, closeSlowest }

  /** Adds a list. The returned function notes the size of each piece that the client begins to read. */
  function track (list: Readable) {
    const pace = { opened: Date.now(), since: Date.now(), bytes: 0 }
    lists.set(list, pace)
    list.once('close', () => lists.delete(list))
    return function onPiece (bytes: number) {
      // A list that was read fast enough gets no advantage later.
      if (age(pace) > grace && !isSlow(pace)) Object.assign(pace, { since: Date.now(), bytes: 0 })
      pace.bytes += bytes
    }
  }

  /** Closes the list that is read most slowly, if it is too slow. */
  async function closeSlowest () {
    const slow = [...lists].filter(([, pace]) => isSlow(pace))
    const [[slowest] = []] = slow.sort(([, one], [, other]) => rate(one) - rate(other))
    if (slowest) await once(slowest.destroy(new Error('The client reads the list too slowly')), 'close').catch(() => {})
  }

  function isSlow (pace: Pace) {
    return age(pace) > grace && rate(pace) < minRate * (Date.now() - pace.opened) / grace
  }
}

/** How many bytes of a list its client has read since some time. */
interface Pace {
  opened: number
  since: number
  bytes: number
}

function age ({ since }: Pace) {
  return Date.now() - since
}

function rate (pace: Pace) {
  return pace.bytes / age(pace) * 1000
}
