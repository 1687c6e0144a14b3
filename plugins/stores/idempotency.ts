import { createHash } from 'node:crypto'
import { IdempotencyKeyInUseError, IdempotencyKeyReusedError, type HasId, type Store } from './store.js'

/** How long a key stands for the request that came with it first, in milliseconds. */
const lifetime = 24 * 60 * 60 * 1000
/** How many keys are kept in memory; when there are more, the oldest are forgotten before their time. */
const mostInMemory = 20_000

/** What a key stands for: the record that was asked for, in short, and the id that it has. */
export interface KeyUse {
  digest: string
  id: number
}

/** Stands for a text, such as the JSON of a record, and tells nothing of it. */
export function digestOf (text: string) {
  return createHash('sha256').update(text).digest('base64url')
}

/** The moment before which a key is forgotten. */
export function expiredBefore () {
  return Date.now() - lifetime
}

/** The id that a key has given already, if any; but not to another record. */
export function previousId (use: KeyUse | undefined, digest: string) {
  if (use && use.digest !== digest) throw new IdempotencyKeyReusedError()
  return use?.id
}

/** Fails a call with a key while another call with it is under way. */
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

/** The keys of a collection in memory. */
export function memoryKeys () {
  const uses = new Map<string, KeyUse & { at: number }>()

  return {
    get (key: string) {
      const use = uses.get(key)
      return use && use.at >= expiredBefore() ? use : undefined
    },

    set (key: string, use: KeyUse) {
      uses.delete(key) // so that it is the newest
      uses.set(key, { ...use, at: Date.now() })
      for (const [oldest] of uses) {
        if (uses.size <= mostInMemory) break
        uses.delete(oldest)
      }
    }
  }
}
