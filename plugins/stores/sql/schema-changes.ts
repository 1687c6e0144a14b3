import { StartupError } from '../../common/startup.js'
import { seedOf } from '../collection.js'
import type { EngineOptions } from '../engine.js'
import { unfit } from '../store-errors.js'
import { columnType, quoted, type Connection, type Dialect } from './connection.js'
import { changeRecords } from './record-changes.js'
import { insertRows } from './rows.js'
import {
  creationOf, foreignKeysOf, indexesOf, sharedTables, type Column, type Constraint, type Shape, type Table
} from './tables.js'
import { missingTargets, repeatedValues } from './violations.js'

/** Runs work in a transaction. */
export type RunTransaction = <R>(work: (connection: Connection) => Promise<R>) => Promise<R>

export type ChangeOptions = Pick<EngineOptions, 'checkerOf' | 'log'>

/** A table whose schema is not that of this release. */
export interface SchemaChange {
  table: Table
  /** The columns that it has, if it exists. */
  before?: Column[] | undefined
  /** Whether this release is older than the one that has changed the schema. Then records stay as they are. */
  isOlder: boolean
}

/**
 * Creates and changes the tables that are not as this release needs them. Records, indexes and new tables change in
 * one transaction, or not at all. Each transaction asks again, because another instance may have changed the tables.
 */
export async function prepareTables (transaction: RunTransaction, tables: Table[], options: ChangeOptions) {
  await transaction(createSharedTables)
  const changes = await transaction(connection => changesOf(connection, tables))
  if (changes.length === 0) return
  // Readers wait for columns to be added and dropped, so each has a short transaction.
  await transaction(connection => addColumns(connection, tables))
  const unused = await transaction(connection => changeTables(connection, tables, options))
  await transaction(async ({ run }) => {
    for (const { table, column } of unused) await run(`alter table ${table} drop column ${column}`)
  })
}

async function createSharedTables ({ run, dialect }: Connection) {
  const columns = await run(dialect.columns, ['collections'])
  if (columns.length === 0) for (const text of sharedTables) await run(text)
  else if (!columns.some(({ name }) => name === 'digest')) {
    throw new StartupError('The database in the option store has the tables of version 0.1, ' +
      'which this release cannot read. Use a new database.')
  }
}

/** The tables that do not exist, or that have another digest. */
async function changesOf ({ run, one, dialect: { parameter } }: Connection, tables: Table[]) {
  const changes: SchemaChange[] = []
  for (const table of tables) {
    const current = await one(`select digest from collections where name = ${parameter(1)}`, [table.name])
    if (current?.digest === table.digest) continue
    const history = await run(
      `select digest, schema, at from collection_schemas where name = ${parameter(1)}`, [table.name])
    const entryOf = (digest: unknown) => history.find(entry => entry.digest === digest)
    const latest = entryOf(current?.digest)
    const own = entryOf(table.digest)
    const shape: Shape | undefined = latest && JSON.parse(String(latest.schema))
    changes.push({ table, before: shape?.columns, isOlder: Number(own?.at) < Number(latest?.at) })
  }
  return changes
}

/** Adds the columns of fields that can be queried from now on. One that exists was left by a start that did not end. */
async function addColumns (connection: Connection, tables: Table[]) {
  const { run, dialect } = connection
  await lockSchemas(connection)
  for (const { table, before } of await changesOf(connection, tables)) {
    if (!before) continue
    const existing = (await run(dialect.columns, [table.name])).map(({ name }) => quoted(String(name)))
    for (const column of table.columns.filter(({ name }) => !before.some(other => other.name === name))) {
      if (existing.includes(column.name)) await run(`alter table ${table.table} drop column ${column.name}`)
      await addColumn(connection, table, column)
    }
  }
}

async function addColumn ({ run, dialect }: Connection, { table }: Table, { name, type }: Column) {
  await run(`alter table ${table} add column ${name} ${columnType(dialect, type)}`)
}

