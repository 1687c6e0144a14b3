import { StartupError } from '../../startup.js'
import type { MaybePromise } from '../store.js'
import { literal, quoted, type Row } from './table.js'

/** The table of a collection, and the SQL that creates its newest version. */
export interface Table {
  name: string
  creation: string[]
  upgrades: readonly string[]
  /** The definitions of its columns by name. */
  columns: Record<string, string>
  /** Inserts the first records. */
  fill? (query: Query): MaybePromise<unknown>
}

type Query = (sql: string, values?: unknown[]) => MaybePromise<Row[]>

/** The tables that all collections share: versions of tables, idempotency keys, last generated ids, and numbers of changes. */
export const sharedTables = [
  'create table collections (name text primary key, version integer not null, columns text not null)',
  `create table idempotency_keys (
    collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null,
    primary key (collection, key))`,
  'create table last_ids (collection text primary key, id bigint not null)',
  'create table collection_changes (collection text primary key, changes bigint not null)'
]

/** The number of changes starts at a random number below this one, so that a new database has other ETags than the previous one. */
export const changesStart = 1_000_000_000

/**
 * Creates missing tables, adds the columns of new optional fields, and runs upgrades. It needs a transaction that excludes others. If
 * all is up to date, it changes nothing, so that a role without DDL privileges can start.
 */
export async function migrate (query: Query, isNew: boolean, shared: string[], tables: Table[]) {
  if (isNew) for (const sql of shared) await query(sql)
  const rows = await query('select name, version, columns from collections')
  for (const table of tables) {
    const [, version, columns] = rows.find(([name]) => name === table.name) ?? []
    if (version !== undefined) await upgrade(query, table, Number(version), JSON.parse(String(columns)))
    else {
      for (const sql of table.creation) await query(sql)
      await query(`insert into collections (name, version, columns)
        values ('${table.name}', ${table.upgrades.length + 1}, ${literal(JSON.stringify(table.columns))})`)
      await table.fill?.(query)
    }
  }
}

async function upgrade (query: Query, table: Table, version: number, columns: Table['columns']) {
  const { name, upgrades } = table
  const newest = upgrades.length + 1
  if (version > newest) {
    throw new StartupError(`The table ${name} in the option store has version ${version}, but this release supports only up to version ${newest}. Use a newer release.`)
  }
  if (version < newest) {
    for (const sql of upgrades.slice(version - 1)) await query(sql)
    await query(`update collections set version = ${newest}, columns = ${literal(JSON.stringify(table.columns))} where name = '${name}'`)
    return
  }
  const differences = differencesOf(table, columns)
  if (differences.length > 0) {
    throw new StartupError(['The schema does not fit a table in the option store. Change the schema, or add SQL to upgrades:', ...differences].join('\n'))
  }
  const missing = Object.entries(table.columns).filter(([column]) => !Object.hasOwn(columns, column))
  for (const [column, definition] of missing) await query(`alter table "${name}" add column ${quoted(column)} ${definition}`)
  const all = literal(JSON.stringify({ ...columns, ...table.columns }))
  if (missing.length > 0) await query(`update collections set columns = ${all} where name = '${name}'`)
}

/** What cannot be changed automatically. A column that the schema does not have may be that of a newer release, if it is optional. */
function differencesOf ({ name, columns: needed }: Table, actual: Table['columns']) {
  const isRequired = (definition: string) => /^[a-z ]+ not null/.test(definition)
  return [...new Set([...Object.keys(needed), ...Object.keys(actual)])].filter(column => {
    const [need, has] = [needed[column], actual[column]]
    return need !== has && (need === undefined ? isRequired(String(has)) : has !== undefined || isRequired(need))
  }).map(column => `  ${name}.${column}: the table has ${actual[column] ?? 'no such column'}, the schema needs ${needed[column] ?? 'no such column'}`)
}
