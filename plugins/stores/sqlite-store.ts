import { RecordChangedError } from './errors.js'
import { digestOf, expiredBefore, oneCallPerKey, previousId } from './idempotency.js'
import { pageReader, type Snapshot } from './sql-lists.js'
import { changesStart } from './sql-migrations.js'
import { tableOf, type Conditions, type Row } from './sql-table.js'
import type { Connection } from './sqlite-file.js'
import { hasId, maxCountedId, nextId, type Collection, type HasId, type NewRecord, type Store } from './store.js'

/** What the store of a collection needs from the engine. */
export interface Database {
  connection: Connection
  timeout: number
  /** Executes a write in the next transaction. The size is approximate, in bytes. */
  write<R> (run: () => R, size?: number): Promise<R>
  /** Converts errors that may be temporary. */
  reading<R> (read: () => R): R
  /** Starts a read transaction on another connection. It sees the database as of now. */
  openSnapshot (prepare: (reader: Connection) => Pick<Snapshot, 'select' | 'selectEnd'>): Snapshot
}

const { MIN_SAFE_INTEGER, MAX_SAFE_INTEGER, MAX_VALUE } = Number

/** SQLite stores values of any type in a column, unless a condition prevents it. */
const conditions: Conditions = {
  integer: column => `typeof(${column}) = 'integer' and ${column} between ${MIN_SAFE_INTEGER} and ${MAX_SAFE_INTEGER}`,
  number: column => `typeof(${column}) = 'real' and abs(${column}) <= ${MAX_VALUE}`,
  string: column => `typeof(${column}) = 'text'`,
  boolean: column => `${column} in (0, 1)`,
  json: column => `typeof(${column}) = 'text'`
}

/** The store of a collection in SQLite, its table, and what the engine does when it starts. */
export function sqliteStore<T extends HasId> (database: Database, collection: Collection<T>) {
  const { connection, timeout, write, reading } = database
  const { name, schema, seed } = collection
  const { table, columns, fields, encode, sizeOf, valuesOf, encodeRow, checkText, tableWith, pieceSelection, endSelection, sizeSelection, versionSelection } =
    tableOf(collection, conditions)
  const page = pageReader(encodeRow, selectPiece, () => database.openSnapshot(prepareList), timeout)
  const insertion = `insert into ${table} (${columns}) values (${fields.map(() => '?').join(', ')})`
  const pieces = pieceSelection('$after', '$limit')
  let statements: ReturnType<typeof prepared>

  const store: Required<Store<T>> = {
    schema,

    append: oneCallPerKey<T>(async function append (record, key) {
      checkText(record)
      return encode(await write(key === undefined ? () => insert(record, numbered(record)) : () => insertOnce(key, record), sizeOf(record)))
    }, timeout),

    first (id) {
      const row = reading(() => statements.selectFirst.get(id)) as Row | undefined
      return row && encodeRow(row)
    },

    list: async () => (await page(Infinity)).list,
    page,

    removeFirst: (id, isExpected) => write(function remove () {
      const row = isExpected && statements.selectFirst.get(id) as Row | undefined
      if (row && !isExpected(encodeRow(row))) throw new RecordChangedError()
      return statements.deleteFirst.run(id).changes > 0
    }),

    replaceFirst: (id, change) => write(function replace () {
      const row = statements.selectFirst.get(id) as Row | undefined
      if (!row) return
      const record = change(encodeRow(row))
      checkText(record)
      statements.replace.run(...valuesOf(record), row.at(-1))
      return encode(record)
    }),

    size: () => reading(() => statements.selectSize.get() as [number])[0],

    version: () => digestOf(JSON.stringify(reading(() => statements.selectVersion.all())))
  }

  return {
    store,

    table: tableWith('integer primary key autoincrement',
      `create index "${name}_by_id" on ${table} (id)`,
      `insert into last_ids values ('${name}', 0)`,
      `insert into collection_changes values ('${name}', abs(random() % ${changesStart}))`,
      ...['update', 'delete'].map(change => `
        create trigger "${name}_${change}" after ${change} on ${table}
        begin update collection_changes set changes = changes + 1 where collection = '${name}'; end`)
    ),

    /** Inserts the first records. */
    fill () {
      const insert = connection.prepare(insertion)
      for (const record of seed) insert.run(...valuesOf(record))
    },

    /** Prepares the statements, which is possible only when the tables exist. */
    prepare () {
      statements = prepared()
    }
  }

  function prepared () {
    const first = `from ${table} where id = ? order by position limit 1`
    return {
      insert: connection.prepare(insertion),
      selectLastId: connection.prepare(`
        select max(id, (select coalesce(max(id), 0) from ${table} where id <= ${maxCountedId}))
        from last_ids where collection = '${name}'`),
      keepLastId: connection.prepare(`update last_ids set id = ? where collection = '${name}'`),
      selectUse: connection.prepare(`select digest, id from idempotency_keys where collection = '${name}' and key = ?`),
      claimKey: connection.prepare(`
        insert into idempotency_keys values ('${name}', ?, ?, ?, ?)
        on conflict do update set digest = excluded.digest, id = excluded.id, at = excluded.at where at < ?`),
      releaseKey: connection.prepare(`delete from idempotency_keys where collection = '${name}' and key = ?`),
      selectFirst: connection.prepare(`select ${columns}, position ${first}`),
      selectPiece: connection.prepare(pieces),
      selectSize: connection.prepare(sizeSelection),
      selectVersion: connection.prepare(versionSelection()),
      replace: connection.prepare(`update ${table} set ${fields.map(({ column }) => `${column} = ?`).join(', ')} where position = ?`),
      deleteFirst: connection.prepare(`delete from ${table} where position = (select position ${first})`)
    }
  }

  function insert (given: NewRecord<T>, record: HasId) {
    if (!hasId(given)) statements.keepLastId.run(record.id)
    statements.insert.run(...valuesOf(record))
    return record
  }

  function numbered (given: NewRecord<T>): HasId {
    if (hasId(given)) return given
    const [last] = statements.selectLastId.get() as [number]
    return { ...given, id: nextId(last, id => statements.selectFirst.get(id) !== undefined) }
  }

  /** Stores the key if it is new or expired, and then the record. Otherwise, it returns the record that the key has created. */
  function insertOnce (key: string, given: NewRecord<T>) {
    const digest = digestOf(encode(given))
    const record = numbered(given)
    const { changes } = statements.claimKey.run(key, digest, record.id, Date.now(), expiredBefore())
    if (changes > 0) {
      try {
        return insert(given, record)
      } catch (error) {
        if (connection.isTransaction) statements.releaseKey.run(key)
        throw error
      }
    }
    const [usedDigest, id] = statements.selectUse.get(key) as [string, number]
    return { ...given, id: Number(previousId({ digest: usedDigest, id }, digest)) }
  }

  function selectPiece (after: number, limit: number) {
    return reading(() => statements.selectPiece.all({ after, limit }) as Row[])
  }

  function prepareList (reader: Connection) {
    reader.prepare(`select 1 from ${table} limit 1`).get() // the first read determines what the transaction sees
    const nextPiece = reader.prepare(pieces)
    return {
      select: (after: number, limit: number) => nextPiece.all({ after, limit }) as Row[],
      selectEnd: (after: number, places: number) => reader.prepare(endSelection('$after', '$places')).all({ after, places }) as Row[]
    }
  }
}
