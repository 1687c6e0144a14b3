import { NotStorableError } from '../errors.js'
import { encoderOf, fieldsOf, type Field, type FieldType } from '../fields.js'
import { digestOf, type Insert } from '../idempotency.js'
import { indexedFields, uniqueFields, type HasId, type MaybePromise, type StoreDefinition } from '../store.js'

/** The values of a record in the order of its fields, then its position. */
export type Row = unknown[]

/** Executes a statement and returns its rows. */
export type Query = (sql: string, values?: unknown[]) => MaybePromise<Row[]>

/** The table of a collection as its schema needs it. `fill` inserts the first records. */
export type Table = ReturnType<ReturnType<typeof tableOf>['tableWith']> & { fill? (query: Query): MaybePromise<unknown> }

/** An index that a table needs. */
export type Index = Table['indexes'][number]

/** A column that a table needs for a field. */
export interface Column extends Omit<Field, 'path'> {
  /** Its name in SQL. */
  column: string
  columnType: string
  check?: string
  /** Its type, presence and check in SQL. */
  definition: string
  /** Its default value in SQL. */
  default?: string
}

/** A foreign key that a table needs. */
export interface Reference extends Pick<Column, 'name' | 'column'> {
  /** The name of the constraint. */
  key: string
  /** The collection that it refers to. */
  target: string
}

/** What the databases write in different ways. */
export interface Dialect {
  /** Conditions for the values of a column, by type, so that other programs cannot store what a list could not return. */
  conditions: Partial<Record<FieldType, (column: string) => string>>
  random (below: number): string
  parameter (n: number, columnType: string): string
  /** A condition that a column is not null, for which an index can be used. */
  isPresent (column: string, type: FieldType): string
  /** A text that is compared by code point. */
  byCodePoint (column: string): string
  /** Whether foreign keys are in the definition of a table. */
  hasKeysInTable: boolean
  /** A column that is compared without its index. */
  withoutIndex (column: string): string
}

/** Column types for SQLite and PostgreSQL. JSON is stored as text, so that it is not changed. */
const columnTypes: Record<FieldType, string> = {
  integer: 'bigint', number: 'double precision', string: 'text', boolean: 'boolean', json: 'text'
}

/** The number of changes starts at a random number below this one, so that a new database has other ETags than the previous one. */
const changesStart = 1_000_000_000

