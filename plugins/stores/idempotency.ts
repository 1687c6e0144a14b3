import { hash } from 'node:crypto'
import { IdempotencyKeyInUseError, IdempotencyKeyReusedError, StoreUnavailableError } from './errors.js'
import { accessOf } from '../schema/access.js'
import { numbered, type HasId, type NewRecord, type StoreDefinition } from './store.js'

/** How long a key is valid, in milliseconds. */
const lifetime = 24 * 60 * 60 * 1000
/** Maximum number of keys in memory. When there are more, the oldest are removed. */
const mostInMemory = 20_000

/** The first use of a key: a digest of the record or the records, and the id of the first one. */
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

/** A call of `append`, or of `appendAll`, which has a transaction of its own. With a key, there is a digest. */
export interface Insert<T extends HasId> {
  records: readonly NewRecord<T>[]
  isMany: boolean
  key?: string | undefined
  digest?: string
}

/**
 * What identifies a call with a key, and what a retry gets. The readOnly times of a collection do not identify it, because a hook
 * sets them for each request. If there are some, a retry gets the stored records. They can be found if no two have the same id.
 */
export function retriesOf<T extends HasId> ({ schema, idSource }: Pick<StoreDefinition<T>, 'schema' | 'idSource'>, encode: (record: object) => string) {
  const has = accessOf(schema)
  const isTime = (field: unknown) => has(field, 'readOnly') && ['date', 'time', 'date-time'].some(format => has(field, 'format', format))
  const times = idSource === 'server' ? Object.entries(schema.properties).filter(([, field]) => isTime(field)).map(([name]) => [name, undefined] as const) : []
  const hasTimes = times.length > 0
  return {
    hasTimes,

    digestOf ({ records, isMany }: Insert<T>) {
      return digestOf(jsonOf(records.map(record => encode(hasTimes ? { ...record, ...Object.fromEntries(times) } : record)), isMany))
    },

    /** The records that a key has created, from its first id on. */
    recordsOf ({ records }: Insert<T>, firstId: number, stored: (id: number) => string | undefined) {
      return numbered(records, firstId).map(record => (hasTimes && stored(record.id)) || encode(record))
    }
  }
}

/** The JSON of a record, or of an array of records. */
export function jsonOf (records: readonly string[], isMany: boolean) {
  const json = records.join()
  return isMany ? `[${json}]` : json
}

/** The first id of the records that a key has created, if any. Throws if those records were different. */
export function previousId (use: KeyUse | undefined, digest: string) {
  if (use && use.digest !== digest) throw new IdempotencyKeyReusedError()
  return use?.id
}

/**
 * The methods of a store that append records. Calls with the same key and the same records at the same time are one call. A
 * call with other records waits for it, as a call on another instance does. If the other one is not answered, its key is
 * still in use.
 */
export function oneCallPerKey<T extends HasId> (digestOf: (call: Insert<T>) => string, insert: (call: Insert<T>) => Promise<string[]>) {
  const inUse = new Map<string, { digest: string, call: Promise<string> }>()

  return {
    append: (record: NewRecord<T>, key?: string) => appendOneAtATime({ records: [record], isMany: false, key }),
    appendAll: (records: readonly NewRecord<T>[], key?: string) => appendOneAtATime({ records, isMany: true, key })
  }

  async function append (given: Insert<T>) {
    return jsonOf(await insert(given), given.isMany)
  }

  async function appendOneAtATime (given: Insert<T>) {
    const { key } = given
    if (key === undefined) return append(given)
    const digest = digestOf(given)
    const other = inUse.get(key)
    if (other?.digest === digest) return other.call
    const call = other ? other.call.then(refuse, retry) : append({ ...given, digest })
    const use = { digest, call }
    inUse.set(key, use)
    return call.finally(() => { if (inUse.get(key) === use) inUse.delete(key) })

    function refuse (): never {
      throw new IdempotencyKeyReusedError()
    }

    function retry (error: unknown) {
      if (error instanceof StoreUnavailableError || error instanceof IdempotencyKeyInUseError) throw new IdempotencyKeyInUseError()
      return append({ ...given, digest })
    }
  }
}

/** How often expired keys are removed from a database, in milliseconds. */
const cleanupInterval = 60_000

/**
 * Removes expired keys from a database in regular intervals. The function removes some of them and returns how many. Returns a
 * function that stops, and waits for a removal that is in progress.
 */
export function keyCleanup (removeSome: () => Promise<number>) {
  const stopping = new AbortController()
  let removing = Promise.resolve()
  const timer = setInterval(function startRemoval () {
    removing = removeExpired().catch(() => {}) // the next interval tries again
  }, cleanupInterval).unref()

  return async function stop () {
    stopping.abort()
    clearInterval(timer)
    await removing
  }

  async function removeExpired () {
    while (!stopping.signal.aborted && await removeSome() > 0);
  }
}

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
      const [oldest = key] = uses.keys()
      if (uses.size > mostInMemory) uses.delete(oldest)
    }
  }
}
