import { conflicts } from '../errors.js'
import { quoted, type Row } from '../sql/table.js'
import type { Connection } from './file.js'

/** The foreign keys of one column: table, column, the table and column that it refers to, and what happens when that is deleted. */
const foreignKeys = `
  select s.name, f."from", f."table", coalesce(f."to", (select name from pragma_table_info(f."table") where pk = 1))
  from sqlite_schema as s, pragma_foreign_key_list(s.name) as f
  where s.type = 'table' and f.id not in (select id from pragma_foreign_key_list(s.name) where seq > 0)`

/**
 * Returns a function that executes a statement for a table, and turns a violated constraint of its fields into a conflict. The
 * statement must be the first one of its call that changes anything, because only its own changes are undone.
 */
export function conflictFinder (connection: Connection, name: string, fields: { name: string }[]) {
  const isKnown = (column: unknown) => fields.some(field => field.name === column)

  /** A statement with the new record, if there is one, and the position of the existing record. */
  return function orConflict<R> (execute: () => R, record?: object, position?: unknown) {
    try {
      return execute()
    } catch (error) {
      const { message } = error as Error
      // Another program can make a constraint end the transaction.
      const conflict = !connection.isTransaction
        ? undefined
        : message.includes('FOREIGN KEY constraint failed') ? missing(record) ?? referred(record, position) : repeated(message)
      throw conflict ?? error
    }
  }

  function repeated (message: string) {
    const [, violated] = /UNIQUE constraint failed: (.+)/s.exec(message) ?? []
    const [first, ...others] = fields.filter(field => `, ${violated}, `.includes(`, ${name}.${field.name}, `)).map(({ name }) => name)
    return first === undefined ? undefined : conflicts.used(first, ...others)
  }

  /** A field of a new record whose value does not exist. SQLite does not say which one it is. */
  function missing (record: object = {}) {
    for (const [column, target, other] of all(`${foreignKeys} and s.name = ?`, name).map(([, ...key]) => key.map(String)) as [string, string, string][]) {
      const value: unknown = Reflect.get(record, column)
      if (isKnown(column) && value !== undefined && all(`select 1 from ${quoted(target)} where ${quoted(other)} = ?`, value).length === 0) return conflicts.missing(column, target)
    }
  }

  /** A table whose records refer to an existing record. If the record is changed, a field that they refer to. */
  function referred (record: object | undefined, position: unknown) {
    for (const [table, column, , own] of all(`${foreignKeys} and lower(f."table") = lower(?)`, name).map(key => key.map(String)) as [string, string, string, string][]) {
      const isFound = all(`
        select 1 from ${quoted(table)} as child, ${quoted(name)} as parent where parent.position = ? and child.${quoted(column)} = parent.${quoted(own)}
        ${table === name ? 'and child.position <> parent.position' : ''} limit 1`, position).length > 0
      if (isFound && (!record || isKnown(own))) return conflicts.referred(table, record && own)
    }
  }

  function all (sql: string, ...values: unknown[]) {
    return connection.prepare(sql).all(...values) as Row[]
  }
}
