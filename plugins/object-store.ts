import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { RecordRules } from './definition/record-rules.js'
import type { AnyQuery } from '../schemas/query.js'
import type { AnyRecord, HasId, JsonStore, OwnStore, Store } from './stores/store.js'

/** A store for code of the host. */
export function objectStore<T extends HasId> (store: JsonStore, { checkNew, checkChanged }: RecordRules): Store<T> {
  const parsed = (json?: string) => json === undefined ? undefined : JSON.parse(json)
  return {
    append: async (given: object, key?: Parameters<JsonStore['append']>[1]) =>
      parsed(await store.append(checkNew(structuredClone(given)) as AnyRecord, key)),
    first: async id => parsed(await store.first(id)),
    async select (query) {
      const { list, next } = await store.select(query as AnyQuery)
      return { records: JSON.parse(list instanceof Readable ? await text(list) : String(list)), next }
    },
    async change (id, change) {
      return parsed(await store.change(id, function checked (current) {
        const changed = change(structuredClone(current) as T)
        return changed && checkChanged(current, structuredClone(changed))
      }))
    },
    count: query => store.count(query as AnyQuery)
  }
}

/** A store of a host for our routes, which send JSON. */
export function jsonStore (store: OwnStore<HasId>): JsonStore {
  const json = (value: unknown) => value === undefined || value === null ? undefined : JSON.stringify(value)
  return {
    async append (given, key) {
      const records = await store.append([given].flat() as HasId[], key)
      return JSON.stringify(Array.isArray(given) ? records : records[0])
    },
    first: async id => json(await store.first(id)),
    async select (query) {
      const { records, next } = await store.select(query as object)
      return { list: JSON.stringify(records), next }
    },
    async change (id, change) {
      return json(await store.change(id, record => change(record, JSON.stringify(record)) as HasId))
    },
    count: async query => store.count(query as object)
  }
}
