import type { FieldType } from '../fields.js'
import { ownName, type ActualColumn, type Change, type Database } from '../sql/database.js'
import { columnSql, literal, quoted, type Dialect, type Index, type Row, type Table } from '../sql/table.js'
import type { MaybePromise } from '../store.js'
import type { Connection } from './file.js'

export const dialect: Dialect = {
  // SQLite stores values of any type in a column, unless a condition prevents it.
  conditions: {
    integer: column => `typeof(${column}) = 'integer' and ${column} between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`,
    number: column => `typeof(${column}) = 'real' and abs(${column}) <= ${Number.MAX_VALUE}`,
    string: column => `typeof(${column}) = 'text'`,
    boolean: column => `${column} in (0, 1)`,
    json: column => `typeof(${column}) = 'text'`
  },
  random: below => `abs(random() % ${below})`,
  parameter: n => `?${n}`,
  isPresent: (column, type) => `${column} >= ${type === 'string' ? "''" : '-9e999'}`, // SQLite uses no index for `is not null`
  byCodePoint: column => column,
  hasKeysInTable: true,
  withoutIndex: column => `+${column}`
}

/** Expressions that convert the values of a column to JSON, by type. */
const toJson: Record<Exclude<FieldType, 'json'>, (column: string) => string> = {
  integer: column => `cast(${column} as text)`,
  number: column => `printf('%!.17g', ${column})`, // until `alter` writes it as JavaScript does
  string: column => `json_quote(${column})`,
  boolean: column => `iif(${column}, 'true', 'false')`
}

/** The triggers that count the changes of a table, by name. */
export function triggersOf (name: string) {
  return ['update', 'delete'].map(change => [`${name}:${change}`, `create trigger "${name}:${change}" after ${change} on "${name}"
    begin update collection_changes set changes = changes + 1 where collection = '${name}'; end`] as const)
}

