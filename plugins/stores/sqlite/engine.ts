import { withIndex } from '../errors.js'
import { digestOf, expiredBefore, keyCleanup, oneCallPerKey, previousId, retriesOf, type Insert } from '../idempotency.js'
import { listReader } from '../sql/lists.js'
import { migrate, sharedTables } from '../sql/migrations.js'
import { listStatements } from '../sql/queries.js'
import { tableOf, type Row, type Table } from '../sql/table.js'
import { generatedIds, hasId, maxCountedId, nextId, numbered, type Engine, type EngineOptions, type HasId, type Store, type StoreDefinition } from '../store.js'
import { conflictFinder } from './conflicts.js'
import { connectSqlite } from './connections.js'
import { dialect, sqliteDatabase, triggersOf } from './tables.js'

/** A statement blocks the process, so it visits at most so many records that may not match. */
const maxVisits = 5000

/** The table of a collection, and its statements, which can be prepared when it exists. */
type Opened = Table & { statements: string[] }

/** Opens a SQLite file. Writes that arrive together share a transaction and are on disk before they are acknowledged. */
export async function sqlite (name: string, options: EngineOptions): Promise<Engine> {
  const { timeout, onWarning } = options
  const opened: Opened[] = []
  const connections = await connectSqlite(name, options)
  const { connection, prepared, inTransaction, write, usage, close } = connections

  /** The oldest keys have the lowest rowids, because a key that is used again is replaced. So an index of times is not needed. */
  const stopCleanup = keyCleanup(function removeExpiredKeys () {
    return write(() => Number(connection.prepare(`
      delete from idempotency_keys where at < ? and rowid in (select rowid from idempotency_keys order by rowid limit 1000)`).run(expiredBefore()).changes))
  })

  return { open: collection => openStore(collection, connections, opened, timeout), start, check, connections: usage, close: () => stopCleanup().then(close) }

  /**
   * Creates or changes all tables in one transaction, which is committed only if all statements can be prepared. Foreign keys that
   * refer to a table must not prevent that it is rebuilt.
   */
  async function start () {
    connection.exec('pragma foreign_keys = off')
    await inTransaction(async function createOrChange () {
      const database = sqliteDatabase(connection)
      const isNew = (await database.query("select name from sqlite_schema where name = 'collections'")).length === 0
      await migrate(database, isNew, sharedTables, opened, onWarning)
      for (const text of opened.flatMap(({ statements }) => statements)) prepared(text)
    })
    connection.exec('pragma foreign_keys = on')
  }

  /** Finds all tables, and writes as many pages as a record of average size. SQLite does not write what has not changed, so it is random. */
  function check () {
    return write(() => connection.exec(`
      select 1 from last_ids, collection_changes limit 0;
      ${opened.map(({ table, columns }) => `select ${columns.map(({ column }) => column)} from ${table} limit 0;`).join(' ')}
      insert into idempotency_keys values ('', '', hex(randomblob(32768)), 0, ${Number.MAX_SAFE_INTEGER})
      on conflict do update set digest = excluded.digest`))
  }
}

/** Opens the store of a collection, and adds its table to the others. */
function openStore<T extends HasId> (collection: StoreDefinition<T>, connections: Awaited<ReturnType<typeof connectSqlite>>, opened: Opened[], timeout: number): Required<Store<T>> {
  const { connection, prepared, write, reading, runShort, openSnapshot } = connections
  const { name, schema, seed } = collection
  const ids = generatedIds(collection)
  const sqlTable = tableOf(collection, dialect)
  const { table, columns, fields, encode, sizeOf, valuesOf, encodeValues, encodeRow, checkText, checkTexts, tableWith, versionSelection } = sqlTable
  const lists = { ...listStatements(sqlTable, dialect), encodeRow }
  const retries = retriesOf(collection, encode)
  const orConflict = conflictFinder(connection, name, fields)
  const statements = {
    insert: `insert into ${table} (${columns}) values (${fields.map(() => '?').join(', ')})`,
    selectLastId: `
      select max(id, ${ids.before}, (select coalesce(max(id), 0) from ${table} where id <= ${maxCountedId}))
      from last_ids where collection = '${name}'`,
    keepLastId: `update last_ids set id = ? where collection = '${name}'`,
    claimKey: `insert or replace into idempotency_keys values ('${name}', ?, ?, ?, ?)`,
    selectUse: `select digest, id from idempotency_keys where collection = '${name}' and key = ? and at >= ?`,
    selectFirst: `select ${columns}, position from ${table} where id = ? order by position limit 1`,
    selectVersion: versionSelection(),
    replace: `update ${table} set ${fields.map(({ column }) => `${column} = ?`).join(', ')} where position = ?`,
    remove: `delete from ${table} where position = ?`
  }

  opened.push({
    ...tableWith('integer primary key autoincrement', 'id', ids.lastUsed, ...triggersOf(name).map(([, sql]) => sql)),
    fill () {
      for (const record of seed) prepared(statements.insert).run(...valuesOf(record))
    },
    statements: Object.values(statements)
  })

  return {
    schema,

    ...oneCallPerKey<T>(retries.digestOf, async function append (call) {
      checkTexts(call)
      return write(() => insertAll(call), sizeOf(call))
    }),

    first: id => reading(() => first(id)),

    ...listReader(lists, { run: runShort, openSnapshot, timeout, maxVisits }),
    version: () => digestOf(JSON.stringify(reading(() => prepared(statements.selectVersion).all()))),

    change: (id, changeOf) => write(function change () {
      const row = prepared(statements.selectFirst).get(id) as Row | undefined
      if (!row) return
      const current = encodeRow(row)
      const record = changeOf(current)
      const position = row.at(-1)
      const values = record && valuesOf(checkText(record))
      orConflict(() => values ? prepared(statements.replace).run(...values, position) : prepared(statements.remove).run(position), record, position)
      return values ? encodeValues(values) : current
    })
  }

  function first (id: number) {
    const row = prepared(statements.selectFirst).get(id) as Row | undefined
    return row && encodeRow(row)
  }

  /** Inserts records and their key. If the key is not new and not expired, it returns the records that the key has created. All are JSON. */
  function insertAll (call: Insert<T>) {
    const { records, isMany, key, digest: newDigest = '' } = call
    const [digest = '', usedId] = key === undefined ? [] : prepared(statements.selectUse).get(key, expiredBefore()) as [string, number] | undefined ?? []
    if (usedId !== undefined) return retries.recordsOf(call, Number(previousId({ digest, id: usedId }, newDigest)), first)
    const areNumbered = !records.every(hasId)
    const firstId = areNumbered ? newId(records.length) : Number(records[0]?.id)
    const given = numbered(records, firstId)
    const rows = given.map(valuesOf)
    for (const [n, values] of rows.entries()) withIndex(isMany ? n : undefined, () => orConflict(() => prepared(statements.insert).run(...values), given[n]))
    if (areNumbered) prepared(statements.keepLastId).run(firstId + records.length - 1)
    if (key !== undefined) prepared(statements.claimKey).run(key, newDigest, firstId, Date.now())
    return rows.map(encodeValues)
  }

  /** The first of so many new ids. */
  function newId (count: number) {
    const [last] = prepared(statements.selectLastId).get() as [number]
    return nextId(last, id => prepared(statements.selectFirst).get(id) !== undefined, ids.maximum, count)
  }
}
