import type { KeyUse } from './facts.js'

/** How long a key is valid, in milliseconds. */
const lifetime = 24 * 60 * 60 * 1000
/** How many keys, and characters of their responses, are kept in memory. Then the oldest are removed. */
const mostInMemory = 20_000
const mostCharacters = 50_000_000
/** How often expired keys are removed from a database, in milliseconds, and how many at once. */
const cleanupInterval = 60_000
export const keysAtOnce = 1000

/** Keys that were used before this time are expired. */
export function expiredBefore () {
  return Date.now() - lifetime
}

/** Removes expired keys from a database in regular intervals. Returns a function that stops it. */
export function keyCleanup (removeSome: () => Promise<number>) {
  let removing: Promise<void> | undefined
  const timer = setInterval(function startRemoval () {
    // If it fails, the next interval tries again.
    removing ??= removeExpired().catch(() => {}).finally(() => { removing = undefined })
  }, cleanupInterval).unref()

  return async function stop () {
    clearInterval(timer)
    await removing
  }

  async function removeExpired () {
    while (await removeSome() === keysAtOnce);
  }
}

/** The keys of a collection in memory. */
export function memoryKeys () {
  const uses = new Map<string, KeyUse & { at: number }>()
  let characters = 0

  return {
    get (key: string) {
      const use = uses.get(key)
      return use && use.at >= expiredBefore() ? use : undefined
    },

    set (use: KeyUse) {
      remove(use.key) // a Map keeps the order of insertion
      uses.set(use.key, { ...use, at: Date.now() })
      characters += use.response.length
      for (const key of uses.keys()) {
        if (uses.size <= mostInMemory && characters <= mostCharacters) break
        remove(key)
      }
    }
  }

  function remove (key: string) {
    characters -= uses.get(key)?.response.length ?? 0
    uses.delete(key)
  }
}
