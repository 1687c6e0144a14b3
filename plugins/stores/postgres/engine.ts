import { Readable } from 'node:stream'
import type pg from 'pg'
import { StartupError } from '../../startup.js'
import { batch, Failure, inParts } from '../batch.js'
import { IdempotencyKeyInUseError, IdempotencyKeyReusedError, NoIdLeftError } from '../errors.js'
import { digestOf, expiredBefore, keyCleanup, oneCallPerKey, retriesOf, type Insert } from '../idempotency.js'
import { listReader } from '../sql/lists.js'
import { migrate } from '../sql/migrations.js'
import type { Statement } from '../sql/queries.js'
import type { Row, Table } from '../sql/table.js'
import { hasId, numbered, type Engine, type EngineOptions, type HasId, type Store, type StoreDefinition } from '../store.js'
import { changesInOrder } from './changes.js'
import { conflictFinder } from './conflicts.js'
import { connectPostgres } from './connections.js'
import { postgresTable, probe, statement } from './statements.js'
import { changeCounters, postgresDatabase, postgresTables } from './tables.js'

type Connections = Awaited<ReturnType<typeof connectPostgres>>

/** The table of a collection, and the statements that the role must be allowed to execute. */
type Opened = Table & { statements: pg.QueryConfig[] }

/** Opens a PostgreSQL database. Any number of instances can share it. */
export async function postgres (url: string, options: EngineOptions): Promise<Engine> {
  const { timeout, onWarning } = options
  const opened: Opened[] = []
  const connections = await connectPostgres(url, options, prepare)
  const { start, write, withTimeout, usage, close } = connections
  const stopCleanup = keyCleanup(async function removeExpiredKeys () {
    const text = `
      delete from idempotency_keys where (collection, key) in (
        select collection, key from idempotency_keys where at < ${expiredBefore()} limit 1000 for update skip locked)`
    return Number((await write({ text })).rowCount)
  })

  return { open: collection => openStore(collection, connections, opened, options), start, check, connections: usage, close: () => stopCleanup().then(close) }

  /** Creates or upgrades all tables, and checks the privileges of the role. */
  async function prepare (client: pg.Client) {
    const query = async (text: string, values?: unknown[]) => (await client.query<Row>({ text, values, rowMode: 'array' })).rows
    const [[encoding, commit, standbys, collections, hasOneCounter] = []] = await query(`
      select current_setting('server_encoding'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), to_regclass('collections'),
      (select pg_has_role(relowner, 'usage') and relnatts = 2 from pg_class where oid = to_regclass('collection_changes'))`)
    if (encoding !== 'UTF8') throw new StartupError(`The database in the option store has the encoding ${encoding}. Create a database with the encoding UTF8.`)
    if (commit === 'off') onWarning?.('synchronous_commit is off: PostgreSQL can lose acknowledged writes when it crashes')
    if (commit === 'local' && standbys) onWarning?.('synchronous_commit is local: a failover can lose acknowledged writes, because they do not wait for the standby')
    if (hasOneCounter) for (const sql of changeCounters) await query(sql) // of an older release
    await migrate(postgresDatabase(query, sql => client.query(sql)), collections === null, postgresTables, opened, onWarning)
    await query('explain delete from idempotency_keys')
    for (const { text, values } of opened.flatMap(({ statements }) => statements)) await query(`explain ${text}`, values)
  }

  async function check () {
    const { rows: [[lacking] = []] } = await withTimeout(write({ text: probe(opened, timeout) }), Date.now() + timeout)
    if (lacking) throw new Error(`The role in the option store lacks a privilege for the table ${lacking}`)
  }
}

