import { copyFileSync, renameSync, statSync } from 'node:fs'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { batch, inParts } from '../batch.js'
import { rejection, StoreUnavailableError } from '../errors.js'
import type { Row } from '../sql/database.js'
import { openLists } from '../sql/open-lists.js'
import type { Statement } from '../sql/queries.js'
import { literal } from '../sql/table.js'
import type { EngineOptions } from '../store.js'
import { type Connection, createFile, inodeOf, kindOf, loadDriver, lockFile, pathOf } from './file.js'

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
    await retryWhileBusy(() => connection.exec('pragma journal_mode = wal'))
    connection.exec('pragma synchronous = full')
  } catch (error) {
    connection.close()
    release()
    throw error
  }
  const inode = inodeOf(path)
  let wal: string | undefined
  let lastCommit = Date.now()
  const idleReaders: Connection[] = []
  const { track, closeSlowest } = openLists(timeout)
  let readers = 0
  let turn = Promise.resolve()
  /** The statements that are often used, by their texts. */
  const prepared = new Map<string, ReturnType<Connection['prepare']>>()

  /** Executes writes in one transaction, in order. */
  const writeBatch = batch((writes: { run (): unknown, size: number }[]) => inParts(writes, async function writeAll (part) {
    return inTransaction(() => part.map(({ run }) => attempt(run))).catch(error => {
      throw kindOf(error) === 'rejection' ? rejection(/constraint failed: (.+)/.exec(error.message)?.[1] ?? error.message) : failure(error)
    })
  }), { sizeOf: ({ size }) => size })

  return {
    connection,
    inTransaction,
    reading,
    close,
    /** Executes a write in the next transaction. The size is approximate, in bytes. */
    write: async <R>(run: () => R, size = 0) => writeBatch({ run, size }) as Promise<R>,
    async openSnapshot () {
      if (readers === maxReaders && idleReaders.length === 0) await closeSlowest()
      return reading(openSnapshot)
    },
    runShort,
    usage: () => ({ lists: { used: readers - idleReaders.length, idle: idleReaders.length, waiting: 0 } })
  }

  /** Runs a statement that takes a short time. */
  function runShort ({ text, values, isPlain }: Statement) {
    return reading(() => {
      const statement = prepared.get(text) ?? connection.prepare(text)
      if (isPlain) prepared.set(text, statement)
      return statement.all(...values) as Row[]
    })
  }

  /** Starts a read transaction on another connection. It sees the database as of now. */
  function openSnapshot () {
    const reader = idleReaders.at(-1) ?? newReader()
    if (!reader.isTransaction) reader.exec('begin')
    reader.prepare('select 1 from file.sqlite_schema').get() // the first read determines what the transaction sees
    idleReaders.pop() // only after the transaction has started, so that a failure does not lose the connection
    return {
      track,
      async run ({ text, values }: Statement) {
        // All lists together read one piece per turn of the event loop, so that other requests are not delayed.
        await (turn = turn.then(() => nextTurn()))
        return reading(() => reader.prepare(text).all(...values) as Row[])
      },
      free () {
        if (reader.isTransaction) reader.exec('rollback') // after some errors, SQLite has done so
        idleReaders.push(reader)
      }
    }
  }

  /** Opens a connection for a list. The file is attached, because libsql keeps its main file open until all statements are collected. */
  function newReader () {
    if (readers === maxReaders) throw new StoreUnavailableError(new Error(`More than ${maxReaders} lists are being read`))
    checkFiles()
    const reader = connect(':memory:', busyTimeout)
    reader.exec(`attach ${literal(path)} as file; pragma file.cache_size = -256`)
    readers++
    idleReaders.push(reader)
    return reader
  }

  /** Throws if the file or its WAL was removed or replaced: writes to the open files would succeed and be lost. */
  function checkFiles () {
    if (inodeOf(path) !== inode) throw new StoreUnavailableError(new Error(`The file ${path} was removed or replaced`))
    if (isWalRemoved()) throw new StoreUnavailableError(new Error(`The file ${path}-wal or ${path}-shm was removed or replaced. Restart the service`))
  }

  function isWalRemoved () {
    return wal !== undefined && inodesOfWal() !== wal
  }

  /** Identifies the WAL and its index. */
  function inodesOfWal () {
    return `${inodeOf(`${path}-wal`)} ${inodeOf(`${path}-shm`)}`
  }

  async function inTransaction<T> (work: () => T) {
    try {
      checkFiles()
      await retryWhileBusy(() => connection.exec('begin immediate'))
      const result = await work()
      connection.exec('commit')
      lastCommit = Date.now()
      wal ??= inodesOfWal()
      return result
    } catch (error) {
      if (connection.isTransaction) connection.exec('rollback')
      throw error
    }
  }

  /** Executes one write of a transaction. An error of ours changes nothing, so it fails only this write; one of SQLite fails the transaction. */
  function attempt (run: () => unknown) {
    try {
      return run()
    } catch (error) {
      if (kindOf(error)) throw error
      return error
    }
  }

  function close () {
    for (const reader of idleReaders) {
      reader.exec('detach file')
      reader.close()
    }
    if (inodeOf(path) === inode) moveWal()
    connection.close()
    release()
  }

  /** Moves everything from the WAL to the file, and removes the WAL. If others have restored the file without it, their content stays. */
  function moveWal () {
    if (isWalRemoved() && statSync(path).ctimeMs > lastCommit) {
      copyFileSync(path, `${path}-restored`)
      return renameSync(`${path}-restored`, path) // SQLite does not write to a file that was moved
    }
    try {
      connection.exec('pragma journal_mode = delete')
    } catch {
      // Others use the file.
    }
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

  /** Retries while another process writes. */
  async function retryWhileBusy (action: () => void) {
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
}
