import { StartupError } from '../../startup.js'
import { maxCountedId, type Row } from '../collection.js'
import { counted, unfit, violations } from '../errors.js'
import { isOfType } from '../fields.js'
import type { EngineOptions, MaybePromise } from '../store.js'
import { fitter, type Fit } from './fit.js'
import {
  creationOf, foreignKeysOf, fromColumn, indexesOf, quoted, sharedTables, type Dialect, type Shape, type Table
} from './tables.js'

/** What a change of schemas needs of a database, in a transaction. Parameters are written like those of its dialect. */
export interface Connection {
  run (text: string, ...values: unknown[]): MaybePromise<unknown[][]>
  hasTable (name: string): MaybePromise<boolean>
  /** The columns of a table, as SQL writes them. */
  columnsOf (table: Table): MaybePromise<string[]>
  insert (table: Table, rows: Row[]): MaybePromise<unknown>
  update (table: Table, rows: Row[]): MaybePromise<unknown>
  /** Waits until no other instance changes schemas. */
  lockSchemas (): MaybePromise<unknown>
  /** Waits until no other transaction writes to a table. Others can read. */
  lockTable (table: Table): MaybePromise<unknown>
}

/** Runs work in a transaction. */
export type Transaction = <R>(work: (connection: Connection) => Promise<R>) => Promise<R>

type Options = Pick<EngineOptions, 'checkerOf' | 'log'>

/** A table whose schema is not that of this release. */
interface Change {
  table: Table
  /** The table as it is, if it exists. */
  before?: Table | undefined
  /** Whether this release is older than the one that has changed the schema. Then records stay as they are. */
  isOlder: boolean
}

const recordsAtOnce = 1000
const progressInterval = 5000

/** Creates and changes the tables that are not as this release needs them: all of them or none. */
export async function prepareTables (transaction: Transaction, dialect: Dialect, tables: Table[], options: Options) {
  await transaction(createSharedTables)
  const isCurrent = await transaction(async connection => (await changesOf(connection, tables, dialect)).length === 0)
  if (isCurrent) return
  // Readers wait for columns to be added and dropped, so each has a short transaction.
  await transaction(connection => addColumns(connection, tables, dialect))
  const unused = await transaction(connection => changeAll(connection, tables, dialect, options))
  await transaction(async connection => {
    for (const { table, column } of unused) await connection.run(`alter table ${table} drop column ${column}`)
  })
}

async function createSharedTables (connection: Connection) {
  if (!await connection.hasTable('collections')) {
    for (const text of sharedTables) await connection.run(text)
  } else if (!await connection.hasTable('collection_schemas')) {
    throw new StartupError('The database in the option store has the tables of version 0.1, ' +
      'which this release cannot read. Use a new database.')
  }
}

/** The tables that do not exist, or that have another digest. */
async function changesOf (connection: Connection, tables: Table[], { parameter }: Dialect) {
  const changes: Change[] = []
  for (const table of tables) {
    const [current] = await connection.run(`select digest from collections where name = ${parameter(1)}`, table.name)
    if (current?.[0] === table.digest) continue
    const history = await connection.run(
      `select digest, schema, at from collection_schemas where name = ${parameter(1)}`, table.name)
    const entry = (digest: unknown) => history.find(([other]) => other === digest)
    const [, shape, at] = entry(current?.[0]) ?? []
    const [, , ownAt] = entry(table.digest) ?? []
    const before = current && withShape(table, JSON.parse(String(shape)))
    changes.push({ table, before, isOlder: ownAt !== undefined && Number(ownAt) < Number(at) })
  }
  return changes
}

function withShape (table: Table, shape: Shape): Table {
  return { ...table, shape, columns: shape.columns }
}

/** Adds the columns of fields that can be queried from now on. One that exists was left by a start that did not end. */
async function addColumns (connection: Connection, tables: Table[], dialect: Dialect) {
  await connection.lockSchemas()
  for (const { table, before } of await changesOf(connection, tables, dialect)) {
    if (!before) continue
    const existing = await connection.columnsOf(table)
    for (const { name, type } of table.columns) {
      if (before.columns.some(column => column.name === name)) continue
      if (existing.includes(name)) await connection.run(`alter table ${table.table} drop column ${name}`)
      await connection.run(`alter table ${table.table} add column ${name} ${dialect.columnTypes[type]}`)
    }
  }
}