/** A SQLite database for `migrate`. */
export function sqliteDatabase (connection: Connection): Database {
  const run = (sql: string) => connection.exec(sql)
  const query = (sql: string) => connection.prepare(sql).all() as Row[]
  return { kind: 'sqlite', query, run, read, alter, complete, foreignKeys: name => keysIn(sqlOf(name)), mayRecord: () => true }

  /** A column fits if the SQL of the table contains its definition. A foreign key that is not needed any more can be removed only with the table. */
  function read ({ name, table, position, columns }: Table) {
    const sql = sqlOf(name)
    const isKept = sql.includes(`position ${position}`) && keysIn(sql).every(({ key }) => columns.some(({ definition }) => definition.includes(quoted(key))))
    return new Map(query(`pragma table_info(${table})`).map(([, column, type, isRequired, value]): [string, ActualColumn] => {
      const needed = columns.find(({ name }) => name === column)
      const fits = isKept && sql.includes(`${needed?.column} ${needed?.definition}`)
      return [String(column), { type: String(type), isRequired: isRequired === 1, default: value === null ? undefined : String(value), fits, checks: [] }]
    }))
  }

  /** Adds columns, or rebuilds the table, because `alter table` cannot change a column, and SQLite 3.45 refuses a default such as 1.5. */
  function alter (needed: Table, changes: Change[], actual: Map<string, ActualColumn>) {
    const { table } = needed
    // SQLite reads and writes some numbers inexactly, so JavaScript converts them.
    const numbers = changes.filter(({ column: { type }, from }) => (from === 'number' && type === 'json') || (from === 'json' && type === 'number')).map(({ column: { column, type }, from }) =>
      ({ column, type, rows: query(`select ${positionIn(actual)}, ${column} from ${table} where ${from === 'json' ? `json_type(${column}) in ('integer', 'real')` : `${column} is not null`}`) }))
    if (changes.every(({ column, has }) => !has && (column.isOptional || (column.default !== undefined && column.type !== 'number')))) {
      for (const { column } of changes) run(`alter table ${table} add column ${columnSql(column)}`)
    } else rebuild(needed, changes, actual)
    for (const { column, type, rows } of numbers) {
      const update = connection.prepare(`update ${table} set ${column} = ? where position = ?`)
      for (const [row, value] of rows) update.run(type === 'number' ? Number(value) : JSON.stringify(value), row)
    }
    for (const { column: { column, type, default: value } } of changes) {
      if (type === 'number' && value) connection.prepare(`update ${table} set ${column} = ?1 where ${column} = ${value} and ${column} <> ?1`).run(Number(value.slice(1, -1)))
    }
  }

  function rebuild ({ name, table, position, columns }: Table, changes: Change[], actual: Map<string, ActualColumn>) {
    const rebuilt = quoted(`${name}:rebuilt`)
    const others = [...actual].filter(([name]) => name !== 'position' && columns.every(column => column.name !== name)).map(([name, { type, isRequired, default: value }]) => {
      const given = value === undefined ? '' : `${isRequired ? ' not null' : ''} default (${value})`
      return { column: quoted(name), value: quoted(name), sql: `${quoted(name)} ${type}${given}` }
    })
    const needed = columns.map(column => {
      const change = changes.find(change => change.column === column)
      const value = change && !change.has ? 'null' : converted(column.column, column.type, change?.from)
      return { column: column.column, sql: columnSql(column), value: column.default === undefined ? value : `coalesce(${value}, ${column.default})` }
    })
    const all = [{ column: 'position', sql: `position ${position}`, value: positionIn(actual) }, ...needed, ...others]
    const objects = objectsOf(name)
    // The last position is kept, so that positions of deleted records are not used again. What refers to the table stays as it is.
    run(`
      pragma legacy_alter_table = on;
      create table ${rebuilt} (${all.map(({ sql }) => sql).join(', ')});
      insert into sqlite_sequence select ${literal(`${name}:rebuilt`)}, seq from sqlite_sequence where name = ${literal(name)};
      insert into ${rebuilt} (${all.map(({ column }) => column).join(', ')}) select ${all.map(({ value }) => value).join(', ')} from ${table} order by 1;
      drop table ${table};
      alter table ${rebuilt} rename to ${table};
      pragma legacy_alter_table = off;
      ${objects.map(([, , sql]) => `${sql};`).join(' ')}`)
  }

  async function complete ({ name, indexes }: Table, isPossible: (index: Index) => MaybePromise<boolean>) {
    const needed = new Map([...indexes.map(({ name, sql }) => [name, sql] as const), ...triggersOf(name)])
    const objects = objectsOf(name)
    const previousNames = [`${name}_by_id`, `${name}_update`, `${name}_delete`]
    for (const [type, object, sql] of objects) {
      if (needed.get(object)?.toLowerCase() === sql.toLowerCase()) needed.delete(object)
      else if (ownName.test(object) || previousNames.includes(object)) run(`drop ${type} ${quoted(object)}`)
    }
    for (const [object, sql] of needed) {
      const index = indexes.find(({ name }) => name === object)
      if (!index || await isPossible(index)) run(sql)
    }
  }

  function sqlOf (name: string) {
    const [[sql = ''] = []] = query(`select sql from sqlite_schema where type = 'table' and name = ${literal(name)}`) as string[][]
    return sql
  }

  /** The type, name and SQL of the indexes and triggers of a table. */
  function objectsOf (name: string) {
    return query(`select type, name, sql from sqlite_schema where tbl_name = ${literal(name)} and type in ('index', 'trigger') and sql is not null`) as [string, string, string][]
  }
}

/** The position of a row, also in a table that an upgrade has created without the column. A field can have the name of the other one. */
function positionIn (actual: Map<string, ActualColumn>) {
  return actual.has('position') ? 'position' : 'rowid'
}

/** Our foreign keys in the SQL of a table. A default can have any text, and a name an apostrophe. */
function keysIn (sql: string) {
  return Array.from(sql.replaceAll(/'[^']*'|"[^"]*"/g, part => part.startsWith('"') ? part : '').matchAll(/constraint "([^"]+:fkey)" references "([^"]+)"/g), ([, key = '', target = '']) => ({ key, target }))
}

function converted (column: string, to: FieldType, from: FieldType = to) {
  if (from === to) return column
  return from === 'json' ? `json_extract(${column}, '$')` : to === 'json' ? `case when ${column} is not null then ${toJson[from](column)} end` : column
}
