import { setTimeout as sleep } from 'node:timers/promises'
import { collectionOf } from '../collection.js'
import { StoreUnavailableError } from '../errors.js'
import { decide, found, type Source, type Writes } from '../facts.js'
import { expiredBefore, keyCleanup, keysAtOnce } from '../idempotency.js'
import { prepareTables, type Connection } from '../sql/schema-changes.js'
import { databaseStore } from '../sql/store.js'
import { columnName, quoted, tableOf, toColumn, type Dialect, type Table } from '../sql/tables.js'
import type { Engine, EngineOptions, HasId, Store, StoreDefinition } from '../store.js'
import { createFile, isBusy, isOutage, loadDriver, lockFile, type SqliteConnection } from './driver.js'

/** Time that SQLite itself waits for other programs, in milliseconds. It blocks the process, so it is short. */
const busyTimeout = 10
const optimizeInterval = 60 * 60 * 1000

const dialect: Dialect = {
  columnTypes: { integer: 'bigint', number: 'double', string: 'text', boolean: 'integer', json: 'text' },
  positionType: 'integer',
  parameter: n => `?${n}`,
  nullsFirst: '',
  nullsLast: '',
  hasForeignKeys: false
}

/** Opens a SQLite file, with a connection that writes and one that reads. A write is answered when it is on disk. */
export async function sqlite (name: string, options: EngineOptions): Promise<Engine> {
  const connect = await loadDriver()
  const path = createFile(name)
  const unlock = lockFile(path, connect)
  const connections = openConnections(() => connect(path, busyTimeout))
  const { write, read } = connections
  const tables = new Map<string, Table>()

  const stopCleanup = keyCleanup(async function removeExpiredKeys () {
    return Number(write(`delete from idempotency_keys where rowid in
      (select rowid from idempotency_keys where at < ? order by at limit ${keysAtOnce})`).run(expiredBefore()).changes)
  })
  const optimizing = setInterval(optimize, optimizeInterval).unref()

  return {
    open: collection => openStore(collection),

    async start () {
      await prepareTables(schemaTransaction, dialect, [...tables.values()], options)
      optimize()
    },

    /** SQLite does not write what has not changed, so it is random. */
    check: () => transaction(Date.now() + options.timeout, function writeProbe () {
      write(`insert into idempotency_keys values ('', '', '', hex(randomblob(4096)), 0)
        on conflict do update set response = excluded.response`).run()
    }),

    connections: () => ({ used: 0, idle: 2, waiting: 0 }),

    async close () {
      clearInterval(optimizing)
      await stopCleanup()
      connections.close()
      unlock()
    }
  }

  function openStore<T extends HasId> (definition: StoreDefinition<T>): Store<T> {
    const table = tableOf(collectionOf(definition))
    tables.set(table.name, table)
    const source = sourceOf(table, connections)
    const selectFirst = `select record from ${table.table} where id = ? order by position limit 1`
    return databaseStore(tables, table, {
      dialect,
      timeout: options.timeout,
      run: ({ text, values }) => reading(() => read(text).all(...values) as unknown[][]),
      first: id => reading(() => (read(selectFirst).get(id) as [string] | undefined)?.[0]),
      transact: (rules, deadline) => transaction(deadline, function decideAndWrite () {
        const { outcomes, writes } = decide(rules(), source)
        writeAll(table, connections, writes)
        return outcomes
      })
    })
  }

  /** Runs work that writes. It waits while another program writes. */
  async function transaction<R> (deadline: number, work: () => R) {
    try {
      await begin(deadline)
      const result = work()
      connections.writer.exec('commit')
      return result
    } catch (error) {
      if (connections.writer.isTransaction) connections.writer.exec('rollback')
      throw failure(error)
    }
  }

  async function begin (deadline: number) {
    for (;;) {
      try {
        return connections.writer.exec('begin immediate')
      } catch (error) {
        if (!isBusy(error) || Date.now() > deadline) throw error
        await sleep(10)
      }
    }
  }

  async function schemaTransaction<R> (work: (connection: Connection) => Promise<R>) {
    await begin(Date.now() + options.timeout)
    try {
      const result = await work(schemaConnection(connections))
      connections.writer.exec('commit')
      return result
    } catch (error) {
      connections.writer.exec('rollback')
      throw error
    }
  }

  function optimize () {
    try {
      connections.writer.exec('pragma analysis_limit = 400; pragma optimize')
    } catch {} // another program writes; the next time is soon enough
  }

  function reading<R> (work: () => R) {
    try {
      return work()
    } catch (error) {
      throw failure(error)
    }
  }

  /** Converts errors that may be temporary, such as a full disk. */
  function failure (error: unknown) {
    if (!isOutage(error)) return error
    options.onUnavailable?.(error)
    return new StoreUnavailableError(error)
  }
}

type Connections = ReturnType<typeof openConnections>

