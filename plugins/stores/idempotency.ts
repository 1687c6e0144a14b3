import { hash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { IdempotencyKeyInUseError, IdempotencyKeyReusedError, StoreUnavailableError } from './errors.js'
import type { HasId, NewRecord } from './store.js'

/** How long a key is valid, in milliseconds. */
const lifetime = 24 * 60 * 60 * 1000
/** Maximum number of keys in memory. When there are more, the oldest are removed. */
const mostInMemory = 20_000

/** The first use of a key: a digest of the record, and the id of the record. */
export interface KeyUse {
  digest: string
  id: number
}

/** The SHA-256 digest of a text. */
export function digestOf (text: string) {
  return hash('sha256', text, 'base64url')
}

/** Keys that were used before this time are expired. */
export function expiredBefore () {
  return Date.now() - lifetime
}

/** The id of the record that a key has created, if any. Throws if that record was different. */
export function previousId (use: KeyUse | undefined, digest: string) {
  if (use && use.digest !== digest) throw new IdempotencyKeyReusedError()
  return use?.id
}

/**
 * Makes a call with a key wait for another call with the same key, as a call on another instance does. If the other one takes
 * longer than the timeout, or is not answered, its key is still in use.
 */
export function oneCallPerKey<T extends HasId> (append: (record: NewRecord<T>, key?: string) => Promise<string>, timeout: number): typeof append {
  const inUse = new Map<string, Promise<unknown>>()

  return async function appendOneAtATime (record, key) {
    if (key === undefined) return append(record)
    const deadline = Date.now() + timeout
    for (let other = inUse.get(key); other; other = inUse.get(key)) {
      const isOver = await Promise.race([other.then(() => false, error => error instanceof StoreUnavailableError), sleep(deadline - Date.now(), true, { ref: false })])
      if (isOver) throw new IdempotencyKeyInUseError()
    }
    const call = append(record, key).finally(() => { inUse.delete(key) })
    inUse.set(key, call)
    return call
  }
}

/** How often expired keys are removed from a database, in milliseconds. */
const cleanupInterval = 60_000

/** Removes expired keys from a database in regular intervals. The function removes some of them and returns how many. */
export function keyCleanup (removeSome: () => Promise<number>) {
  const stopping = new AbortController()
  let removing = Promise.resolve()
  const timer = setInterval(function startRemoval () {
    removing = removeExpired().catch(() => {}) // the next interval tries again
  }, cleanupInterval).unref()

  return {
    /** Waits for a removal that is in progress. */
    async stop () {
      stopping.abort()
      clearInterval(timer)
      await removing
    }
  }

  async function removeExpired () {
    while (!stopping.signal.aborted && await removeSome() > 0);
  }
}

/** The idempotency keys of a collection in memory. */
export function memoryKeys () {
  const uses = new Map<string, KeyUse & { at: number }>()

  return {
    get (key: string) {
      const use = uses.get(key)
      return use && use.at >= expiredBefore() ? use : undefined
    },

    set (key: string, use: KeyUse) {
      uses.delete(key) // a Map keeps the order of insertion
      uses.set(key, { ...use, at: Date.now() })
      for (const [oldest] of uses) {
        if (uses.size <= mostInMemory) break
        uses.delete(oldest)
      }
    }
  }
}
