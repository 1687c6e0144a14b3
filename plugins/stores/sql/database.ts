import type { FieldType } from '../fields.js'
import type { MaybePromise } from '../store.js'
import type { Column, Index, Query, Reference, Table } from './table.js'

/** The names of our indexes and triggers contain a character that the name of a collection cannot have. */
export const ownName = /^[a-z][a-z\d_]*:/

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

/** The name of a foreign key, and the table that it refers to. */
export type ForeignKey = Pick<Reference, 'key' | 'target'>

/** A column to add or to change. */
export interface Change {
  column: Column
  /** What the table has, and the type of the values in it. */
  has?: ActualColumn
  from?: FieldType
  /** Whether a previous release has listed the values of the field in its check. */
  hasValueList?: boolean
}

/** A database in a transaction. */
export interface Database {
  kind: 'sqlite' | 'postgres'
  query: Query
  /** Executes one or several statements. */
  run (sql: string): MaybePromise<unknown>
  read (table: Table): MaybePromise<Actual>
  alter (table: Table, changes: Change[], actual: Actual): MaybePromise<unknown>
  /** Creates missing indexes and triggers of a table, and drops those that are not needed any more. An index is created if the function allows it. */
  complete (table: Table, isPossible: (index: Index) => MaybePromise<boolean>): MaybePromise<unknown>
  /** The foreign keys of a table. On SQLite, only ours. */
  foreignKeys (table: string): MaybePromise<ForeignKey[]>
  /** Whether the role may change the table `collections`. */
  mayRecord (): MaybePromise<boolean>
}

/** The columns of a table by name. */
export type Actual = Map<string, ActualColumn>
