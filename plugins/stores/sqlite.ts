import { copyFileSync, renameSync, statSync } from 'node:fs'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { batch } from './batch.js'
import { NotStorableError, StoreUnavailableError } from './errors.js'
import { expiredBefore, keyCleanup } from './idempotency.js'
import type { Snapshot } from './sql-lists.js'
import { migrate, sharedTables } from './sql-migrations.js'
import { type Connection, createFile, inodeOf, isBusy, isOutage, isRejection, isSqliteError, loadDriver, lockFile, pathOf } from './sqlite-file.js'
import { sqliteStore, type Database } from './sqlite-store.js'
import type { Collection, Engine, EngineOptions, HasId } from './store.js'

/** Time that SQLite itself waits while another connection writes, in milliseconds. It blocks the process, so it is short. */
const busyTimeout = 10

/** Maximum number of long lists that are read at once. Each has its own connection. */
const maxReaders = 64

/** Opens a SQLite file. Writes that arrive together share a transaction and are on disk before they are acknowledged. */
export async function sqlite (name: string, { timeout, onUnavailable }: EngineOptions): Promise<Engine> {
  const path = pathOf(name)
  const connect = await loadDriver()
  await createFile(path)
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
  let walInode: number | undefined
  let lastCommit = Date.now()
  const opened: Pick<ReturnType<typeof sqliteStore>, 'table' | 'fill' | 'prepare'>[] = []

  const idleReaders: Connection[] = []
  let readers = 0
  let turn = Promise.resolve()

  /** Executes writes in one transaction, in order. */
  const writeBatch = batch(async function writeAll (writes: { run (): unknown, size: number }[]) {
    return inTransaction(() => writes.map(({ run }) => attempt(run))).catch(error => { throw failure(error) })
  }, { sizeOf: ({ size }) => size })

  const database: Database = {
    connection,
    timeout,
    write: async <R>(run: () => R, size = 0) => writeBatch({ run, size }) as Promise<R>,
    reading,
    openSnapshot: prepare => reading(() => openSnapshot(prepare))
  }

  const cleanup = keyCleanup(function removeExpiredKeys () {
    return database.write(() => Number(connection.prepare(`
      delete from idempotency_keys where rowid in (select rowid from idempotency_keys where at < ? limit 1000)`).run(expiredBefore()).changes))
  })

  /** Writes as many pages as a record of average size. The content is random, because SQLite does not write what has not changed. */
  const probe = batch(async function probeForAll (calls: undefined[]) {
    await database.write(() => connection.exec(`
      insert into idempotency_keys values ('', '', hex(randomblob(32768)), 0, ${Number.MAX_SAFE_INTEGER})
      on conflict do update set digest = excluded.digest`))
    return calls
  })

  return { open, start, check: () => probe(undefined), connections, close }

  function open<T extends HasId> (collection: Collection<T>) {
    const { store, ...rest } = sqliteStore(database, collection)
    opened.push(rest)
    return store
  }

  /** Creates or upgrades all tables in one transaction. */
  async function start () {
    await inTransaction(async function createOrUpgrade () {
      const query = (sql: string) => (connection.prepare(sql).all() as [string?, number?, string?][]).map(([name, version, columns]) => ({ name, version, columns }))
      const isNew = query("select name from sqlite_master where name = 'collections'").length === 0
      const created = await migrate(query, isNew, sharedTables, opened.map(({ table }) => table))
      for (const { table, fill } of opened) if (created.includes(table.name)) fill()
    })
    for (const { prepare } of opened) prepare()
    walInode = inodeOf(`${path}-wal`)
  }

  function openSnapshot (prepare: Parameters<Database['openSnapshot']>[0]): Snapshot {
    const reader = idleReaders.at(-1) ?? newReader()
    if (!reader.isTransaction) reader.exec('begin')
    const { select, selectEnd } = prepare(reader)
    let free = false
    idleReaders.pop() // only after the transaction has started, so that a failure does not lose the connection
    return {
      async select (after, limit) {
        // All lists together read one piece per turn of the event loop, so that other requests are not delayed.
        await (turn = turn.then(() => nextTurn()))
        return free ? [] : reading(() => select(after, limit))
      },
      selectEnd: (after, places) => reading(() => selectEnd(after, places)),
      free () {
        free = true
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
    reader.exec(`attach '${path.replaceAll("'", "''")}' as file; pragma file.cache_size = -256`)
    readers++
    idleReaders.push(reader)
    return reader
  }

  /** Throws if the file or its WAL was removed or replaced: writes to the open files would succeed and be lost. */
  function checkFiles () {
    if (inodeOf(path) !== inode) throw new StoreUnavailableError(new Error(`The file ${path} was removed or replaced`))
    if (isWalRemoved()) throw new StoreUnavailableError(new Error(`The file ${path}-wal was removed or replaced. Restart the service`))
  }

  function isWalRemoved () {
    return walInode !== undefined && inodeOf(`${path}-wal`) !== walInode
  }

  async function inTransaction<T> (work: () => T) {
    try {
      checkFiles()
      await retryWhileBusy(() => connection.exec('begin immediate'))
      const result = await work()
      connection.exec('commit')
      lastCommit = Date.now()
      return result
    } catch (error) {
      if (connection.isTransaction) connection.exec('rollback')
      throw error
    }
  }

  /** Executes one write of a transaction. If it fails for a reason of its own, only this write fails; other errors fail all. */
  function attempt (run: () => unknown) {
    try {
      return run()
    } catch (error) {
      if (!connection.isTransaction || (isSqliteError(error) && !isRejection(error))) throw error
      return isRejection(error) ? new NotStorableError('', 'is rejected by the database') : error
    }
  }

  function connections () {
    return { lists: { used: readers - idleReaders.length, idle: idleReaders.length, waiting: 0 } }
  }

  async function close () {
    await cleanup.stop()
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
    if (isOutage(error) || error instanceof StoreUnavailableError) onUnavailable?.(error)
    return isOutage(error) ? new StoreUnavailableError(error) : error
  }

  /** Retries while another process writes. */
  async function retryWhileBusy (action: () => void) {
    const deadline = Date.now() + timeout
    for (;;) {
      try {
        return action()
      } catch (error) {
        if (!isBusy(error) || Date.now() > deadline) throw error
        await sleep(5)
      }
    }
  }
}
