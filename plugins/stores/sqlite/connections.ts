import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { batch, Failure, inParts } from '../batch.js'
import { rejection, StoreUnavailableError } from '../errors.js'
import { openLists } from '../sql/open-lists.js'
import type { Statement } from '../sql/queries.js'
import { literal, type Row } from '../sql/table.js'
import type { EngineOptions } from '../store.js'
import { type Connection, createFile, kindOf, loadDriver, lockFile, pathOf, watchFiles } from './file.js'

/** Time that SQLite itself waits while another connection writes, in milliseconds. It blocks the process, so it is short. */
const busyTimeout = 10

/** Maximum number of long lists that are read at once. Each has its own connection. */
const maxReaders = 64

/** Connects to a SQLite file: with one connection for writes and short reads, and one for each long list. */
export async function connectSqlite (name: string, { timeout, onUnavailable }: EngineOptions) {
  const connect = await loadDriver()
  const path = await createFile(pathOf(name))
  const release = lockFile(path, connect)
  const connection = connect(path, busyTimeout)
  try {
    await retryWhileBusy(() => connection.exec('pragma journal_mode = wal'), timeout)
    connection.exec('pragma synchronous = full')
  } catch (error) {
    connection.close()
    release()
    throw error
  }
  const files = watchFiles(path)
  const { openSnapshot, usage, closeIdle } = snapshots(newReader, reading, timeout)
  /** The statements that are often used, by their texts. */
  const statements = new Map<string, ReturnType<Connection['prepare']>>()

  /** Executes writes in one transaction, in order. */
  const writeBatch = batch((writes: { run (): unknown, size: number }[]) => inParts(writes, async function writeAll (part) {
    // A write of infinite size has a transaction of its own, which its error ends.
    return inTransaction(() => part.map(({ run, size }) => size < Infinity ? attempt(run) : run())).catch(error => {
      throw kindOf(error) === 'rejection' ? rejection(/constraint failed: (.+)/.exec(error.message)?.[1] ?? error.message) : failure(error)
    })
  }), { sizeOf: ({ size }) => size })

  return { connection, prepared, inTransaction, write, reading, runShort, openSnapshot, usage, close }

  /** Executes a write in the next transaction. The size is approximate, in bytes. */
  async function write<R> (run: () => R, size = 0) {
    return writeBatch({ run, size }) as Promise<R>
  }

  /** Prepares a statement that is often used, once. */
  function prepared (text: string) {
    let statement = statements.get(text)
    if (!statement) statements.set(text, statement = connection.prepare(text))
    return statement
  }

  /** Runs a statement that takes a short time. */
  function runShort ({ text, values, isPlain }: Statement) {
    return reading(() => (isPlain ? prepared(text) : connection.prepare(text)).all(...values) as Row[])
  }

  /** Opens a connection for a list. The file is attached, because libsql keeps its main file open until all statements are collected. */
  function newReader () {
    files.check()
    const reader = connect(':memory:', busyTimeout)
    reader.exec(`attach ${literal(path)} as file; pragma file.cache_size = -256`)
    return reader
  }

  async function inTransaction<T> (work: () => T) {
    try {
      files.check()
      await retryWhileBusy(() => connection.exec('begin immediate'), timeout)
      const pending = work()
      const result = pending instanceof Promise ? await pending : pending // otherwise a reader could see writes that are not committed
      connection.exec('commit')
      files.committed()
      return result
    } catch (error) {
      if (connection.isTransaction) connection.exec('rollback')
      throw error
    }
  }

  function close () {
    closeIdle()
    files.moveWal(connection)
    connection.close()
    release()
  }

  function reading<T> (read: () => T) {
    try {
      return read()
    } catch (error) {
      throw failure(error)
    }
  }

  /** Converts errors that may be temporary, such as a full disk. */
  function failure (error: unknown) {
    const kind = kindOf(error)
    const isOutage = kind === 'busy' || kind === 'outage'
    if (isOutage || error instanceof StoreUnavailableError) onUnavailable?.(error)
    return isOutage ? new StoreUnavailableError(error) : error
  }
}

/** Returns a function that opens a snapshot for a long list, on a connection of its own. `reading` converts the errors of a function. */
function snapshots (connect: () => Connection, reading: <R>(read: () => R) => R, timeout: number) {
  const idle: Connection[] = []
  const { track, closeSlowest } = openLists(timeout)
  let readers = 0
  let turn = Promise.resolve()

  return {
    async openSnapshot () {
      if (readers === maxReaders && idle.length === 0) await closeSlowest()
      return reading(open)
    },
    usage: () => ({ lists: { used: readers - idle.length, idle: idle.length, waiting: 0 } }),
    closeIdle () {
      for (const reader of idle) {
        reader.exec('detach file')
        reader.close()
      }
    }
  }

  /** Starts a read transaction. It sees the database as of now. */
  function open () {
    const reader = idle.at(-1) ?? newReader()
    if (!reader.isTransaction) reader.exec('begin')
    reader.prepare('select 1 from file.sqlite_schema').get() // the first read determines what the transaction sees
    idle.pop() // only after the transaction has started, so that a failure does not lose the connection
    return {
      track,
      async run ({ text, values }: Statement) {
        // All lists together read one piece per turn of the event loop, so that other requests are not delayed.
        await (turn = turn.then(() => nextTurn()))
        return reading(() => reader.prepare(text).all(...values) as Row[])
      },
      free () {
        if (reader.isTransaction) reader.exec('rollback') // after some errors, SQLite has done so
        idle.push(reader)
      }
    }
  }

  function newReader () {
    if (readers === maxReaders) throw new StoreUnavailableError(new Error(`More than ${maxReaders} lists are being read`))
    const reader = connect()
    readers++
    idle.push(reader)
    return reader
  }
}

/** Executes one write of a transaction. An error of ours changes nothing, so it fails only this write; one of SQLite fails the transaction. */
function attempt (run: () => unknown) {
  try {
    return run()
  } catch (error) {
    if (kindOf(error)) throw error
    return new Failure(error)
  }
}

/** Retries while another process writes. */
async function retryWhileBusy (action: () => void, timeout: number) {
  const deadline = Date.now() + timeout
  for (;;) {
    try {
      return action()
    } catch (error) {
      if (kindOf(error) !== 'busy' || Date.now() > deadline) throw error
      await sleep(5)
    }
  }
}
