import type { TSchema } from '@sinclair/typebox'
import { mapSchema } from '../../../schemas/json-schema.js'
import { digestOf, type Collection } from '../collection.js'
import type { FieldType } from '../indexed-fields.js'
import type { Value } from '../query-plan.js'
import { columnType, quoted, type Dialect } from './connection.js'

/** A column for a field with an index. */
export interface Column {
  field: string
  /** Its name in SQL. */
  name: string
  type: FieldType
  isTime: boolean
  isUnique: boolean
  target?: string | undefined
}

/** What a table is made for. The history of a collection has the shapes that its table had. */
export interface Shape {
  schema: unknown
  columns: Column[]
}

/** The table of a collection. */
export type Table = ReturnType<typeof tableOf>

/** The tables of all collections. The schemas are apart, because each insert copies the row of its counter. */
export const sharedTables = [
  `create table if not exists collections (
    name text primary key, position bigint not null, last_id bigint not null, digest text not null)`,
  `create table if not exists collection_schemas (
    name text, digest text, schema text not null, at bigint not null, primary key (name, digest))`,
  `create table if not exists idempotency_keys (
    key text, collection text, digest text not null, response text not null, at bigint not null,
    primary key (key, collection))`,
  'create index if not exists idempotency_keys_by_age on idempotency_keys (at)'
]

const tables = new WeakMap<Collection, Table>()

/** Returns the table of a collection, which is made once. */
export function tableFor (collection: Collection) {
  const table = tables.get(collection) ?? tableOf(collection)
  tables.set(collection, table)
  return table
}

function tableOf (collection: Collection) {
  const { name, schema, fields, references, unique } = collection
  const targets = new Map(references)
  const columns = fields.map((field): Column => ({
    field: field.name,
    name: columnName(field.name),
    type: field.type ?? 'string',
    isTime: field.isTime,
    isUnique: unique.includes(field.name),
    target: targets.get(field.name)
  }))
  const shape: Shape = { schema: mapSchema(schema, withoutAnnotations), columns }
  return { collection, name, table: quoted(name), columns, shape, digest: digestOf(JSON.stringify(shape)) }
}

const annotations =
  /^(\$id|\$comment|title|description|examples?|deprecated|readOnly|default|expected|externalDocs|x-.*)$/

/** What a schema says about stored records. */
function withoutAnnotations (schema: TSchema) {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => !annotations.test(keyword)))
}

/** The names that our columns and the system columns of PostgreSQL have. */
const reserved = /^(position|record|tableoid|xmin|cmin|xmax|cmax|ctid)$/i

/** The name of the column of a field, in SQL. */
export function columnName (field: string) {
  if (field === 'id') return 'id'
  return quoted(reserved.test(field) ? `field:${field}` : field)
}

/** A value of a column. SQLite has no booleans. */
export function valueIn (column: unknown, type?: FieldType): Value {
  if (column === null || column === undefined) return undefined
  return type === 'boolean' ? Boolean(column) : column as Value
}

/** The statement that creates a new table, without its indexes. */
export function creationOf ({ name, table, columns }: Table, dialect: Dialect) {
  const typed = columns.map(({ name, type }) =>
    `${name} ${columnType(dialect, type)}${name === 'id' ? ' not null' : ''}`)
  // The usual name of a primary key could be that of another collection.
  const position = `position ${dialect.positionType} constraint ${quoted(`${name}:key`)} primary key`
  return `create table ${table} (${[position, 'record text not null', ...typed].join(', ')})`
}

/** A part of a table that can be dropped and created again. */
export interface Constraint {
  create: string
  drop: string
}

/** The indexes of a table with these columns, by name. */
export function indexesOf ({ name: collection, table }: Table, columns: Column[], { nullsFirst }: Dialect) {
  return new Map(columns.map(({ field, name, type, isUnique }): [string, Constraint & { type: FieldType }] => {
    const index = quoted(`${collection}:${field === 'id' ? 'id' : digestOf(field).slice(0, 8)}`)
    const kind = isUnique ? 'unique index' : 'index'
    const rest = isUnique ? '' : ', position'
    const create = `create ${kind} ${index} on ${table} (${name}${nullsFirst}${rest})`
    return [index, { type, create, drop: `drop index ${index}` }]
  }))
}

/** The foreign keys of a table with these columns, by name. */
export function foreignKeysOf ({ name: collection, table }: Table, columns: Column[], { hasForeignKeys }: Dialect) {
  return new Map(columns.flatMap(({ field, name, target }): [string, Constraint][] => {
    if (target === undefined || !hasForeignKeys) return []
    const key = quoted(`${collection}:${digestOf(field).slice(0, 8)}:fkey`)
    const create = `alter table ${table} add constraint ${key} foreign key (${name}) references ${quoted(target)} (id)`
    return [[key, { create, drop: `alter table ${table} drop constraint ${key}` }]]
  }))
}