/** Opens the store of a collection, and adds its table to the others. */
function openStore<T extends HasId> (collection: StoreDefinition<T>, connections: Connections, opened: Opened[], options: EngineOptions): Required<Store<T>> {
  const { ofCollection, openSnapshot, withTimeout } = connections
  const { timeout } = options
  const { schema, seed } = collection
  const table = postgresTable(collection, timeout)
  const { read, write } = ofCollection()
  const run = async ({ text, values, isPlain }: Statement) => (await read({ ...isPlain ? statement(text) : { text }, values })).rows
  const { conflictOf, conflictsInInserts, lookUp } = conflictFinder(collection, table, opened, read)
  const lists = listReader<T>(table, { run, openSnapshot, timeout })
  const changeInOrder = changesInOrder({ table, firstRows, write, conflictOf, lookUp, timeout })

  const readVersion = batch(async function readOnce (calls: undefined[]) {
    const version = digestOf(JSON.stringify((await read(table.selectVersion)).rows))
    return calls.map(() => version)
  }, { concurrency: 2 })

  // Another program may have stored what is not readable, so only the requests for it fail.
  const selectFirst = batch<number, string | undefined>(ids => inParts(ids, async function selectAll (part) {
    return (await firstRows(part)).map(row => row && table.encodeRow(row))
  }), { concurrency: 2 })

  const retries = retriesOf(collection, table.encode)
  const inserterOf = (isNumbered: boolean) => inserter(isNumbered, table, write, conflictsInInserts, retries, selectFirst)
  const [insert, insertAndNumber] = [inserterOf(false), inserterOf(true)]

  opened.push({
    ...table.created,
    fill: query => query(table.insertion(false, false), table.columnsOf(seed.map(record => ({ record })))),
    statements: [
      { text: table.insertion(true, true), values: [...table.columnsOf([], true), 0, 0] },
      table.selectPiece({ plan: table.plan({}) }, 1),
      table.selectVersion,
      { ...table.change, values: [...table.columnsOf([]), [], [], [], 0] }
    ]
  })

  return {
    schema,
    ...oneCallPerKey<T>(retries.digestOf, async function append (call) {
      table.checkTexts(call)
      return withTimeout((call.records.every(hasId) ? insert : insertAndNumber)(call))
    }),
    first: async id => Number.isSafeInteger(id) ? withTimeout(selectFirst(id)) : undefined,
    async change (id, change) {
      const deadline = options.deadline?.() ?? Date.now() + timeout
      return Number.isSafeInteger(id) ? withTimeout(changeInOrder({ id, change, deadline }), deadline) : undefined
    },
    select (query) {
      const pending = lists.select(query)
      return withTimeout(pending).catch(error => {
        pending.then(({ list }) => { if (list instanceof Readable) list.destroy() }, () => {})
        throw error
      })
    },
    count: query => withTimeout(lists.count(query)),
    version: () => withTimeout(readVersion(undefined))
  }

  /** The first row with each of these ids: values, position, row version, and the last transaction that held it. */
  async function firstRows (ids: number[]) {
    const { rows } = await read({ ...table.selectFirsts, values: [ids] })
    const byPlace = new Map(rows.map(row => [row.at(-1), row.slice(0, -1)]))
    return ids.map((_, n) => byPlace.get(n + 1))
  }
}

/** Combines inserts into batches. A retry with an idempotency key is answered with the records that the key has created. */
function inserter<T extends HasId> (isNumbered: boolean, table: ReturnType<typeof postgresTable<T>>, write: ReturnType<Connections['ofCollection']>['write'], conflictsIn: ReturnType<typeof conflictFinder<T>>['conflictsInInserts'], retries: ReturnType<typeof retriesOf<T>>, selectFirst: (id: number) => Promise<string | undefined>) {
  const [plain, keyed] = [statement(table.insertion(isNumbered, false)), statement(table.insertion(isNumbered, true))]

  return batch(async function insertAll (inserts: Insert<T>[]): Promise<(string[] | Failure)[]> {
    const outcomes = await inParts(inserts, insertPart, conflictsIn)
    const previous = await responsesOf(inserts.filter((_, n) => outcomes[n] === undefined))
    return outcomes.map(outcome => outcome ?? previous.shift() as string[] | Failure)
  }, { sizeOf: table.sizeOf })

  /** Inserts records and their keys in one statement. A call whose key is not new has no outcome. */
  async function insertPart (part: Insert<T>[]) {
    const isKeyed = part.some(({ key }) => key !== undefined)
    // All records of a call have its key, and the first one has the digest.
    const given = part.flatMap(({ records, key, digest }) => records.map((record, n) => ({ record, key, digest: n === 0 ? digest : undefined })))
    const values = [...table.columnsOf(given, isKeyed), ...isKeyed ? [Date.now(), expiredBefore()] : []]
    const { rows } = await write({ ...isKeyed ? keyed : plain, values })
    if (isNumbered && rows.length === 0) throw new NoIdLeftError()
    const rowsByPlace = new Map(rows.map(row => [row[0], row]))
    let place = 1
    return part.map(({ records }) => {
      const [, first, isInserted] = rowsByPlace.get(place) ?? [place, 0, true]
      place += records.length
      return isInserted ? numbered(records, Number(first)).map(table.encode) : undefined
    })
  }

  /** The responses to inserts whose keys have been used before. */
  async function responsesOf (inserts: Insert<T>[]) {
    if (inserts.length === 0) return []
    const { rows } = await write({ ...table.confirmUses, values: [inserts.map(({ key }) => key), expiredBefore()] })
    const uses = new Map(rows.map(([key, digest, id]) => [key, { digest, id: Number(id) }]))
    return Promise.all(inserts.map(async insert => {
      const use = uses.get(insert.key)
      if (use === undefined) throw new IdempotencyKeyInUseError()
      if (use.digest !== insert.digest) throw new IdempotencyKeyReusedError()
      const ids = retries.hasTimes ? numbered(insert.records, use.id).map(({ id }) => id) : []
      const stored = new Map(await Promise.all(ids.map(async id => [id, await selectFirst(id)] as const)))
      return retries.recordsOf(insert, use.id, id => stored.get(id))
    }).map(response => response.catch(error => new Failure(error))))
  }
}
