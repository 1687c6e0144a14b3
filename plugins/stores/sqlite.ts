import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { batch } from './batch.js'
import { digestOf, expiredBefore, keyCleanup, oneCallPerKey, previousId } from './idempotency.js'
import {
  hasId, IdempotencyKeyReusedError, maxCountedId, nextId, NoIdLeftError, NotStorableError, RecordChangedError, stalledListTimeouts, StoreUnavailableError,
  type Collection, type Engine, type EngineOptions, type HasId, type NewRecord, type Store
} from './store.js'
import { changesStart, changesTable, idempotencyTable, lastIdsTable, migrate, tableOf, versionOf, type Snapshot, type Row, type Table } from './sql-table.js'
import { isBusy, isOutage, isRejection, loadDriver, type Connection } from './sqlite-driver.js'
import { createFile, inodeOf, lockFile, pathOf } from './sqlite-file.js'

interface Write {
  run (): unknown
  /** Its approximate size in bytes. */
  size: number
}

/** What a collection needs when the engine starts. */
interface Opened {
  table: Table
  seed (): void
  /** Prepares its statements, which is possible only when the tables exist. */
  prepare (): void
}

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
  const database = connect(path, busyTimeout)
  await retryWhileBusy(() => database.exec('pragma journal_mode = wal'))
  database.exec('pragma synchronous = full')
  const inode = inodeOf(path)
  let walInode: number | undefined
  const opened: Opened[] = []

  const idleReaders: Connection[] = []
  let readers = 0
  let turn = Promise.resolve()

  /** Executes writes in one transaction, in order. */
  const write = batch(async function writeAll (writes: Write[]) {
    return inTransaction(() => writes.map(attempt)).catch(error => { throw failure(error) })
  }, { sizeOf: ({ size }) => size })

  const cleanup = keyCleanup(async function removeExpiredKeys () {
    const { changes } = await write({
      run: () => database.prepare(`
        delete from idempotency_keys where rowid in (select rowid from idempotency_keys where at < ? limit 1000)`).run(expiredBefore()),
      size: 0
    }) as { changes: number }
    return changes
  })

  return { open, start, check: () => reading(check), connections, close }

  function open<T extends HasId> (collection: Collection<T>): Store<T> {
    const { name, seed, upgrades } = collection
    const { table, types, columns, definition, encode, sizeOf, valuesOf, encodeRow, checkText, pieceSelection, endSelection, sizeSelection, versionSelection, shortPage, longPage } = tableOf(collection)
    const insertion = `insert into ${table} (${columns}) values (${types.map(() => '?').join(', ')})`
    const pieces = pieceSelection('$after', '$limit')

    let statements: ReturnType<typeof prepare>

    opened.push({
      table: {
        name,
        upgrades,
        creation: [
          `create table ${table} (position integer primary key autoincrement, ${definition})`,
          `create index "${name}_by_id" on ${table} (id)`
        ]
      },
      seed () {
        const insert = database.prepare(insertion)
        for (const record of seed) insert.run(...valuesOf(record))
      },
      prepare () {
        statements = prepare()
      }
    })

    return {
      append: oneCallPerKey<T>(async function append (record, key) {
        checkText(record)
        const run = key === undefined ? () => add(record) : () => addOnce(key, record)
        return encode(await write({ run, size: sizeOf(record) }) as HasId)
      }),

      first (id) {
        const row = reading(() => statements.selectFirst.get(id)) as Row | undefined
        return row && encodeRow(row)
      },

      async list () {
        return (await page(Infinity)).list
      },

      page,

      async removeFirst (id, isExpected) {
        const { changes } = await write({ run: () => remove(id, isExpected), size: 0 }) as { changes: number }
        return changes > 0
      },

      size () {
        return Math.round(reading(() => statements.selectSize.get() as [number])[0])
      },

      version () {
        return versionOf(reading(() => statements.selectVersion.all() as Row[]))
      }
    }

    function prepare () {
      return {
        insert: database.prepare(insertion),
        selectLastId: database.prepare(`
          select max(id, (select coalesce(max(id), 0) from ${table} where id <= ${maxCountedId}))
          from last_ids where collection = '${name}'`),
        keepLastId: database.prepare(`update last_ids set id = ? where collection = '${name}'`),
        selectUse: database.prepare(`select digest, id from idempotency_keys where collection = '${name}' and key = ?`),
        claimKey: database.prepare(`
          insert into idempotency_keys values ('${name}', ?, ?, ?, ?)
          on conflict do update set digest = excluded.digest, id = excluded.id, at = excluded.at where at < ?`),
        releaseKey: database.prepare(`delete from idempotency_keys where collection = '${name}' and key = ?`),
        selectFirst: database.prepare(`select ${columns} from ${table} where id = ? order by position limit 1`),
        selectPiece: database.prepare(pieces),
        selectSize: database.prepare(sizeSelection),
        selectVersion: database.prepare(versionSelection()),
        deleteFirst: database.prepare(
          `delete from ${table} where position = (select position from ${table} where id = ? order by position limit 1)`)
      }
    }

    function add (given: NewRecord<T>) {
      return insert(given, numbered(given))
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
    function addOnce (key: string, given: NewRecord<T>) {
      const digest = digestOf(encode(given))
      const record = numbered(given)
      const { changes } = statements.claimKey.run(key, digest, record.id, Date.now(), expiredBefore())
      if (changes > 0) {
        try {
          return insert(given, record)
        } catch (error) {
          if (database.isTransaction) statements.releaseKey.run(key)
          throw error
        }
      }
      const [usedDigest, id] = statements.selectUse.get(key) as [string, number]
      return { ...given, id: Number(previousId({ digest: usedDigest, id }, digest)) }
    }

    function remove (id: number, isExpected?: (record: string) => boolean) {
      const row = isExpected && statements.selectFirst.get(id) as Row | undefined
      if (row && !isExpected(encodeRow(row))) throw new RecordChangedError()
      return statements.deleteFirst.run(id)
    }

    async function page (limit: number, after = 0) {
      const page = await shortPage((after, limit) => reading(() => statements.selectPiece.all({ after, limit }) as Row[]), limit, after)
      return page ?? longPage(reading(openSnapshot), timeout * stalledListTimeouts, limit, after)
    }

    /** Starts a read transaction on another connection. It sees the collection as of now. */
    function openSnapshot (): Snapshot {
      const reader = idleReaders.at(-1) ?? newReader()
      if (!reader.isTransaction) reader.exec('begin')
      reader.prepare(`select 1 from ${table} limit 1`).get() // the first read determines what the transaction sees
      const nextPiece = reader.prepare(pieces)
      let free = false
      idleReaders.pop() // only after the transaction has started, so that a failure does not lose the connection
      return {
        async select (after, limit) {
          // All lists together read one piece per turn of the event loop, so that other requests are not delayed.
          await (turn = turn.then(() => nextTurn()))
          return free ? [] : reading(() => nextPiece.all({ after, limit }) as Row[])
        },
        selectEnd: (after, places) => reading(() => reader.prepare(endSelection('$after', '$places')).all({ after, places }) as Row[]),
        free () {
          free = true
          if (reader.isTransaction) reader.exec('rollback') // after some errors, SQLite has done so
          idleReaders.push(reader)
        }
      }
    }
  }

  /** Creates or upgrades all tables in one transaction. */
  async function start () {
    await inTransaction(async function createOrUpgrade () {
      const query = (sql: string) => (database.prepare(sql).all() as [string?, number?][]).map(([name, version]) => ({ name, version }))
      const isNew = query("select name from sqlite_master where name = 'collections'").length === 0
      const created = await migrate(query, isNew, [...opened.map(({ table }) => table), idempotencyTable, lastIdsTable, changesTable])
      for (const { table: { name }, seed } of opened) {
        if (created.includes(name)) seed()
        query(`insert into last_ids values ('${name}', 0) on conflict do nothing`)
        query(`insert into collection_changes values ('${name}', abs(random() % ${changesStart})) on conflict do nothing`)
        for (const change of ['update', 'delete']) {
          query(`
            create trigger if not exists "${name}_${change}" after ${change} on "${name}"
            begin update collection_changes set changes = changes + 1 where collection = '${name}'; end`)
        }
      }
    })
    for (const { prepare } of opened) prepare()
    walInode = inodeOf(`${path}-wal`)
  }

  /** Opens a connection for a list. Connections are reused, because libsql closes one only when its statements are collected. */
  function newReader () {
    if (readers === maxReaders) throw new StoreUnavailableError(new Error(`More than ${maxReaders} lists are being read`))
    check()
    const reader = connect(path, busyTimeout)
    readers++
    reader.exec('pragma cache_size = -256')
    idleReaders.push(reader)
    return reader
  }

  /** Throws if the file or its WAL was removed or replaced: writes to the open files would succeed and be lost. */
  function check () {
    if (inodeOf(path) !== inode) throw new StoreUnavailableError(new Error(`The file ${path} was removed or replaced`))
    if (walInode !== undefined && inodeOf(`${path}-wal`) !== walInode) throw new StoreUnavailableError(new Error(`The file ${path}-wal was removed or replaced`))
  }

  async function inTransaction<T> (work: () => T) {
    try {
      check()
      await retryWhileBusy(() => database.exec('begin immediate'))
      const result = await work()
      database.exec('commit')
      return result
    } catch (error) {
      if (database.isTransaction) database.exec('rollback')
      throw error
    }
  }

  /** Executes one write of a transaction. If the record cannot be stored, only this write fails; other errors fail all. */
  function attempt ({ run }: Write) {
    try {
      return run()
    } catch (error) {
      if ([IdempotencyKeyReusedError, NoIdLeftError, RecordChangedError].some(kind => error instanceof kind)) return error
      if (!database.isTransaction || !isRejection(error)) throw error
      return new NotStorableError('', 'is rejected by the database')
    }
  }

  function connections () {
    return { lists: { used: readers - idleReaders.length, idle: idleReaders.length, waiting: 0 } }
  }

  async function close () {
    await cleanup.stop()
    database.exec('pragma wal_checkpoint(truncate)') // moves everything from the WAL to the file
    for (const connection of [database, ...idleReaders]) connection.close()
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
