import { hash } from 'node:crypto'
import { IdempotencyKeyInUseError, IdempotencyKeyReusedError, type HasId, type Store } from './store.js'

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

/** Rejects a call with a key while another call with the same key is in progress. */
export function oneCallPerKey<T extends HasId> (append: Store<T>['append']): Store<T>['append'] {
  const inUse = new Set<string>()

  return function appendOneAtATime (record, key) {
    return key === undefined ? append(record) : appendWithKey(record, key)
  }

  async function appendWithKey (...[record, key]: Required<Parameters<typeof append>>) {
    if (inUse.has(key)) throw new IdempotencyKeyInUseError()
    inUse.add(key)
    try {
      return await append(record, key)
    } finally {
      inUse.delete(key)
    }
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
