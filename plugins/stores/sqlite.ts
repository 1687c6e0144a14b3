import { statSync } from 'node:fs'
import { mkdir, open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import Database from 'libsql'
import { batch } from './batch.js'
import { digestOf, previousId, expiredBefore, oneCallPerKey } from './idempotency.js'
import {
  hasId, IdempotencyKeyReusedError, maxCountedId, nextId, NoIdLeftError, stalledListTimeouts, StoreUnavailableError, NotStorableError,
  type Collection, type Engine, type EngineOptions, type HasId, type NewRecord, type Store
} from './store.js'
import { idempotencyTable, lastIdsTable, migrate, tableOf, type Snapshot, type Row } from './sql-table.js'

interface Write {
  run (): unknown
  /** Its approximate size in bytes. */
  size: number
}

/** Maximum number of long lists that are read at once. Each has its own connection. */
const maxReaders = 64

/** Opens a SQLite file. Writes that arrive together share a transaction and are on disk before they are acknowledged. */
export async function sqlite (name: string, { timeout, onUnavailable }: EngineOptions): Promise<Engine> {
  const path = resolve(name) // libsql would interpret some relative names as something other than a file
  await mkdir(dirname(path), { recursive: true })
  await (await open(path, 'a')).close() // fails with a clearer message than SQLite does
  const database = new Database(path, { timeout: 10 })
  await retryWhileBusy(() => database.exec('pragma journal_mode = wal'))
  database.exec('pragma synchronous = full')
  const { ino } = statSync(path)

  const idleReaders: Database.Database[] = []
  let readers = 0
  let turn = Promise.resolve()

  /** Executes writes in one transaction, in order. */
  const write = batch(async function writeAll (writes: Write[]) {
    return inTransaction(() => writes.map(attempt)).catch(error => { throw failure(error) })
  }, { sizeOf: ({ size }) => size })

  return { open: openCollection, check, connections, close }

  async function openCollection<T extends HasId> (collection: Collection<T>): Promise<Store<T>> {
    const { name, seed } = collection
    const { table, types, columns, definition, encode, sizeOf, valuesOf, encodeRow, checkText, pieceSelection, endSelection, sizeSelection, shortPage, longPage } = tableOf(collection)
    const insertion = `insert into ${table} (${columns}) values (${types.map(() => '?').join(', ')})`
    const pieces = pieceSelection('?1', '?2')

    await inTransaction(async function createOrUpgrade () {
      const query = (sql: string) => database.prepare(sql).all() as { version: number }[]
      const created = await migrate(query, collection, [
        `create table ${table} (position integer primary key autoincrement, ${definition})`,
        `create index "${name}_by_id" on ${table} (id)`
      ])
      if (created) for (const record of seed) database.prepare(insertion).run(valuesOf(record))
      await migrate(query, idempotencyTable, idempotencyTable.creation)
      await migrate(query, lastIdsTable, lastIdsTable.creation)
      query(`insert into last_ids values ('${name}', 0) on conflict do nothing`)
    })

    const insert = database.prepare(insertion)
    const selectLastId = database.prepare(`
      select max(id, (select coalesce(max(id), 0) from ${table} where id <= ${maxCountedId}))
      from last_ids where collection = '${name}'`).raw()
    const keepLastId = database.prepare(`update last_ids set id = ? where collection = '${name}'`)
    const selectUse = database.prepare(`select digest, id from idempotency_keys where collection = '${name}' and key = ? and at >= ?`).raw()
    const keepUse = database.prepare(`insert or replace into idempotency_keys values ('${name}', ?, ?, ?, ?)`)
    const forgetUses = database.prepare(`
      delete from idempotency_keys where rowid in (select rowid from idempotency_keys where at < ? order by at limit 10)`)
    const selectFirst = database.prepare(`select ${columns} from ${table} where id = ? order by position limit 1`).raw()
    const selectPiece = database.prepare(pieces).raw()
    const selectSize = database.prepare(sizeSelection).raw()
    const deleteFirst = database.prepare(
      `delete from ${table} where position = (select position from ${table} where id = ? order by position limit 1)`)

    return {
      append: oneCallPerKey<T>(async function append (record, key) {
        checkText(record)
        const run = key === undefined ? () => add(record) : () => addOnce(key, record)
        return encode(await write({ run, size: sizeOf(record) }) as HasId)
      }),

      first (id) {
        const row = reading(() => selectFirst.get([id])) as Row | undefined
        return row && encodeRow(row)
      },

      async list () {
        return (await page(Infinity)).list
      },

      page,

      async removeFirst (id) {
        const { changes } = await write({ run: () => deleteFirst.run([id]), size: 0 }) as { changes: number }
        return changes > 0
      },

      size () {
        return Math.round(reading(() => selectSize.get() as [number])[0])
      }
    }

    function add (given: NewRecord<T>) {
      const record = hasId(given) ? given : { ...given, id: generateId() }
      insert.run(valuesOf(record))
      return record
    }

    function generateId () {
      const [last] = selectLastId.get() as [number]
      const id = nextId(last, id => selectFirst.get([id]) !== undefined)
      keepLastId.run([id])
      return id
    }

    function addOnce (key: string, given: NewRecord<T>) {
      const digest = digestOf(encode(given))
      const use = selectUse.get([key, expiredBefore()]) as [string, number] | undefined
      const id = previousId(use && { digest: use[0], id: use[1] }, digest)
      if (id !== undefined) return { ...given, id }
      const record = add(given)
      keepUse.run([key, digest, record.id, Date.now()])
      forgetUses.run([expiredBefore()])
      return record
    }

    async function page (limit: number, after = 0) {
      const page = await shortPage((...piece) => reading(() => selectPiece.all(piece) as Row[]), limit, after)
      return page ?? longPage(reading(openSnapshot), timeout * stalledListTimeouts, limit, after)
    }

    /** Starts a read transaction on another connection. It sees the collection as of now. */
    function openSnapshot (): Snapshot {
      const reader = idleReaders.at(-1) ?? newReader()
      if (!reader.inTransaction) reader.exec('begin')
      reader.prepare(`select 1 from ${table} limit 1`).get() // the first read determines what the transaction sees
      const nextPiece = reader.prepare(pieces).raw()
      let free = false
      idleReaders.pop() // only after the transaction has started, so that a failure does not lose the connection
      return {
        async select (...piece) {
          // All lists together read one piece per turn of the event loop, so that other requests are not delayed.
          await (turn = turn.then(() => nextTurn()))
          return free ? [] : nextPiece.all(piece) as Row[]
        },
        selectEnd: (...end) => reading(() => reader.prepare(endSelection('?1', '?2')).raw().all(end) as Row[]),
        free () {
          free = true
          reader.exec('rollback')
          idleReaders.push(reader)
        }
      }
    }
  }

  /** Opens a connection for a list. Connections are reused, because libsql closes one only when its statements are collected. */
  function newReader () {
    if (readers === maxReaders) throw new StoreUnavailableError(new Error(`More than ${maxReaders} lists are being read`))
    check()
    const reader = new Database(path, { timeout: 10 })
    readers++
    reader.exec('pragma cache_size = -256')
    idleReaders.push(reader)
    return reader
  }

  /** Throws if the file was removed or replaced: writes to the open file would succeed and be lost. */
  function check () {
    if (statSync(path, { throwIfNoEntry: false })?.ino !== ino) throw new StoreUnavailableError(new Error(`The file ${path} was removed or replaced`))
  }

  async function inTransaction<T> (work: () => T) {
    try {
      check()
      await retryWhileBusy(() => database.exec('begin immediate'))
      const result = await work()
      database.exec('commit')
      return result
    } catch (error) {
      if (database.inTransaction) database.exec('rollback')
      throw error
    }
  }

  /** Executes one write of a transaction. If the record cannot be stored, only this write fails; other errors fail all. */
  function attempt ({ run }: Write) {
    try {
      return run()
    } catch (error) {
      if (error instanceof IdempotencyKeyReusedError || error instanceof NoIdLeftError) return error
      if (!database.inTransaction || !/^SQLITE_(CONSTRAINT|TOOBIG|MISMATCH)/.test(codeOf(error))) throw error
      return new NotStorableError('', 'is rejected by the database')
    }
  }

  function connections () {
    return { lists: { used: readers - idleReaders.length, idle: idleReaders.length, waiting: 0 } }
  }

  function close () {
    database.exec('pragma wal_checkpoint(truncate)') // moves everything from the WAL to the file
    for (const connection of [database, ...idleReaders]) connection.close()
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
    const isOutage = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN|NOMEM|PROTOCOL)/.test(codeOf(error))
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
        if (!codeOf(error).startsWith('SQLITE_BUSY') || Date.now() > deadline) throw error
        await sleep(5)
      }
    }
  }
}

function codeOf (error: unknown) {
  return error instanceof Database.SqliteError ? error.code : ''
}
