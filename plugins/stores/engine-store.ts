import { AsyncResource } from 'node:async_hooks'
import { again, batches, type Outcome } from './batches.js'
import { changeAll, type ChangeCall } from './changes.js'
import { referrersOf, type Collection } from './collection.js'
import type { Engine, EngineOptions, Reader, Transaction } from './engine.js'
import { insertAll, insertOf, type InsertCall } from './inserts.js'
import { listsOf } from './lists.js'
import type { Id, JsonStore, MaybePromise } from './store.js'
import { summariesOf } from './summary.js'
import { within } from './time-limits.js'

type StoreOptions = Pick<EngineOptions, 'collections' | 'timeout'>

/** How a store writes. */
interface Writer {
  insert (call: InsertCall): MaybePromise<string | undefined>
  change (call: ChangeCall): MaybePromise<string | undefined>
}

/** The store of a collection. Calls that arrive together are one transaction. */
export function engineStore (engine: Engine, collection: Collection, options: StoreOptions): JsonStore {
  const { timeout, collections } = options
  const insertLater = batches<InsertCall>((calls, deadline) =>
    engine.transaction(transaction => insertAll(transaction, collection, calls), { deadline, collection }),
  { timeout, recordsIn: ({ records }) => records.length })
  const changeLater = batches<ChangeCall>((calls, deadline) => {
    const referrers = referrersOf(collections, collection)
    const work = (transaction: Transaction) => changeAll(transaction, collection, referrers, calls)
    return engine.transaction(work, { deadline, collection })
  }, { timeout })
  return storeOn(collection, engine.reader, {
    insert: call => within(timeout, insertLater(call)),
    change: call => within(timeout, changeLater(call))
  }, timeout)
}

/** The store of a collection in a transaction, each of whose calls is decided at once. */
export function transactionStore (
  transaction: Transaction,
  collection: Collection,
  { collections, timeout }: StoreOptions
): JsonStore {
  const referrers = referrersOf(collections, collection)
  return storeOn(collection, transaction, {
    insert: call => settled(insertAll(transaction, collection, [call])),
    change: call => settled(changeAll(transaction, collection, referrers, [call]))
  }, timeout)

  async function settled (outcomes: Promise<Outcome[]>) {
    const [outcome] = await outcomes
    await transaction.written()
    if (outcome === undefined || outcome === again) throw new Error('A single call must have an outcome')
    if ('error' in outcome) throw outcome.error
    return outcome.response
  }
}

/** Whether a record can have this id. Databases cannot compare others. */
function isId (id: Id) {
  return typeof id === 'string' ? !id.includes('\0') : Number.isSafeInteger(id)
}

function storeOn (collection: Collection, reader: Reader, writer: Writer, timeout: number): JsonStore {
  const select = listsOf(collection, reader)
  const summarize = summariesOf(collection, reader)
  return {
    append: async (given, key) => await writer.insert(insertOf(collection, given, key)) as string,
    first: id => isId(id) ? within(timeout, reader.first(collection, id)) : undefined,
    select: query => within(timeout, select(query)),
    async change (id, changeOf) {
      if (!isId(id)) return
      // It runs in the async context of its call, not in that of the batch.
      const context = new AsyncResource('change')
      return writer.change({ id, change: (...current) => context.runInAsyncScope(changeOf, undefined, ...current) })
    },
    summarize: query => within(timeout, summarize(query)),
    count: async ({ where, limit }) => within(timeout, reader.count(collection, collection.plan({ where, limit })))
  }
}
