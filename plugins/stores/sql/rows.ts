import type { Row } from '../collection.js'
import type { Connection, Dialect } from './connection.js'
import type { Table } from './tables.js'

/** The columns of a row, as those of a statement for rows. */
function columnsOf ({ columns }: Table, { types, positionType }: Dialect): Record<string, string> {
  const typed = columns.map(({ name, type }) => [name, types[type]])
  return { position: positionType, record: 'text', ...Object.fromEntries(typed) }
}

function valuesOf ({ columns }: Table, { position, json, values }: Row) {
  return [position, json, ...columns.map(({ field }) => values[field])]
}

export function insertRows ({ runFor, dialect }: Connection, table: Table, rows: Row[]) {
  return runFor(`insert ${table.name}`, rows.map(row => valuesOf(table, row)), function insertion () {
    const columns = columnsOf(table, dialect)
    const names = Object.keys(columns)
    return {
      columns,
      text: input => `insert into ${table.table} (${names}) select ${names.map(input.column)} ${input.table('from')}`
    }
  })
}

/** Returns a condition of a statement, whose parameters are the name and the digest of the table. */
type Condition = (name?: string, digest?: string) => string

/** Updates rows, and returns one result for each. An id never changes, so it is not written. */
export function updateRows ({ runFor, dialect }: Connection, table: Table, rows: Row[], condition?: Condition) {
  const values = condition ? [table.name, table.digest] : []
  const key = condition ? `update ${table.name}` : `convert ${table.name}`
  return runFor(key, rows.map(row => valuesOf(table, row)), function update () {
    const columns = columnsOf(table, dialect)
    const names = Object.keys(columns).filter(name => name !== 'position' && name !== 'id')
    return {
      columns,
      text: (input, ...parameters) =>
        `update ${table.table} as stored
        set ${names.map(name => `${name} = ${input.column(name)}`)} ${input.table('from')}
        where stored.position = ${input.column('position')}${condition ? ` and ${condition(...parameters)}` : ''}
        returning 1 as written`
    }
  }, values)
}
