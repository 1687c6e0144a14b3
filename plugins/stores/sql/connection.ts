import type { FieldType } from '../fields.js'
import type { MaybePromise } from '../store.js'

/** A row of a result, by the names of its columns. */
export type ResultRow = Record<string, unknown>

/** A connection to a database. */
export interface Connection {
  dialect: Dialect
  /** Runs a statement. One whose text is always the same is prepared once. */
  run (text: string, values?: unknown[], isPrepared?: boolean): MaybePromise<ResultRow[]>
  /** Runs a statement for rows, which it reads from the table `given`. Without rows, it does nothing. */
  runFor (given: Given, statement: Statement, values?: unknown[]): MaybePromise<ResultRow[]>
}

/** Rows for a statement, whose columns have these names and types. */
export interface Given {
  columns: Record<string, string>
  rows: unknown[][]
}

/** Returns the text of a statement: `given` is for its `from`, and the other parameters are for its values. */
export type Statement = (given: string, ...parameters: string[]) => string

/** What the databases write in different ways. */
export interface Dialect {
  types: Record<FieldType, string>
  positionType: string
  /** The collation of a text, which orders it by code point. */
  collation: string
  /** A parameter of a statement. */
  parameter (n: number): string
  /** A clause that locks rows, such as ` for update`. It is empty if the database has one writer. */
  lock (clause: string): string
  /** The order of absent values in an index. In SQLite, they are the first ones without a word. */
  nullsFirst: string
  /** Whether tables have foreign keys. SQLite has one writer, which does not need them. */
  hasForeignKeys: boolean
  /** A statement that selects the `name` of each column of a table, if the table exists. */
  columns: string
}

/** An identifier in SQL. */
export function quoted (name: string) {
  return `"${name.replaceAll('"', '""')}"`
}

/** The type of the column of a field. */
export function columnType ({ types, collation }: Dialect, type: FieldType) {
  return type === 'string' ? types.string + collation : types[type]
}
