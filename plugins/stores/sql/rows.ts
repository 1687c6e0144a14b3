import type { Row } from '../collection.js'
import type { Connection, Dialect, Given } from './connection.js'
import type { Table } from './tables.js'

/** Rows of a table, for a statement. */
function givenRows ({ columns }: Table, { types, positionType }: Dialect, rows: Row[]): Given {
  const typed = columns.map(({ name, type }) => [name, types[type]] as const)
  return {
    columns: { position: positionType, record: 'text', ...Object.fromEntries(typed) },
    rows: rows.map(({ position, json, values }) => [position, json, ...columns.map(({ field }) => values[field])])
  }
}

export async function insertRows ({ runFor, dialect }: Connection, table: Table, rows: Row[]) {
  const given = givenRows(table, dialect, rows)
  const names = Object.keys(given.columns)
  return runFor(given, from =>
    `insert into ${table.table} (${names}) select ${names.map(name => `given.${name}`)} from ${from}`)
}

/** Returns a condition of a statement, whose parameters are the name and the digest of the table. */
type Condition = (name?: string, digest?: string) => string

/** Updates rows, and returns one result for each. The id stays, so that its index does. */
export async function updateRows ({ runFor, dialect }: Connection, table: Table, rows: Row[], condition?: Condition) {
  const given = givenRows(table, dialect, rows)
  const names = Object.keys(given.columns).filter(name => name !== 'position' && name !== 'id')
  return runFor(given, (from, ...parameters) =>
    `update ${table.table} as stored set ${names.map(name => `${name} = given.${name}`)} from ${from}
    where stored.position = given.position${condition ? ` and ${condition(...parameters)}` : ''}
    returning 1 as written`,
  condition ? [table.name, table.digest] : [])
}