/** The table of a collection: a column for each field, in which null means absent, and one for the position. */
export function tableOf<T extends HasId> ({ name, schema, upgrades = [], renames = {}, ...definition }: Omit<StoreDefinition<T>, 'seed'>, { conditions, random, byCodePoint, hasKeysInTable }: Dialect) {
  const encode = encoderOf(schema)
  const fields = fieldsOf(schema).map(field => ({ ...field, column: quoted(field.name), columnType: columnTypes[field.type], key: JSON.stringify(field.name) }))
  const jsonColumns = fields.flatMap(({ type }, n) => type === 'json' ? [n] : [])
  const columns = fields.map(({ column }) => column).join(', ')
  const table = quoted(name)
  const indexed = indexedFields(definition)
  const unique = uniqueFields(definition)
  const references = fields.flatMap((field): Reference[] => {
    const target = definition.references?.[field.name]
    return target === undefined ? [] : [{ name: field.name, column: field.column, target, key: `${name}:${shortened(field.name)}:fkey` }]
  })
  const valuesOf = (record: object): Row => fields.map(({ name, type }) => toColumn(Reflect.get(record, name), type))

  return {
    table,
    columns,
    fields,
    indexed,
    encode,
    valuesOf,

    /** The table for `migrate`: the definition of its positions, the columns of its index if ids may repeat, the last id that is used, and its triggers. */
    tableWith (position: string, index: string, lastId: number, ...triggers: string[]) {
      const needed = fields.map(({ default: value, ...field }): Column => {
        const { type, isOptional, column, columnType } = field
        const condition = conditions[type]?.(column)
        const check = condition && (isOptional ? `${column} is null or ${condition}` : condition)
        const given = isOptional || value === undefined ? undefined : sqlValue(toColumn(value, type))
        const reference = hasKeysInTable ? references.find(({ name }) => name === field.name) : undefined
        const definition = columnType + (isOptional ? '' : ' not null') + (check ? ` check (${check})` : '') + (reference ? ` ${keySql(reference)}` : '')
        return { ...field, check, definition, default: given }
      })
      // Each field that can be queried has an index.
      const indexes = fields.filter(({ name }) => name === 'id' || indexed.includes(name)).map(field => {
        const isUnique = unique.includes(field.name)
        const column = field.type === 'string' ? byCodePoint(field.column) : field.column
        const columns = isUnique ? column : field.name === 'id' ? index : `${column}, position`
        const indexName = `${name}:${field.name === 'id' ? 'id' : shortened(field.name)}${isUnique ? ':key' : ''}`
        const sql = `create ${isUnique ? 'unique ' : ''}index ${quoted(indexName)} on ${table} (${columns})`
        return { name: indexName, columns, sql, ...isUnique && { unique: field, isGenerated: !indexed.includes(field.name) } }
      })
      const creation = [
        `create table ${table} (${[`position ${position}`, ...needed.map(columnSql)].join(', ')})`,
        ...indexes.map(({ sql }) => sql),
        `insert into last_ids values ('${name}', ${lastId})`,
        `insert into collection_changes values ('${name}', ${random(changesStart)})`,
        ...triggers
      ]
      return { name, table, upgrades, renames, position, creation, columns: needed, indexes, references }
    },

    encodeValues,

    /** Encodes a row, in which another program may have written invalid JSON. */
    encodeRow (values: Row) {
      for (const n of jsonColumns) JSON.parse(String(values[n]))
      return encodeValues(values)
    },

    /** The approximate size of the texts of a record, in bytes. Many records have a batch of their own. */
    sizeOf: ({ records: [record], isMany }: Insert<T>) => isMany ? Infinity : valuesOf({ ...record }).reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0),

    checkText,

    /** Checks the texts of one record, or of many, whose paths start with their index. */
    checkTexts ({ records, isMany }: Insert<T>) {
      for (const [n, record] of records.entries()) checkText(record, isMany ? `/${n}` : '')
    },

    /**
     * Selects what identifies the state of the collection: the last record, because records are added only at the end, and
     * the number of other changes.
     */
    versionSelection (selected = columns) {
      return `
        select counted.changes, last.* from (select sum(changes) as changes from collection_changes where collection = '${name}') as counted
        left join (select ${selected}, position from ${table} order by position desc limit 1) as last on 1 = 1`
    }
  }

  /** Encodes the values of a record. What is JSON already stays as it is. */
  function encodeValues (values: Row) {
    if (jsonColumns.length === 0) {
      const record: Record<string, unknown> = {}
      fields.forEach(({ name, type }, n) => { record[name] = fromColumn(values[n], type) })
      return encode(record)
    }
    let json = ''
    fields.forEach(({ type, key }, n) => {
      if (values[n] !== null) json += `,${key}:${type === 'json' ? values[n] : JSON.stringify(fromColumn(values[n], type))}`
    })
    return `{${json.slice(1)}}`
  }

  /** Returns the record, unless it has text that the databases cannot store. */
  function checkText<R extends object> (record: R, parent = '') {
    for (const { name, path, type } of fields) {
      const value: unknown = Reflect.get(record, name)
      if (type !== 'string' || typeof value !== 'string') continue
      if (value.includes('\0')) throw new NotStorableError(parent + path, 'must not contain the character NUL, which the database cannot store')
      if (!value.isWellFormed()) throw new NotStorableError(parent + path, 'must be well-formed Unicode text')
    }
    return record
  }
}

/** A sum in SQL. SQLite limits the depth of an expression, so it is in two halves. */
export function sum (terms: string[]): string {
  const half = terms.length >> 1
  return half === 0 ? terms[0] ?? '0' : `(${sum(terms.slice(0, half))} + ${sum(terms.slice(half))})`
}

/** The SQL of a column in a new table. */
export function columnSql ({ column, definition, default: value }: Column) {
  return `${column} ${definition}${value === undefined ? '' : ` default ${value}`}`
}

/** A part of the name of an index or a key. It is a digest, because names are limited to 63 bytes. */
function shortened (field: string) {
  return digestOf(field).slice(0, 8)
}

/** The SQL of a foreign key: in the definition of its column, or added to a table, where it names the column. */
export function keySql ({ key, target }: Reference, column = '') {
  return `constraint ${quoted(key)} ${column}references ${quoted(target)} ("id")`
}

/** An identifier in SQL. */
export function quoted (name: string) {
  return `"${name.replaceAll('"', '""')}"`
}

/** A text in SQL. */
export function literal (text: string) {
  return `'${text.replaceAll("'", "''")}'`
}

/** The value of a column in SQL. Both databases convert the text to the type of the column. */
export function sqlValue (value: unknown) {
  return value === null ? 'null' : literal(String(value))
}

/** Converts the value of a field for its column. A boolean becomes a number, because libsql aborts the process on a boolean. */
export function toColumn (value: unknown, type: FieldType) {
  if (value === undefined) return null
  if (type === 'json') return JSON.stringify(value)
  return type === 'boolean' ? Number(value) : value
}

export function fromColumn (value: unknown, type: FieldType): unknown {
  if (value === null) return undefined
  return type === 'boolean' ? Boolean(value) : value
}
