import { statSync } from 'node:fs'
import { mkdir, open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import Database from 'libsql'
import { grouped } from './grouped.js'
import { patience, Unavailable, Unstorable, type Collection, type Engine, type EngineLimits, type Identified, type Store } from './store.js'
import { migrate, tableOf, type Row } from './table.js'

interface Write {
  run (): unknown
  /** How many bytes it brings, roughly. */
  size: number
}

/** How many lists may be read at once, each by a connection of its own. */
const maxReaders = 64

/** Keeps collections in a file. Writes that come together share one transaction, which is on disk when they are answered. */
export async function sqlite (name: string, { timeout }: EngineLimits): Promise<Engine> {
  const path = resolve(name) // so that it is a file, where libsql would take it for something else
  await mkdir(dirname(path), { recursive: true })
  await (await open(path, 'a')).close() // tells why it cannot be written, where SQLite gives a number
  const database = new Database(path, { timeout: 10 })
  await patiently(() => database.exec('pragma journal_mode = wal'))
  database.exec('pragma synchronous = full')
  const { ino } = statSync(path)

  const idleReaders: Database.Database[] = []
  let readers = 0
  let turn = Promise.resolve()

  /** Does these writes in one transaction, in their order. */
  const write = grouped(async function writeAll (writes: Write[]) {
    return inTransaction(() => writes.map(attempt)).catch(error => { throw unavailable(error) })
  }, { sizeOf: ({ size }) => size })

  return { open: openCollection, check, close }

  async function openCollection<T extends Identified> (collection: Collection<T>): Promise<Store<T>> {
    const { start } = collection
    const { table, columns, definition, encode, sizeOf, valuesOf, encodeRow, checkText, pageSelection, shortList, longList } = tableOf(collection)
    const insertion = `insert into ${table} (${columns}) values (${columns.replaceAll(/[^,]+/g, '?')})`
    const selectPage = pageSelection('?1', '?2')

    await inTransaction(async function createOrUpgrade () {
      const created = await migrate(sql => database.prepare(sql).all() as { version: number }[], collection, [
        `create table ${table} (position integer primary key autoincrement, ${definition})`,
        `create index "${collection.name}_by_id" on ${table} (id)`
      ])
      if (created) for (const record of start) database.prepare(insertion).run(valuesOf(record))
    })

    const insert = database.prepare(insertion)
    const selectFirst = database.prepare(`select ${columns} from ${table} where id = ? order by position limit 1`).raw()
    const firstPage = database.prepare(selectPage).raw()
    const deleteFirst = database.prepare(
      `delete from ${table} where position = (select position from ${table} where id = ? order by position limit 1)`)

    return {
      async append (record) {
        checkText(record)
        await write({ run: () => insert.run(valuesOf(record)), size: sizeOf(record) })
        return encode(record)
      },

      first (id) {
        const row = reading(() => selectFirst.get([id])) as Row | undefined
        return row && encodeRow(row)
      },

      async list () {
        const list = await shortList((...page) => reading(() => firstPage.all(page) as Row[]))
        return list ?? reading(listByReader)
      },

      async removeFirst (id) {
        const { changes } = await write({ run: () => deleteFirst.run([id]), size: 0 }) as { changes: number }
        return changes > 0
      }
    }

    /** Reads from a connection of its own, in a transaction, which sees the collection as of now. */
    function listByReader () {
      const reader = idleReaders.at(-1) ?? newReader()
      if (!reader.inTransaction) reader.exec('begin')
      reader.prepare(`select 1 from ${table} limit 1`).get() // the transaction sees what is there when it first looks
      const nextPage = reader.prepare(selectPage).raw()
      let free = false
      idleReaders.pop() // only now, so that one that could not begin is not lost
      return longList(async function select (...page) {
        // One page of all the lists a turn of the event loop, so that other requests get theirs.
        await (turn = turn.then(() => nextTurn()))
        return free ? [] : nextPage.all(page) as Row[]
      }, function giveBack () {
        free = true
        reader.exec('rollback')
        idleReaders.push(reader)
      }, timeout * patience)
    }
  }

  /** A connection is closed only when its statements are collected, so those of readers are kept for the next ones. */
  function newReader () {
    if (readers === maxReaders) throw new Unavailable(new Error('Too many lists are being read'))
    check()
    const reader = new Database(path, { timeout: 10 })
    readers++
    reader.exec('pragma cache_size = -256')
    idleReaders.push(reader)
    return reader
  }

  /** A file that is removed or replaced can still be written to, for nothing. */
  function check () {
    if (statSync(path, { throwIfNoEntry: false })?.ino !== ino) throw new Unavailable(new Error('The file is not there any more'))
  }

  async function inTransaction<T> (work: () => T) {
    try {
      check()
      await patiently(() => database.exec('begin immediate'))
      const result = await work()
      database.exec('commit')
      return result
    } catch (error) {
      if (database.inTransaction) database.exec('rollback')
      throw error
    }
  }

  /** Does one write of several: what cannot be stored fails alone, anything else fails them all. */
  function attempt ({ run }: Write) {
    try {
      return run()
    } catch (error) {
      if (!database.inTransaction || !/^SQLITE_(CONSTRAINT|TOOBIG|MISMATCH)/.test(codeOf(error))) throw error
      return new Unstorable('', 'is refused by the database')
    }
  }

  function close () {
    database.exec('pragma wal_checkpoint(truncate)') // so that the file is all there is
    for (const connection of [database, ...idleReaders]) connection.close()
  }

  /** Another process may be writing; this one goes on meanwhile. */
  async function patiently (action: () => void) {
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

function reading<T> (read: () => T) {
  try {
    return read()
  } catch (error) {
    throw unavailable(error)
  }
}

/** What another try may mend, such as a disk that is full, is not a failure of the service. */
function unavailable (error: unknown) {
  return /^SQLITE_(BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN|NOMEM|PROTOCOL)/.test(codeOf(error)) ? new Unavailable(error) : error
}

function codeOf (error: unknown) {
  return error instanceof Database.SqliteError ? error.code : ''
}