/** Changes all records, indexes and foreign keys. Returns the columns that are not needed any more. */
async function changeTables (connection: Connection, tables: Table[], options: ChangeOptions) {
  await lockSchemas(connection)
  const changes = await changesOf(connection, tables)
  for (const { table, before } of changes) if (before) await lockTable(connection, table)
  await dropParts(connection, changes, foreignKeysOf)
  await dropParts(connection, changes, indexesOf)
  for (const change of changes) await replaceColumns(connection, change)

  const problems = changes.flatMap(idProblem)
  for (const change of changes) {
    if (change.before) problems.push(...await changeRecords(connection, change, options))
    else await createTable(connection, change.table)
  }
  for (const { table } of changes) problems.push(...await repeatedValues(connection, table))
  for (const { table } of changes) problems.push(...await missingTargets(connection, table))
  if (problems.length > 0) throw new StartupError(unfit(problems))

  await createParts(connection, changes, indexesOf)
  await createParts(connection, changes, foreignKeysOf)
  for (const change of changes) await recordChange(connection, change)
  return changes.flatMap(({ table: { table, columns }, before = [] }) => before
    .filter(({ name }) => !columns.some(column => column.name === name))
    .map(({ name }) => ({ table, column: name })))
}

function idProblem ({ table: { name, columns }, before = [] }: SchemaChange) {
  const typeIn = (columns: Column[]) => columns.find(({ field }) => field === 'id')?.type
  const isOther = before.length > 0 && typeIn(before) !== typeIn(columns)
  return isOther ? [`${name}: the type of the id cannot change`] : []
}

async function lockSchemas ({ run, dialect }: Connection) {
  const statement = dialect.lock('lock table collection_schemas in exclusive mode')
  if (statement) await run(statement)
}

/** Waits until no other transaction writes to a table. Others can read. */
async function lockTable ({ run, dialect: { lock, parameter } }: Connection, { name, table }: Table) {
  await run(`select 1 as locked from collections where name = ${parameter(1)}${lock(' for update')}`, [name])
  const statement = lock(`lock table ${table} in exclusive mode`)
  if (statement) await run(statement)
}

type PartsOf = (table: Table, columns: Column[], dialect: Dialect) => Map<string, Constraint>

async function dropParts ({ run, dialect }: Connection, changes: SchemaChange[], partsOf: PartsOf) {
  for (const { table, before = [] } of changes) {
    const parts = partsOf(table, before, dialect)
    for (const { drop } of missingIn(parts, partsOf(table, table.columns, dialect))) await run(drop)
  }
}

async function createParts ({ run, dialect }: Connection, changes: SchemaChange[], partsOf: PartsOf) {
  for (const { table, before = [] } of changes) {
    const parts = partsOf(table, table.columns, dialect)
    for (const { create } of missingIn(parts, partsOf(table, before, dialect))) await run(create)
  }
}

/** The parts that others do not have in the same way. */
function missingIn (parts: Map<string, Constraint>, others: Map<string, Constraint>) {
  return Array.from(parts)
    .filter(([name, part]) => JSON.stringify(others.get(name)) !== JSON.stringify(part))
    .map(([, part]) => part)
}

/** Replaces the columns that get another type. */
async function replaceColumns (connection: Connection, { table, before = [] }: SchemaChange) {
  for (const column of table.columns) {
    const isReplaced = before.some(({ name, type }) => name === column.name && type !== column.type)
    if (!isReplaced) continue
    await connection.run(`alter table ${table.table} drop column ${column.name}`)
    await addColumn(connection, table, column)
  }
}

/** Creates a table with its first records. */
async function createTable (connection: Connection, table: Table) {
  const { run, dialect } = connection
  const { rows, counter } = seedOf(table.collection)
  await run(creationOf(table, dialect))
  await run(`insert into collections (name, position, last_id, digest) values (${parameters(dialect, 4)})`,
    [table.name, counter.position, counter.lastId, table.digest])
  await insertRows(connection, table, rows)
}

/** Makes the digest of this release the current one, and keeps it in the history. Then other releases cannot write. */
async function recordChange ({ run, one, dialect }: Connection, { table: { name, digest, shape } }: SchemaChange) {
  const { parameter } = dialect
  const row = await one(`select max(at) as last from collection_schemas where name = ${parameter(1)}`, [name])
  const at = Math.max(Date.now(), Number(row?.last ?? 0) + 1)
  await run(`update collections set digest = ${parameter(1)} where name = ${parameter(2)}`, [digest, name])
  await run(`insert into collection_schemas (name, digest, schema, at) values (${parameters(dialect, 4)})
    on conflict do nothing`, [name, digest, JSON.stringify(shape), at])
}

function parameters ({ parameter }: Dialect, count: number) {
  return Array.from({ length: count }, (_, n) => parameter(n + 1)).join(', ')
}