/** Opens both connections. Statements are prepared once. */
function openConnections (connect: () => SqliteConnection) {
  const writer = connect()
  writer.exec('pragma journal_mode = wal; pragma synchronous = full')
  const reader = connect()
  return {
    writer,
    write: preparer(writer),
    read: preparer(reader),
    /** Afterwards, the file itself has all records, also with libsql. */
    close () {
      reader.close()
      writer.exec('pragma wal_checkpoint(truncate)')
      writer.close()
    }
  }
}

/** Prepares each statement once. There are as many as different queries, so that they are forgotten some day. */
function preparer (connection: SqliteConnection) {
  const statements = new Map<string, ReturnType<SqliteConnection['prepare']>>()
  return function prepared (text: string) {
    const known = statements.get(text)
    if (known) return known
    if (statements.size === 1000) statements.clear()
    const statement = connection.prepare(text)
    statements.set(text, statement)
    return statement
  }
}

function sourceOf ({ name, table }: Table, { write }: Connections): Source {
  const first = (text: string, ...values: unknown[]) => write(text).get(...values) as unknown[] | undefined
  return {
    counter () {
      const row = first('select position, last_id from collections where name = ?', name)
      return { position: Number(row?.[0]), lastId: Number(row?.[1]) }
    },
    rows: wanted => [...wanted].flatMap(([id, count]) => {
      // (With libsql, `get` finds nothing after `all` of the same statement.)
      const rows = write(`select position, record from ${table} where id = ? order by position limit ?`).all(id, count)
      return (rows as unknown[][]).map(([position, record]) =>
        ({ id, position: Number(position), record: String(record) }))
    }),
    holders: asked => found(asked, (field, value) => {
      const row = first(`select position from ${table} where ${columnName(field)} = ? limit 1`, toColumn(value))
      return row && Number(row[0])
    }),
    existing: asked => found(asked, (target, id) =>
      first(`select 1 from ${quoted(target)} where id = ? limit 1`, id) ? true as const : undefined),
    referred: (referrers, ids) => new Map(ids.flatMap(id => {
      const referrer = referrers.find(({ collection, field }) => {
        const except = collection === name ? `and id <> ${id}` : ''
        return first(`select 1 from ${quoted(collection)} where ${columnName(field)} = ? ${except} limit 1`, id)
      })
      return referrer ? [[id, referrer.collection] as const] : []
    })),
    keys: keys => new Map(keys.flatMap(key => {
      const use = 'select digest, response from idempotency_keys where key = ? and collection = ? and at >= ?'
      const row = first(use, key, name, expiredBefore())
      return row ? [[key, { key, digest: String(row[0]), response: String(row[1]) }] as const] : []
    }))
  }
}

function writeAll (table: Table, connections: Connections, { inserts, updates, removes, keys, counter }: Writes) {
  const { write } = connections
  insertRows(table, connections, inserts)
  updateRows(table, connections, updates)
  for (const position of removes) write(`delete from ${table.table} where position = ?`).run(position)
  for (const { key, digest, response } of keys) {
    write('insert or replace into idempotency_keys (key, collection, digest, response, at) values (?, ?, ?, ?, ?)')
      .run(key, table.name, digest, response, Date.now())
  }
  if (counter) {
    const { position, lastId } = counter
    write('update collections set position = ?, last_id = ? where name = ?').run(position, lastId, table.name)
  }
}

function insertRows ({ table, names, valuesOf }: Table, { write }: Connections, rows: Writes['inserts']) {
  const insert = `insert into ${table} (${names}) values (${names.map(() => '?')})`
  for (const row of rows) write(insert).run(...valuesOf(row))
}

function updateRows ({ table, names, valuesOf }: Table, { write }: Connections, rows: Writes['updates']) {
  const set = names.slice(2).map((name, n) => `${name} = ?${n + 3}`) // the position and the id stay, so that indexes do
  const update = `update ${table} set ${set} where position = ?1 and id = ?2`
  for (const row of rows) write(update).run(...valuesOf(row))
}

/** What a change of schemas needs. Its statements are forgotten, because their tables change. */
function schemaConnection ({ writer }: Connections): Connection {
  const connections = { writer, write: preparer(writer) } as Connections
  const run = (text: string, ...values: unknown[]) => {
    const statement = writer.prepare(text)
    if (/^\s*select/.test(text)) return statement.all(...values) as unknown[][]
    statement.run(...values)
    return []
  }
  return {
    run,
    hasTable: name => run('select 1 from sqlite_schema where name = ?', name).length > 0,
    columnsOf: ({ name }) => run('select name from pragma_table_info(?)', name).map(([name]) => quoted(String(name))),
    insert: (table, rows) => insertRows(table, connections, rows),
    update: (table, rows) => updateRows(table, connections, rows),
    lockSchemas () {},
    lockTable () {}
  }
}
