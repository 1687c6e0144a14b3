import { maxCounted, violations } from '../errors.js'
import { ownName, type Database } from './database.js'
import { keySql, quoted, type Index, type Reference, type Table } from './table.js'

/** Compares unique indexes and foreign keys with what tables need. Records that violate one are a problem. */
export function constraintsOf ({ kind, query, run, foreignKeys }: Database, problems: string[]) {
  const isAdded = kind === 'postgres' // SQLite has the keys in the definition of the table
  const missing: { table: Table, reference: Reference }[] = []
  return { compareKeys, addKeys, isPossible }

  /** Drops foreign keys that are not needed any more, and remembers the missing ones until all tables exist. */
  async function compareKeys (table: Table) {
    const keys = await foreignKeys(table)
    const needed = table.references.map(({ key }) => key)
    for (const key of keys) if (isAdded && ownName.test(key) && !needed.includes(key)) await run(`alter table ${table.table} drop constraint ${quoted(key)}`)
    for (const reference of table.references) if (!keys.includes(reference.key)) missing.push({ table, reference })
  }

  async function addKeys () {
    for (const { table, reference } of missing) {
      const { name, column, target } = reference
      const values = await query(`
        select distinct ${column} from ${table.table} as t where ${column} is not null and not exists (
          select 1 from ${quoted(target)} as other where other.id = t.${column}) limit ${maxCounted + 1}`)
      if (values.length > 0) problems.push(violations.missing(`${table.name}.${name}`, target, values.flat()))
      else if (isAdded) await run(`alter table ${table.table} add ${keySql(reference, `foreign key (${column}) `)}`)
    }
  }

  /** Returns whether an index can be created. */
  async function isPossible ({ table, name }: Table, { unique }: Index) {
    if (!unique) return true
    const { column } = unique
    const values = await query(`select ${column} from ${table} where ${column} is not null group by ${column} having count(*) > 1 limit ${maxCounted + 1}`)
    if (values.length > 0) problems.push(violations.repeated(`${name}.${unique.name}`, values.flat()))
    return values.length === 0
  }
}
