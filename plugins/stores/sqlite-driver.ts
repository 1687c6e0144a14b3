import { loadOptional } from '../startup.js'

/** A connection to a SQLite file: what node:sqlite and libsql have in common. */
export interface Connection {
  exec (sql: string): void
  /** Prepares a statement whose rows are arrays. */
  prepare (sql: string): Statement
  readonly isTransaction: boolean
  close (): void
}

/** A prepared statement. Its parameters are values in order, or one object with values by name. */
interface Statement {
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
  /* c8 ignore next 3 -- each version of Node has one of the drivers; `npm run test:nodes` tests both */
  return nodeSqlite && 'setReturnArrays' in nodeSqlite.StatementSync.prototype
    ? withNodeSqlite(nodeSqlite)
    : withLibsql(await loadOptional('libsql', 'DATABASE_URL', () => import('libsql')))
}

/* c8 ignore start */
function withNodeSqlite ({ DatabaseSync }: NodeSqlite): Connect {
  return function connect (path, timeout) {
    const database = new DatabaseSync(path, { timeout })
    return {
      exec: sql => { database.exec(sql) },
      prepare (sql) {
        const statement = database.prepare(sql)
        statement.setReturnArrays(true)
        return statement
      },
      get isTransaction () { return database.isTransaction },
      close: () => { database.close() }
    }
  }
}

function withLibsql ({ default: Database }: { default: typeof import('libsql') }): Connect {
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

/** Primary result codes of SQLite. */
const codes = {
  busy: 5, locked: 6, outOfMemory: 7, readOnly: 8, ioError: 10, full: 13, cannotOpen: 14, protocol: 15, tooBig: 18, constraint: 19, mismatch: 20
}

/** Whether another connection writes. */
export function isBusy (error: unknown) {
  return codeOf(error) === codes.busy
}

/** Whether an error may be temporary, such as a full disk. */
export function isOutage (error: unknown) {
  const { busy, locked, outOfMemory, readOnly, ioError, full, cannotOpen, protocol } = codes
  return [busy, locked, outOfMemory, readOnly, ioError, full, cannotOpen, protocol].includes(codeOf(error))
}

/** A column that has no value although it needs one. It is not ours, because our values were validated. */
const missingValue = 1299

/** Whether the values of a statement cannot be stored. */
export function isRejection (error: unknown) {
  return [codes.tooBig, codes.constraint, codes.mismatch].includes(codeOf(error)) && extendedCode(error) !== missingValue
}

/** Whether an error comes from SQLite. */
export function isSqliteError (error: unknown) {
  return !Number.isNaN(extendedCode(error))
}

/** The primary result code of an error. The higher bits are details. */
function codeOf (error: unknown) {
  return extendedCode(error) & 0xff
}

/** The result code of an error: node:sqlite has it in `errcode` and libsql in `rawCode`. */
function extendedCode (error: unknown) {
  const { errcode, rawCode } = Object(error) as { errcode?: number, rawCode?: number }
  return Number(errcode ?? rawCode)
}
