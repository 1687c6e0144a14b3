import type { TSchema } from '@sinclair/typebox'
import type { Collection, Row } from '../collection.js'
import { digestOf } from '../digests.js'
import type { FieldType } from '../fields.js'

/** What the databases write in different ways. */
export interface Dialect {
  columnTypes: Record<FieldType, string>
  positionType: string
  /** A parameter of a statement. */
  parameter (n: number): string
  /** Absent values are the first ones of an order. In SQLite, they are that without a word. */
  nullsFirst: string
  nullsLast: string
  /** Whether tables have foreign keys. SQLite has one writer, which does not need them. */
  hasForeignKeys: boolean
}

/** A column for a field with an index. */
export interface Column {
  field: string
  type: FieldType
  /** Its name in SQL. */
  name: string
  isUnique: boolean
  target?: string | undefined
}

/** What a table is made for. */
export interface Shape {
  schema: unknown
  columns: Column[]
  hasUniqueIds: boolean
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

export function tableOf (collection: Collection) {
  const { name, schema, references, unique } = collection
  const targets = new Map(references)
  const columns = collection.columns.map((field): Column => ({
    field: field.name,
    type: field.type,
    name: columnName(field.name),
    isUnique: unique.includes(field.name),
    target: targets.get(field.name)
  }))
  const shape: Shape = { schema: withoutAnnotations(schema), columns, hasUniqueIds: unique.includes('id') }
  return {
    collection,
    name,
    table: quoted(name),
    columns,
    /** The names of the columns of a row, and its values in the same order. */
    names: ['position', 'id', 'record', ...columns.map(({ name }) => name)],
    valuesOf: ({ position, id, record, values }: Row) => [position, id, record, ...values.map(toColumn)],
    shape,
    digest: digestOf(JSON.stringify(shape))
  }
}

/** A boolean becomes a number, because libsql ends the process on a boolean. */
export function toColumn (value: unknown) {
  if (value === undefined) return null
  return typeof value === 'boolean' ? Number(value) : value
}

export function fromColumn (value: unknown, type?: FieldType) {
  if (value === null || value === undefined) return undefined
  return type === 'boolean' ? Boolean(value) : value as string | number
}

/** The names that our columns and the system columns of PostgreSQL have. */
const reserved = /^(position|id|record|tableoid|xmin|cmin|xmax|cmax|ctid)$/i

/** The name of the column of a field, in SQL. */
export function columnName (field: string) {
  if (field === 'id') return 'id'
  return quoted(reserved.test(field) ? `field:${field}` : field)
}

/** The statements that create a new table, without its indexes. */
export function creationOf ({ name, table, columns }: Table, { columnTypes, positionType }: Dialect) {
  const ofFields = columns.map(({ name, type }) => `, ${name} ${columnTypes[type]}`).join('')
  // The usual name of a primary key could be that of another collection.
  const position = `position ${positionType} constraint ${quoted(`${name}:key`)} primary key`
  return `create table ${table} (${position}, id bigint not null, record text not null${ofFields})`
}

/** The index of a column. Those of the ids have a name that no field has. */
export function indexName (collection: string, field: string) {
  return quoted(`${collection}:${field === 'id' ? 'id' : digestOf(field).slice(0, 8)}`)
}

/** The indexes of a table, by name, each with the statement that creates it. */
export function indexesOf ({ name, table, columns, shape: { hasUniqueIds } }: Table, { nullsFirst }: Dialect) {
  const all = [{ field: 'id', name: 'id', isUnique: hasUniqueIds, type: 'integer' }, ...columns]
  return new Map(all.map(column => {
    const index = indexName(name, column.field)
    const kind = column.isUnique ? 'unique index' : 'index'
    const rest = column.isUnique ? '' : ', position'
    const sql = `create ${kind} ${index} on ${table} (${column.name}${nullsFirst}${rest})`
    return [index, { sql, type: column.type }]
  }))
}

/** The foreign keys of a table, by name, each with the statement that creates it. */
export function foreignKeysOf ({ name, table, columns }: Table, { hasForeignKeys }: Dialect) {
  return new Map(columns.flatMap(({ field, name: column, target }) => {
    if (target === undefined || !hasForeignKeys) return []
    const key = quoted(`${name}:${digestOf(field).slice(0, 8)}:fkey`)
    const sql = `alter table ${table} add constraint ${key} foreign key (${column}) references ${quoted(target)} (id)`
    return [[key, { sql }] as const]
  }))
}

/** An identifier in SQL. */
export function quoted (name: string) {
  return `"${name.replaceAll('"', '""')}"`
}

const annotations = /^(\$id|\$comment|title|description|examples?|deprecated|readOnly|default|externalDocs|x-.*)$/
/** The keywords that contain schemas by name, and those that contain values. */
const named = ['$defs', 'definitions', 'dependentSchemas', 'patternProperties', 'properties']
const literal = ['const', 'enum']

/** What a schema says about stored records. */
function withoutAnnotations (schema: TSchema): unknown {
  if (Array.isArray(schema)) return schema.map(withoutAnnotations)
  if (typeof schema !== 'object' || schema === null) return schema
  return mapValues(schema, (value, keyword) => {
    if (annotations.test(keyword)) return undefined
    if (named.includes(keyword)) return mapValues(value, withoutAnnotations)
    return literal.includes(keyword) ? value : withoutAnnotations(value)
  })
}

function mapValues (object: object, change: (value: TSchema, name: string) => unknown) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value, name)]))
}