/** Changes all records, indexes and foreign keys. Returns the columns that are not needed any more. */
async function changeAll (connection: Connection, tables: Table[], dialect: Dialect, options: Options) {
  await connection.lockSchemas()
  const changes = await changesOf(connection, tables, dialect)
  const existing = changes.filter(({ before }) => before)
  for (const { table } of existing) await connection.lockTable(table)
  for (const change of existing) await dropForeignKeys(connection, change, dialect)
  for (const change of existing) await dropIndexes(connection, change, dialect)

  const problems: string[] = []
  for (const change of changes) {
    if (change.before) problems.push(...await changeRecords(connection, change, options, dialect))
    else await createTable(connection, change.table, dialect)
  }
  for (const { table } of changes) problems.push(...await repeatedValues(connection, table))
  for (const { table } of changes) problems.push(...await missingTargets(connection, table))
  if (problems.length > 0) throw new StartupError(unfit(problems))

  for (const change of changes) await createIndexes(connection, change, dialect)
  for (const change of changes) await createForeignKeys(connection, change, dialect)
  for (const change of changes) await recordChange(connection, change, dialect)
  return existing.flatMap(({ table, before }) => Array.from(before?.columns ?? [], ({ name }) => name)
    .filter(name => !table.columns.some(column => column.name === name))
    .map(column => ({ table: table.table, column })))
}

/** The entries of one map that another one does not have in the same way. */
function missingIn<V> (entries: Map<string, V>, others: Map<string, V>) {
  return Array.from(entries).filter(([name, value]) => JSON.stringify(others.get(name)) !== JSON.stringify(value))
}

async function dropForeignKeys (connection: Connection, { table, before = table }: Change, dialect: Dialect) {
  for (const [key] of missingIn(foreignKeysOf(before, dialect), foreignKeysOf(table, dialect))) {
    await connection.run(`alter table ${table.table} drop constraint ${key}`)
  }
}

/** Drops indexes that change, and columns that get another type. */
async function dropIndexes (connection: Connection, { table, before = table }: Change, dialect: Dialect) {
  const changed = missingIn(indexesOf(before, dialect), indexesOf(table, dialect))
  for (const [index] of changed) await connection.run(`drop index ${index}`)
  for (const { name, type } of table.columns) {
    const hasOtherType = before.columns.some(column => column.name === name && column.type !== type)
    if (!hasOtherType) continue
    await connection.run(`alter table ${table.table} drop column ${name}`)
    await connection.run(`alter table ${table.table} add column ${name} ${dialect.columnTypes[type]}`)
  }
}

async function createIndexes (connection: Connection, { table, before }: Change, dialect: Dialect) {
  const existing = before ? indexesOf(before, dialect) : new Map()
  for (const [, { sql }] of missingIn(indexesOf(table, dialect), existing)) await connection.run(sql)
}

async function createForeignKeys (connection: Connection, { table, before }: Change, dialect: Dialect) {
  const existing = before ? foreignKeysOf(before, dialect) : new Map()
  for (const [, { sql }] of missingIn(foreignKeysOf(table, dialect), existing)) await connection.run(sql)
}

/** Creates a table with its first records. */
async function createTable (connection: Connection, table: Table, dialect: Dialect) {
  const { name, collection: { seed, encoderOf, valuesOf } } = table
  const { parameter } = dialect
  await connection.run(creationOf(table, dialect))
  const rows = seed.map((record, n) => {
    const { id } = record
    return { position: n + 1, id, record: encoderOf(record)(id), values: valuesOf(record) }
  })
  const lastId = Math.max(0, ...seed.map(({ id }) => id).filter(id => id <= maxCountedId))
  await connection.run(`insert into collections (name, position, last_id, digest)
    values (${parameter(1)}, ${parameter(2)}, ${parameter(3)}, ${parameter(4)})`,
  name, rows.length, lastId, table.digest)
  await connection.insert(table, rows)
}

