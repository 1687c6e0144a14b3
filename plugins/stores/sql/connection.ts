import type { FieldType } from '../indexed-fields.js'
import type { MaybePromise } from '../store.js'

/** A row of a result, by the names of its columns. */
export type ResultRow = Record<string, unknown>

/** A connection to a database. */
export interface Connection {
  dialect: Dialect
  /** Runs a statement. */
  run (text: string, values?: unknown[], options?: RunOptions): MaybePromise<ResultRow[]>
  /** Runs a statement that returns at most one row. */
  one (text: string, values?: unknown[], options?: RunOptions): MaybePromise<ResultRow | undefined>
  /** Runs a statement for rows, if there are any. It is written once for each name. */
  runFor (name: string, rows: unknown[][], write: () => RowStatement, values?: unknown[]): MaybePromise<ResultRow[]>
}

export interface RunOptions {
  /** Whether the statement is prepared once, because its text is always the same. Default: true. */
  isPrepared?: boolean
}

/** A statement for rows, whose columns have these names and types. The other parameters are for values. */
export interface RowStatement {
  columns: Record<string, string>
  text (input: Input, ...parameters: string[]): string
}

/**
 * The rows in the text of a statement: a table on PostgreSQL, such as `insert … select input.id from unnest($1) as
 * input (id)`, and parameters on SQLite, which runs it for each row: `insert … select ?1`.
 */
export interface Input {
  /** The value of a column. */
  column (name: string): string
  /** The table, between words of the statement that are for it. */
  table (before: string, after?: string): string
}

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
