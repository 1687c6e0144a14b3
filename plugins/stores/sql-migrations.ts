import { StartupError } from '../startup.js'
import { quoted } from './sql-table.js'
import type { MaybePromise } from './store.js'

/** The table of a collection, and the SQL that creates its newest version. */
export interface Table {
  name: string
  creation: string[]
  upgrades: readonly string[]
  /** The definitions of its columns by name. */
  columns: Record<string, string>
}

/** The tables that all collections share: versions of tables, idempotency keys, last generated ids, and numbers of changes. */
export const sharedTables = [
  'create table collections (name text primary key, version integer not null, columns text not null)',
  `create table idempotency_keys (
    collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null,
    primary key (collection, key))`,
  'create index idempotency_keys_by_age on idempotency_keys (at)',
  'create table last_ids (collection text primary key, id bigint not null)',
  'create table collection_changes (collection text primary key, changes bigint not null)'
]

/** The number of changes starts at a random number below this one, so that a new database has other ETags than the previous one. */
export const changesStart = 1_000_000_000

type Query = (sql: string) => MaybePromise<{ name?: string, version?: number, columns?: string }[]>

/**
 * Creates missing tables, adds the columns of new optional fields, and runs upgrades. Returns the names of the new tables. It
 * needs a transaction that excludes others. If all is up to date, it changes nothing, so that a role without DDL privileges
 * can start.
 */
export async function migrate (query: Query, isNew: boolean, shared: string[], tables: Table[]) {
  if (isNew) for (const sql of shared) await query(sql)
  const known = new Map((await query('select name, version, columns from collections')).map(row => [row.name, row]))
  const created: string[] = []
  for (const table of tables) {
    const row = known.get(table.name)
    if (row) await upgrade(query, table, Number(row.version), JSON.parse(String(row.columns)))
    else {
      for (const sql of table.creation) await query(sql)
      await query(`insert into collections (name, version, columns) values ('${table.name}', ${table.upgrades.length + 1}, ${literal(table.columns)})`)
      created.push(table.name)
    }
  }
  return created
}

async function upgrade (query: Query, table: Table, version: number, columns: Table['columns']) {
  const { name, upgrades } = table
  const newest = upgrades.length + 1
  if (version > newest) {
    throw new StartupError(`The table ${name} in the option store has version ${version}, but this release supports only up to version ${newest}. Use a newer release.`)
  }
  if (version < newest) {
    for (const sql of upgrades.slice(version - 1)) await query(sql)
    await query(`update collections set version = ${newest}, columns = ${literal(table.columns)} where name = '${name}'`)
    return
  }
  const differences = differencesOf(table, columns)
  if (differences.length > 0) {
    throw new StartupError(['The schema does not fit a table in the option store. Change the schema, or add SQL to upgrades:', ...differences].join('\n'))
  }
  const missing = Object.entries(table.columns).filter(([column]) => !Object.hasOwn(columns, column))
  for (const [column, definition] of missing) await query(`alter table "${name}" add column ${quoted(column)} ${definition}`)
  if (missing.length > 0) await query(`update collections set columns = ${literal({ ...columns, ...table.columns })} where name = '${name}'`)
}

/** What cannot be changed automatically. A column that the schema does not have may be that of a newer release, if it is optional. */
function differencesOf ({ name, columns: needed }: Table, actual: Table['columns']) {
  const isRequired = (definition: string) => /^[a-z ]+ not null/.test(definition)
  return [...new Set([...Object.keys(needed), ...Object.keys(actual)])].filter(column => {
    const [need, has] = [needed[column], actual[column]]
    return need !== has && (need === undefined ? isRequired(String(has)) : has !== undefined || isRequired(need))
  }).map(column => `  ${name}.${column}: the table has ${actual[column] ?? 'no such column'}, the schema needs ${needed[column] ?? 'no such column'}`)
}

function literal (columns: Table['columns']) {
  return `'${JSON.stringify(columns).replaceAll("'", "''")}'`
}