/** Makes the digest of this release the current one, and keeps it in the history. Then other releases cannot write. */
async function recordChange (connection: Connection, { table }: Change, { parameter }: Dialect) {
  const { name, digest, shape } = table
  const [row] = await connection.run(`select max(at) from collection_schemas where name = ${parameter(1)}`, name)
  const last = row?.[0]
  const at = Math.max(Date.now(), Number(last ?? 0) + 1)
  await connection.run(`update collections set digest = ${parameter(1)} where name = ${parameter(2)}`, digest, name)
  await connection.run(`insert into collection_schemas (name, digest, schema, at)
    values (${parameter(1)}, ${parameter(2)}, ${parameter(3)}, ${parameter(4)}) on conflict do nothing`,
  name, digest, JSON.stringify(shape), at)
}

/** Reads all records, and writes those that change. Returns what is wrong with them. */
async function changeRecords (connection: Connection, change: Change, options: Options, { parameter }: Dialect) {
  const { checkerOf, log } = options
  const { table, before = table, isOlder } = change
  const { name, collection } = table
  const fit = fitter(collection, checkerOf)
  const hasNewColumns = table.columns.some(({ name, type }) =>
    !before.columns.some(column => column.name === name && column.type === type))
  const problems = new Map<string, { count: number, id: unknown }>()
  let checked = 0
  let nextProgress = Date.now() + progressInterval

  for (let last = 0; ;) {
    const rows = await connection.run(`select position, id, record from ${table.table}
      where position > ${parameter(1)} order by position limit ${recordsAtOnce}`, last)
    const changed: Row[] = []
    for (const [position, id, text] of rows) {
      const record = JSON.parse(String(text))
      const result: Fit = isOlder ? fit.asItIs(record) : fit.changed(record)
      for (const problem of result.problems) {
        const known = problems.get(problem) ?? { count: 0, id }
        problems.set(problem, { ...known, count: known.count + 1 })
      }
      const isNew = !isOlder && result.isChanged
      if (!hasNewColumns && !isNew) continue
      const values = collection.columns.map(({ type }, n) =>
        isOfType(result.values[n], type) ? result.values[n] : undefined)
      changed.push({ position: Number(position), id: Number(id), record: isNew ? result.text : String(text), values })
    }
    if (changed.length > 0 && (isOlder || problems.size === 0)) await connection.update(table, changed)
    checked += rows.length
    if (rows.length < recordsAtOnce) break
    last = Number(rows.at(-1)?.[0])
    if (Date.now() > nextProgress) {
      log?.info(`The schema of ${name} has changed: ${checked} records are checked`)
      nextProgress = Date.now() + progressInterval
    }
    await new Promise(setImmediate)
  }

  const sentences = Array.from(problems, ([problem, { count, id }]) =>
    `${name}: ${counted(count, 'record')} ${count === 1 ? 'does' : 'do'} not fit the schema, ` +
    `such as the one with id ${id}: ${problem}`)
  if (!isOlder) return sentences
  for (const sentence of sentences) log?.warn(`An older schema is used again. ${sentence}`)
  return []
}

async function repeatedValues (connection: Connection, { name, table, columns, shape: { hasUniqueIds } }: Table) {
  const id = { field: 'id', name: 'id', type: 'integer' as const }
  const unique = [...hasUniqueIds ? [id] : [], ...columns.filter(({ isUnique }) => isUnique)]
  const problems: string[] = []
  for (const { field, name: column, type } of unique) {
    const [row] = await connection.run(`select ${column}, count(*) over () from ${table}
      where ${column} is not null group by ${column} having count(*) > 1 order by ${column} limit 1`)
    if (row) problems.push(violations.repeated(`${name}.${field}`, Number(row[1]), fromColumn(row[0], type)))
  }
  return problems
}

async function missingTargets (connection: Connection, { name, table, columns }: Table) {
  const problems: string[] = []
  for (const { field, name: column, target } of columns) {
    if (target === undefined) continue
    const [row] = await connection.run(`select ${column}, count(*) over () from ${table} as referrer
      where ${column} is not null and not exists (
        select 1 from ${quoted(target)} as target where target.id = referrer.${column})
      group by ${column} order by ${column} limit 1`)
    if (row) problems.push(violations.missing(`${name}.${field}`, target, Number(row[1]), Number(row[0])))
  }
  return problems
}
