import { Readable } from 'node:stream'
import type pg from 'pg'
import { StartupError } from '../../startup.js'
import { batch, inParts } from '../batch.js'
import { IdempotencyKeyInUseError, IdempotencyKeyReusedError, NoIdLeftError, rejection } from '../errors.js'
import { digestOf, expiredBefore, keyCleanup, oneCallPerKey } from '../idempotency.js'
import { pageReader } from '../sql/lists.js'
import { migrate, type Table } from '../sql/migrations.js'
import type { Row } from '../sql/table.js'
import { hasId, type Engine, type EngineOptions, type HasId, type NewRecord, type Store, type StoreDefinition } from '../store.js'
import { codeOf, connectPostgres } from './connections.js'
import { postgresTable, postgresTables, probe, statement } from './statements.js'

/** A call of `append`. A record with a key has a digest. */
type Insert<T extends HasId> = { record: NewRecord<T>, key?: string, digest?: string }

/** A call of `change`. */
type Change<T extends HasId> = { id: number, change (current: string): T | undefined }

/** Opens a PostgreSQL database. Any number of instances can share it. */
export async function postgres (url: string, options: EngineOptions): Promise<Engine> {
  const { timeout, onWarning } = options
  /** What each collection needs when the engine starts, and the statements that the role must be allowed to execute. */
  const opened: (Table & { statements: pg.QueryConfig[] })[] = []
  const { start, read, write, openSnapshot, withTimeout, usage, close } = await connectPostgres(url, options, prepare)
  const cleanup = keyCleanup(async function removeExpiredKeys () {
    const text = `
      delete from idempotency_keys where (collection, key) in (
        select collection, key from idempotency_keys where at < ${expiredBefore()} limit 1000 for update skip locked)`
    return Number((await write({ text })).rowCount)
  })

  return { open, start, check, connections: usage, close: () => cleanup.stop().then(close) }

  function open<T extends HasId> (collection: StoreDefinition<T>): Required<Store<T>> {
    const { schema, seed } = collection
    const table = postgresTable(collection, timeout)
    const selectShort = async (...values: number[]) => (await read({ ...table.selectPiece, values })).rows
    const readPage = pageReader(table, selectShort, openSnapshot, timeout)
    /** The process on the server that executes the last insert. */
    let inserting: number | undefined
    const [insert, insertAndNumber] = [inserter(false), inserter(true)]

    const readVersion = batch(async function readOnce (calls: undefined[]) {
      const version = digestOf(JSON.stringify((await read(table.selectVersion)).rows))
      return calls.map(() => version)
    }, { concurrency: 2 })

    // Another program may have stored what is not readable, so only the requests for it fail.
    const selectFirst = batch<number, string | undefined>(ids => inParts(ids, async function selectAll (part) {
      return (await firstRows(part)).map(row => row && table.encodeRow(row))
    }), { concurrency: 2 })

    const change = batch(async function changeAll (calls: Change<T>[]) {
      const outcomes = new Map<Change<T>, string | undefined | Error>()
      const tried = new Map<Change<T>, Row>()
      // A call is left over if another one has changed its record meanwhile, in this batch or on another instance.
      for (let left = calls; left.length > 0; left = calls.filter(call => !outcomes.has(call))) {
        const firsts = left.filter(({ id }, n) => left.findIndex(call => call.id === id) === n)
        const rows = await firstRows(firsts.map(({ id }) => id))
        const changed = firsts.flatMap((call, n) => {
          const row = rows[n]
          try {
            if (row && isSame(row, tried.get(call))) throw rejection()
            if (row) {
              const current = table.encodeRow(row)
              const record = call.change(current)
              return { call, row, record, json: record ? table.encode(table.checkText(record)) : current }
            }
            outcomes.set(call, undefined)
          } catch (error) {
            outcomes.set(call, error as Error)
          }
          return []
        })
        const written = await inParts(changed, async part => {
          const { rows } = await write({ ...table.change, values: [...columnsOf(part), ...[-2, -1].map(n => part.map(({ row }) => row.at(n))), part.map(({ record }) => !record)] })
          const positions = new Set(rows.flat())
          return part.map(({ row, json }) => positions.has(row.at(-2)) ? json : undefined)
        })
        for (const [n, { call, row }] of changed.entries()) {
          if (written[n] !== undefined) outcomes.set(call, written[n])
          tried.set(call, row)
        }
      }
      return calls.map(call => outcomes.get(call))
    })

    opened.push({
      ...table.created,
      fill: query => query(table.insertion(false, false), columnsOf(seed.map(record => ({ record })))),
      statements: [
        { text: table.insertion(true, true), values: [...columnsOf([], true), 0, 0] },
        { ...table.selectPiece, values: [0, 1] },
        table.selectVersion,
        { ...table.change, values: [...columnsOf([]), [], [], []] }
      ]
    })

    return {
      schema,
      append: oneCallPerKey<T>(table.encode, async function append (record, key, digest) {
        table.checkText(record)
        const call = (hasId(record) ? insert : insertAndNumber)({ record, key, digest })
        return withTimeout(call, undefined, key === undefined ? undefined : () => rejectKeyInUse(key))
      }),
      first: async id => Number.isSafeInteger(id) ? withTimeout(selectFirst(id)) : undefined,
      list: async () => (await page(Infinity)).list,
      page,
      change: async (id, changeOf) => Number.isSafeInteger(id) ? withTimeout(change({ id, change: changeOf })) : undefined,
      size: async () => Number((await withTimeout(read({ text: table.sizeSelection }))).rows[0]),
      version: () => withTimeout(readVersion(undefined))
    }

    /** The first row with each of these ids: values, position, and row version. */
    async function firstRows (ids: number[]) {
      const { rows } = await read({ ...table.selectFirsts, values: [ids] })
      const byPlace = new Map(rows.map(row => [row.at(-1), row.slice(0, -1)]))
      return ids.map((_, n) => byPlace.get(n + 1))
    }

    async function page (limit: number, after?: number) {
      const pending = readPage(limit, after)
      try {
        return await withTimeout(pending)
      } catch (error) {
        pending.then(({ list }) => { if (list instanceof Readable) list.destroy() }, () => {})
        throw error
      }
    }

    /** Combines inserts into batches. A retry with an idempotency key is answered with the record that the key has created. */
    function inserter (isNumbered: boolean) {
      const [plain, keyed] = [statement(table.insertion(isNumbered, false)), statement(table.insertion(isNumbered, true))]

      return batch(async function insertAll (inserts: Insert<T>[]): Promise<(string | Error)[]> {
        const outcomes = await inParts(inserts, async part => {
          const isKeyed = part.some(({ key }) => key !== undefined)
          const values = [...columnsOf(part, isKeyed), ...isKeyed ? [Date.now(), expiredBefore()] : []]
          const { rows } = await write({ ...isKeyed ? keyed : plain, values }, ({ processID }) => { inserting = processID })
          const rowsByPlace = new Map(rows.map(row => [row[0], row]))
          return part.map(({ record }, n) => {
            const [, id, isInserted] = isKeyed || isNumbered ? rowsByPlace.get(n + 1) ?? [] : [n, (record as T).id, true]
            if (id === undefined) return new NoIdLeftError()
            return isInserted ? table.encode({ ...record, id }) : undefined
          })
        })
        const previous = await responsesOf(inserts.filter((_, n) => outcomes[n] === undefined))
        return outcomes.map(outcome => outcome ?? previous.shift() as string | Error)
      }, { sizeOf: ({ record }: Insert<T>) => table.sizeOf(record) })
    }

    /** Rejects if the last insert waits, and another transaction, of any instance, is using the key. */
    async function rejectKeyInUse (key: string): Promise<never> {
      const { cause } = await write({ ...table.probeKey, values: [key, inserting] }).catch(error => error)
      if (codeOf(cause) === '55P03') throw new IdempotencyKeyInUseError() // it has waited for a lock
      return new Promise(() => {})
    }

    /** The responses to inserts whose keys have been used before. */
    async function responsesOf (inserts: Insert<T>[]) {
      if (inserts.length === 0) return []
      const { rows } = await write({ ...table.confirmUses, values: [inserts.map(({ key }) => key), expiredBefore()] })
      const uses = new Map(rows.map(([key, digest, id]) => [key, { digest, id }]))
      return inserts.map(({ record, key, digest }) => {
        const use = uses.get(key)
        if (use === undefined) return new IdempotencyKeyInUseError()
        return use.digest === digest ? table.encode({ ...record, id: use.id }) : new IdempotencyKeyReusedError()
      })
    }

    /** The columns of records as arrays, with a column for the keys and one for the digests. */
    function columnsOf (inserts: { record?: object, key?: string, digest?: string }[], isKeyed = false): unknown[][] {
      const rows = inserts.map(({ record = {}, key, digest }) => [...table.valuesOf(record), key, digest])
      return Array.from({ length: table.fields.length + (isKeyed ? 2 : 0) }, (_, n) => rows.map(row => row[n]))
    }
  }

  /** Creates or upgrades all tables, and checks the privileges of the role. */
  async function prepare (client: pg.Client) {
    const query = async (text: string, values?: unknown[]) => (await client.query<Row>({ text, values, rowMode: 'array' })).rows
    const [[encoding, commit, standbys, collections] = []] = await query(`
      select current_setting('server_encoding'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), to_regclass('collections')`)
    if (encoding !== 'UTF8') throw new StartupError(`The database in the option store has the encoding ${encoding}. Create a database with the encoding UTF8.`)
    if (commit === 'off') onWarning?.('synchronous_commit is off: PostgreSQL can lose acknowledged writes when it crashes')
    if (commit === 'local' && standbys) onWarning?.('synchronous_commit is local: a failover can lose acknowledged writes, because they do not wait for the standby')
    await migrate(query, collections === null, postgresTables, opened)
    await query('explain delete from idempotency_keys')
    for (const { text, values } of opened.flatMap(({ statements }) => statements)) await query(`explain ${text}`, values)
  }

  async function check () {
    const { rows: [[lacking] = []] } = await withTimeout(write({ text: probe(opened, timeout) }), timeout)
    if (lacking) throw new Error(`The role in the option store lacks a privilege for the table ${lacking}`)
  }
}

/** Returns whether a row is the same as in the last attempt to change it. Then the database does not allow the change. */
function isSame (row: Row, tried?: Row) {
  return tried !== undefined && String(row.slice(-2)) === String(tried.slice(-2)) // position and row version
}
