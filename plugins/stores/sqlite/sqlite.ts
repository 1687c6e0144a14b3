import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine, EngineOptions } from '../engine.js'
import type { Connection, Dialect, ResultRow, RowStatement } from '../sql/connection.js'
import { SqlReader } from '../sql/reader.js'
import { prepareTables } from '../sql/schema-changes.js'
import { tableFor } from '../sql/tables.js'
import { SqlTransaction } from '../sql/transaction.js'
import { StoreUnavailableError } from '../store-errors.js'
import { oneAtATime } from '../time-limits.js'
import { createFile, isBusy, isOutage, loadDriver, lockFile, type Database, type Prepared } from './sqlite-driver.js'

/** Time that SQLite itself waits for other programs, in milliseconds. It blocks the process, so it is short. */
const busyTimeout = 10
const analyzeInterval = 60 * 60 * 1000

/** Writes statistics, by which SQLite chooses an index. Those of a small table would be wrong when it has grown. */
const analysis = `begin immediate; pragma analysis_limit = 400; analyze;
  delete from sqlite_stat1 where cast(stat as integer) < 10000; analyze sqlite_schema; commit`

/** Statements with filters are as many as different queries, so that they are forgotten some day. */
const mostStatements = 1000

const dialect: Dialect = {
  types: { integer: 'bigint', number: 'double', string: 'text', boolean: 'integer' },
  positionType: 'integer',
  collation: '',
  parameter: n => `?${n}`,
  lock: () => '',
  nullsFirst: '',
  hasForeignKeys: false,
  columns: 'select name from pragma_table_info(?1)'
}

/** Opens a SQLite file, with a connection that writes and one that reads. A write is answered when it is on disk. */
export async function sqlite (name: string, options: EngineOptions): Promise<Engine> {
  const connect = await loadDriver()
  const path = createFile(name)
  const unlock = lockFile(path, connect)
  const inTurn = oneAtATime()
  const writer = connect(path, busyTimeout)
  const transact = transactionsOn(writer, inTurn)
  writer.exec('pragma journal_mode = wal; pragma synchronous = full')
  const reader = connect(path, busyTimeout)
  const analyzing = setInterval(analyze, analyzeInterval).unref()
  const writing = connectionOn(writer)

  return {
    async start () {
      const tables = Array.from(options.collections.values(), tableFor)
      // Its statements are forgotten, because tables change.
      const transaction = <R>(work: (connection: Connection) => Promise<R>) =>
        transact(Date.now() + options.timeout, () => work(connectionOn(writer)))
      await prepareTables(transaction, tables, options)
      await analyze()
    },
    reader: new SqlReader(connectionOn(reader)),
    transaction: (work, { deadline }) => transact(deadline, async function workAndWrite () {
      const transaction = new SqlTransaction(writing)
      const result = await work(transaction)
      await transaction.written()
      return result
    }),

    /** SQLite does not write what has not changed, so it is random. */
    check: () => transact(Date.now() + options.timeout, async function writeProbe () {
      await writing.run(`insert into idempotency_keys values ('', '', '', hex(randomblob(4096)), 0)
        on conflict do update set response = excluded.response`)
    }),
    connections: () => ({ used: 0, idle: 2, waiting: 0 }),

    async close () {
      clearInterval(analyzing)
      await inTurn(Infinity, async function closeAll () {
        reader.close()
        writer.exec('pragma wal_checkpoint(truncate)') // then the file itself has all records, also with libsql
        writer.close()
        unlock()
      })
    }
  }

  /** Runs on the connection that reads: its queries have filters, and it sees only statistics of its own. */
  function analyze () {
    return inTurn(Infinity, async function writeStatistics () {
      try {
        reader.exec(analysis)
      } catch {
        rollBack(reader) // another program writes; the next time is soon enough
      }
    })
  }
}

/** Returns a function that runs work that writes. It waits while another program writes. */
function transactionsOn (writer: Database, inTurn: ReturnType<typeof oneAtATime>) {
  return function transact<R> (deadline: number, work: () => Promise<R>) {
    return inTurn(deadline, async function runTransaction () {
      await begin(deadline)
      try {
        const result = await work()
        writer.exec('commit')
        return result
      } catch (error) {
        rollBack(writer)
        throw failure(error)
      }
    })
  }

  async function begin (deadline: number) {
    for (;;) {
      try {
        return writer.exec('begin immediate')
      } catch (error) {
        if (!isBusy(error) || Date.now() > deadline) throw failure(error)
        await sleep(10)
      }
    }
  }
}

function rollBack (database: Database) {
  try {
    database.exec('rollback')
  } catch {} // SQLite has done it already, because the disk is full
}

/** Converts errors that may be temporary, such as a full disk. */
function failure (error: unknown) {
  return isOutage(error) ? new StoreUnavailableError(error) : error
}

/** A connection whose statements are prepared once. */
function connectionOn (database: Database): Connection {
  const statements = new Map<string, Prepared>()
  return {
    dialect,
    run: (text, values) => resultOf(prepared(text), values),
    one: (text, values = []) => prepared(text).get(...values.map(toSqlite)) as ResultRow | undefined,
    runFor (name, rows, write, values = []) {
      if (rows.length === 0) return []
      const statement = prepared(name, () => textOf(write(), values.length))
      return rows.flatMap(row => resultOf(statement, [...row, ...values]))
    }
  }

  function prepared (key: string, write = () => key) {
    const statement = statements.get(key) ?? database.prepare(write())
    if (statements.size === mostStatements) statements.clear()
    statements.set(key, statement)
    return statement
  }
}

function resultOf (statement: Prepared, values: unknown[] = []) {
  return statement.all(...values.map(toSqlite)) as ResultRow[]
}

/** The text of a statement for one row. */
function textOf ({ columns, text }: RowStatement, values: number) {
  const names = Object.keys(columns)
  const parameters = Array.from({ length: values }, (_, n) => `?${names.length + n + 1}`)
  return text({ column: name => `?${names.indexOf(name) + 1}`, table: () => '' }, ...parameters)
}

/** A boolean becomes a number, because libsql ends the process on a boolean. */
function toSqlite (value: unknown) {
  if (value === undefined) return null
  return typeof value === 'boolean' ? Number(value) : value
}
