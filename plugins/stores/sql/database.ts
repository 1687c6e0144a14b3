import type { Field, FieldType } from '../fields.js'
import type { MaybePromise, StoreDefinition } from '../store.js'

/** The names of our indexes and triggers contain a character that the name of a collection cannot have. */
export const ownName = /^[a-z][a-z\d_]*:/

/** The values of a record in the order of its fields, then its position. */
export type Row = unknown[]

/** A column that a table needs for a field. */
export interface Column extends Omit<Field, 'path'> {
  /** Its name in SQL. */
  column: string
  columnType: string
  check?: string
  /** Its type, presence and check in SQL. */
  definition: string
  /** Its default value in SQL. */
  default?: string
}

/** The table of a collection as its schema needs it. */
export interface Table extends Required<Pick<StoreDefinition<never>, 'name' | 'upgrades' | 'renames'>> {
  /** Its name in SQL. */
  table: string
  /** The definition of the column for the position. */
  position: string
  columns: Column[]
  indexes: Index[]
  references: Reference[]
  /** The SQL that creates it. */
  creation: string[]
  /** Inserts the first records. */
  fill? (query: Query): MaybePromise<unknown>
}

/** An index that a table needs. */
export interface Index {
  name: string
  columns: string
  /** The SQL that creates it. */
  sql: string
  /** The field whose values no two records have in common. */
  unique?: Pick<Column, 'name' | 'column'>
  /** Whether the server generates these unique values, so that a role that may not create the index can do without it. */
  isGenerated?: boolean
}

/** A foreign key that a table needs. */
export interface Reference extends Pick<Column, 'name' | 'column'> {
  /** The name of the constraint. */
  key: string
  /** The collection that it refers to. */
  target: string
}

/** A column as the database has it. */
export interface ActualColumn {
  type: string
  isRequired: boolean
  default?: string
  /** Whether it has the type and the check of the needed column. */
  fits: boolean
  /** Its checks, the oldest one first, if they can be changed one by one. */
  checks: { name: string, sql: string }[]
}

/** A column to add or to change. */
export interface Change {
  column: Column
  /** What the table has, and the type of the values in it. */
  has?: ActualColumn
  from?: FieldType
  /** Whether a previous release has listed the values of the field in its check. */
  hasValueList?: boolean
}

/** Executes a statement and returns its rows. */
export type Query = (sql: string, values?: unknown[]) => MaybePromise<Row[]>

/** A database in a transaction. */
export interface Database {
  kind: 'sqlite' | 'postgres'
  query: Query
  /** Executes one or several statements. */
  run (sql: string): MaybePromise<unknown>
  /** Reads the columns of a table. */
  read (table: Table): MaybePromise<Actual>
  alter (table: Table, changes: Change[], actual: Actual): MaybePromise<unknown>
  /** Creates missing indexes and triggers of a table, and drops those that are not needed any more. An index is created if the function allows it. */
  complete (table: Table, isPossible: (index: Index) => MaybePromise<boolean>): MaybePromise<unknown>
  /** The names of the foreign keys of a table. */
  foreignKeys (table: Table): MaybePromise<string[]>
  /** Whether the role may change the table `collections`. */
  mayRecord (): MaybePromise<boolean>
}

/** The columns of a table by name. */
export type Actual = Map<string, ActualColumn>

/** What the databases write in different ways. */
export interface Dialect {
  /** Conditions for the values of a column, by type, so that other programs cannot store what a list could not return. */
  conditions: Partial<Record<FieldType, (column: string) => string>>
  /** A random number below another one. */
  random (below: number): string
  /** The parameter with this number. */
  parameter (n: number, columnType: string): string
  /** A condition that a column is not null, for which an index can be used. */
  isPresent (column: string, type: FieldType): string
  /** A text that is compared by code point. */
  byCodePoint (column: string): string
  /** Whether foreign keys are in the definition of a table. */
  hasKeysInTable: boolean
  /** A column that is compared without its index. */
  withoutIndex (column: string): string
}
