import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { loadOptional, StartupError } from '../../common/startup.js'

/** A connection to a SQLite file: what node:sqlite and libsql have in common. */
export interface Database {
  exec (sql: string): unknown
  prepare (sql: string): Prepared
  close (): void
}

export interface Prepared {
  /** Runs the statement and returns its rows. */
  all (...values: unknown[]): unknown[]
  /** Runs the statement and returns its first row. */
  get (...values: unknown[]): unknown
}

/** Opens a connection that waits at most so many milliseconds while another one writes. */
export type Connect = (path: string, timeout: number) => Database

/** The part of node:sqlite that is used. The types of Node 20 do not have it. */
interface NodeSqlite {
  DatabaseSync: new (path: string, options: { timeout: number }) => Database
}

/** Loads node:sqlite or, for versions of Node that do not have it, libsql. */
export async function loadDriver (): Promise<Connect> {
  const nodeSqlite = process.getBuiltinModule('node:sqlite') as NodeSqlite | undefined
  if (nodeSqlite) return (path, timeout) => new nodeSqlite.DatabaseSync(path, { timeout })
  const { default: Libsql } = await loadOptional('libsql', 'store', () => import('libsql'))
  return function connect (path, timeout) {
    const database = new Libsql(path, { timeout })
    return {
      exec: sql => database.exec(sql),
      prepare (sql) {
        const statement = database.prepare(sql)
        return statement.reader ? statement : { ...statement, all: (...values) => [statement.run(...values)] }
      },
      close: () => { database.close() }
    }
  }
}

/** Primary result codes of SQLite: another connection writes, or an error that may be temporary. */
const busyCode = 5
/** Locked, out of memory, read-only, I/O error, full, cannot open, protocol. */
const outageCodes = [busyCode, 6, 7, 8, 10, 13, 14, 15]

function codeOf (error: unknown) {
  // The first is of node:sqlite, the second of libsql.
  const { errcode, rawCode = errcode } = Object(error) as { errcode?: number, rawCode?: number }
  return Number(rawCode) & 0xff // the higher bits are details
}

export function isBusy (error: unknown) {
  return codeOf(error) === busyCode
}

export function isOutage (error: unknown) {
  return outageCodes.includes(codeOf(error))
}

/** The path of the file, which is created with its folders. */
export function createFile (name: string) {
  if (name === ':memory:') throw new StartupError('sqlite::memory: is not supported. Set the option store to memory.')
  const path = resolve(name) // libsql would interpret some relative names as something other than a file
  mkdirSync(dirname(path), { recursive: true })
  closeSync(openSync(path, 'a'))
  return path
}

/** Locks a file for one service, and returns a function that unlocks it. The lock ends with the process. */
export function lockFile (path: string, connect: Connect) {
  const lock = connect(`${path}-lock`, 0)
  try {
    lock.exec('begin exclusive')
  } catch (error) {
    lock.close()
    if (!isBusy(error)) throw error
    throw new StartupError(`The SQLite file ${path} in the option store is in use, by another process or app. ` +
      'Stop it, or use PostgreSQL for several instances.')
  }
  return () => lock.close()
}
