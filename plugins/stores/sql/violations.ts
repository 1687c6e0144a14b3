import { violations } from '../store-errors.js'
import { quoted, type Connection } from './connection.js'
import { valueIn, type Table } from './tables.js'

/** The unique fields of a table whose values repeat. */
export async function repeatedValues ({ one }: Connection, { name, table, columns }: Table) {
  const problems: string[] = []
  for (const { field, name: column, type, isUnique } of columns) {
    if (!isUnique) continue
    const row = await one(`select ${column} as value, count(*) over () as count from ${table}
      where ${column} is not null group by ${column} having count(*) > 1 order by ${column} limit 1`)
    if (row) problems.push(violations.repeated(`${name}.${field}`, Number(row.count), valueIn(row.value, type)))
  }
  return problems
}

/** The references of a table that lead to no record. */
export async function missingTargets ({ one }: Connection, { name, table, columns }: Table) {
  const problems: string[] = []
  for (const { field, name: column, type, target } of columns) {
    if (target === undefined) continue
    const row = await one(`select ${column} as value, count(*) over () as count from ${table} as referrer
      where ${column} is not null and not exists (
        select 1 from ${quoted(target)} as target where target.id = referrer.${column})
      group by ${column} order by ${column} limit 1`)
    if (row) problems.push(violations.missing(`${name}.${field}`, target, Number(row.count), valueIn(row.value, type)))
  }
  return problems
}
