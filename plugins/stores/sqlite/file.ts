import { copyFileSync, existsSync, renameSync, rmSync, statSync } from 'node:fs'
import { mkdir, open, realpath } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { loadOptional, StartupError } from '../../startup.js'
import { StoreUnavailableError } from '../errors.js'

/** A connection to a SQLite file: what node:sqlite and libsql have in common. */
export interface Connection {
  exec (sql: string): void
  /** Prepares a statement whose rows are arrays. */
  prepare (sql: string): Statement
  readonly isTransaction: boolean
  close (): void
}

/** A prepared statement. Its parameters are values in order, or one object with values by name. */
export interface Statement {
  run (...parameters: unknown[]): { changes: number | bigint }
  get (...parameters: unknown[]): unknown
  all (...parameters: unknown[]): unknown[]
}

/** Opens a connection that waits at most so many milliseconds while another one writes. */
export type Connect = (path: string, timeout: number) => Connection

/** The part of node:sqlite that is used. Node 20 and its types do not have it. */
interface NodeSqlite {
  DatabaseSync: new (path: string, options: { timeout: number }) => Omit<Connection, 'prepare'> & {
    prepare (sql: string): Statement & { setReturnArrays (enabled: boolean): void }
  }
  StatementSync: { prototype: object }
}

/** Loads node:sqlite, which is faster, or libsql for versions of Node that do not have it. */
export async function loadDriver (): Promise<Connect> {
  const nodeSqlite = process.getBuiltinModule('node:sqlite') as NodeSqlite | undefined
  /* c8 ignore start -- each version of Node has one of the drivers; `npm run test:nodes` tests both */
  if (nodeSqlite && 'setReturnArrays' in nodeSqlite.StatementSync.prototype) {
    class Database extends nodeSqlite.DatabaseSync {
      override prepare (sql: string) {
        const statement = super.prepare(sql)
        statement.setReturnArrays(true)
        return statement
      }
    }
    return (path, timeout) => new Database(path, { timeout })
  }
  const { default: Database } = await loadOptional('libsql', 'store', () => import('libsql'))
  return function connect (path, timeout) {
    const database = new Database(path, { timeout })
    return {
      exec: sql => { database.exec(sql) },
      prepare (sql) {
        const statement = database.prepare(sql)
        return statement.reader ? statement.raw() : statement
      },
      get isTransaction () { return database.inTransaction },
      close: () => { database.close() }
    }
  }
}
/* c8 ignore stop */

/** Primary result codes of SQLite: another connection writes, other errors that may be temporary, and values that cannot be stored. */
const kinds = {
  busy: [5],
  outage: [6, 7, 8, 10, 13, 14, 15], // locked, out of memory, read-only, I/O error, full, cannot open, protocol
  rejection: [18, 19, 20] // too big, constraint, mismatch
}

/** The kind of an error, if it is an error of SQLite. A column without a value (1299) is not ours, because our values were validated. */
export function kindOf (error: unknown) {
  const { errcode, rawCode = errcode } = Object(error) as { errcode?: number, rawCode?: number } // of node:sqlite, of libsql
  if (rawCode === undefined) return
  const [kind = 'other'] = Object.entries(kinds).find(([, codes]) => codes.includes(rawCode & 0xff)) ?? [] // the higher bits are details
  return rawCode === 1299 ? 'other' : kind
}

/** The path of the file, or an error if it is not clear which file is meant. */
export function pathOf (name: string) {
  if (name === ':memory:') throw new StartupError('sqlite::memory: is not supported. Set the option store to memory.')
  if (name.startsWith('//')) {
    const file = name.replace(/^\/+/, '')
    throw new StartupError(`The option store is ambiguous. Use sqlite:${file} for a relative path, or sqlite:/${file} for an absolute path.`)
  }
  return resolve(name) // libsql would interpret some relative names as something other than a file
}

/**
 * Creates the file if it is missing. This fails with a clearer message than SQLite does. Returns its path without symbolic
 * links, because SQLite places its other files beside the real one.
 */
export async function createFile (path: string) {
  await makeFolder(dirname(path))
  await (await open(path, 'a')).close()
  return realpath(path)
}

/** Creates a folder and its parents. (Node's recursive mkdir does not return in /proc.) */
async function makeFolder (folder: string): Promise<void> {
  if (existsSync(folder)) return
  await makeFolder(dirname(folder))
  await mkdir(folder).catch(error => { if (!existsSync(folder)) throw error }) // another app may have created it meanwhile
}

/** The files that this process uses, and how often. */
const uses = new Map<string, { count: number, lock: Connection }>()

/**
 * Locks the file and returns a function that releases it. Several processes can corrupt a file in WAL mode until SQLite
 * 3.51.3, so an older SQLite needs the file alone. The lock is an open transaction of another file, so that it ends with the process.
 */
export function lockFile (path: string, connect: Connect) {
  const file = `${path}-lock`
  const use = uses.get(path) ?? { count: 0, lock: connect(file, 0) }
  try {
    /* c8 ignore next -- each version of Node has one SQLite */
    if (use.count === 0) use.lock.exec(canShare(use.lock) ? 'begin; select * from sqlite_schema' : 'begin exclusive')
  } catch (error) {
    use.lock.close()
    throw kindOf(error) === 'busy'
      ? new StartupError(`The SQLite file ${path} in the option store is used by another process. Stop it, or use PostgreSQL for several instances.`)
      : error
  }
  use.count++
  uses.set(path, use)
  return function release () {
    if (--use.count > 0) return
    uses.delete(path)
    try {
      use.lock.exec('rollback; begin exclusive') // so that nobody locks a removed file
      for (const name of [file, `${file}-journal`]) rmSync(name, { force: true })
    } catch {
      // Another process holds the lock too, or the folder is gone.
    }
    use.lock.close()
  }
}

/** Whether several processes can use one file. */
export function canShare (connection: Connection) {
  const [version] = connection.prepare('select sqlite_version()').get() as [string]
  return version.localeCompare('3.51.3', 'en', { numeric: true }) >= 0
}

/** Watches an open file and its WAL. If others remove or replace one of them, writes to the open files would succeed and be lost. */
export function watchFiles (path: string) {
  const inode = inodeOf(path)
  /** Identifies the WAL and its index. */
  let wal: string | undefined
  let lastCommit = Date.now()
  const inodesOfWal = () => `${inodeOf(`${path}-wal`)} ${inodeOf(`${path}-shm`)}`
  const isWalRemoved = () => wal !== undefined && inodesOfWal() !== wal
  return { check, committed, moveWal }

  function check () {
    if (inodeOf(path) !== inode) throw new StoreUnavailableError(new Error(`The file ${path} was removed or replaced`))
    if (isWalRemoved()) throw new StoreUnavailableError(new Error(`The file ${path}-wal or ${path}-shm was removed or replaced. Restart the service`))
  }

  function committed () {
    lastCommit = Date.now()
    wal ??= inodesOfWal()
  }

  /** Moves everything from the WAL to the file, and removes the WAL. If others have restored the file without it, their content stays. */
  function moveWal (connection: Connection) {
    if (inodeOf(path) !== inode) return
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
}

/** Identifies a file, also if another file replaces it under the same name. */
function inodeOf (path: string) {
  return statSync(path, { throwIfNoEntry: false })?.ino
}
