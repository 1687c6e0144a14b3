import { Readable } from 'node:stream'
import { encoderOf } from './encode.js'
import { fieldsOf, type FieldType } from './fields.js'
import { digestOf } from './idempotency.js'
import { StartupError, NotStorableError, type Collection, type MaybePromise, type HasId, type Page } from './store.js'

/** Column types for SQLite and PostgreSQL. JSON is stored as text, so that it is not changed. */
const columnTypes: Record<FieldType, string> = {
  integer: 'bigint', number: 'double precision', string: 'text', boolean: 'boolean', json: 'text'
}

/** Number of records that are read at once: of a short list, and of a long one, where a piece has at most so many bytes. */
const shortSize = 1000
const pieceSizes = [500, 20, 1]
const pieceBytes = 1024 * 1024

/** Up to this number, records are counted. Beyond, the number is estimated from samples of positions. */
const maxCounted = 10_000
const samples = 50
const sampleSize = maxCounted / samples

/** The values of a record in the order of its fields, then its position. */
export type Row = unknown[]

/** Selects at most `limit` records after a position. */
type SelectPiece = (after: number, limit: number) => MaybePromise<Row[]>

/** Selects the positions of two records: the one that is so many places after a position, and the next one. */
type SelectEnd = (after: number, places: number) => MaybePromise<Row[]>

/** A consistent view of a collection from which a long list is read. `free` closes it. */
export interface Snapshot {
  select: SelectPiece
  selectEnd: SelectEnd
  free (): void
}

/** The table of a collection: a column for each field, in which null means absent, and one for the position. */
export function tableOf<T extends HasId> ({ name, schema }: Collection<T>) {
  const encode = encoderOf(schema)
  const fields = fieldsOf(schema).map(field => ({ ...field, column: quoted(field.name), columnType: columnTypes[field.type] }))
  const types = fields.map(({ columnType }) => columnType)
  const columns = fields.map(({ column }) => column).join(', ')
  const table = quoted(name)
  if (fields.some(({ name }) => name === 'position')) {
    throw new StartupError('The field position cannot be stored: the table has a column with this name for the order.')
  }

  return {
    table,
    types,
    columns,
    columnNames: fields.map(({ column }) => column),
    definition: fields.map(({ column, columnType, isOptional }) => `${column} ${columnType} ${isOptional ? '' : 'not'} null`).join(', '),
    encode,
    valuesOf,
    encodeRow,

    /** The approximate size of the texts of a record, in bytes. */
    sizeOf: (record: object) => valuesOf(record).reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0),

    /** Rejects text that the databases cannot store. */
    checkText (record: object) {
      for (const { name, type } of fields) {
        const value: unknown = Reflect.get(record, name)
        if (type !== 'string' || typeof value !== 'string') continue
        if (value.includes('\0')) throw new NotStorableError(`/${name}`, 'must not contain the character NUL, which the database cannot store')
        if (!value.isWellFormed()) throw new NotStorableError(`/${name}`, 'must be well-formed Unicode text')
      }
    },

    /** Selects a piece of a list, or nothing if its texts are too large to be read at once. */
    pieceSelection (after: string, limit: string, selected = columns) {
      const next = `from ${table} where position > ${after}`
      const texts = fields.filter(({ columnType }) => columnType === 'text')
      const sizes = ['0', ...texts.map(({ column }) => `coalesce(octet_length(${column}), 0)`)].join(' + ')
      return `
        select ${selected}, position ${next} and (${limit} = 1 or ${pieceBytes} >=
          (select sum(size) from (select ${sizes} as size ${next} order by position limit ${limit}) as sizes))
        order by position limit ${limit}`
    },

    endSelection (after: string, places: string) {
      return `select position from ${table} where position > ${after} order by position limit 2 offset ${places}`
    },

    /**
     * Selects the number of records: exact up to a limit; beyond, the number of positions from the first to the last, times
     * the share of them that have a record in evenly spread samples. (Names start with an underscore because a collection
     * could have a name without one.)
     */
    sizeSelection: `
      with recursive _samples (n) as (select 0 union all select n + 1 from _samples where n < ${samples - 1}),
      _bounds as (select first, (select max(position) from ${table}) - first + 1 as span from (select min(position) as first from ${table}) as t),
      _starts as (select first + span * n / ${samples} as start, span from _bounds, _samples),
      _estimate as (
        select max(span) * sum((select count(*) from ${table} where position >= start and position < start + ${sampleSize})) / ${maxCounted} as size
        from _starts
      )
      select case when size <= ${maxCounted} then size else (select size from _estimate) end
      from (select count(*) as size from (select 1 from ${table} limit ${maxCounted + 1}) as t) as counted`,

    /**
     * Selects what identifies the state of the collection: the last record, because records are added only at the end, and
     * the number of other changes.
     */
    versionSelection (selected = columns) {
      return `
        select changes, last.* from collection_changes
        left join (select ${selected}, position from ${table} order by position desc limit 1) as last on true
        where collection = '${name}'`
    },

    /** Returns a page if it is short enough to be read at once. */
    async shortPage (select: SelectPiece, limit: number, after: number): Promise<Page | undefined> {
      const size = Math.min(limit, shortSize)
      const rows = await select(after, size + 1)
      const isMore = rows.length > size
      if (isMore && size < limit) return
      if (rows.length === 0 && (await select(after, 1)).length > 0) return
      const given = rows.slice(0, size)
      return { list: `[${given.map(encodeRow).join(',')}]`, ...isMore && { next: positionOf(given) } }
    },

    /**
     * Returns a page as a stream that reads one piece at a time. The snapshot is freed when the stream ends, when the client
     * disconnects, or when the client has not read anything for too long.
     */
    async longPage (snapshot: Snapshot, stallTimeout: number, limit: number, after: number): Promise<Page> {
      let position = after
      let left = limit
      const list = new Readable({
        async read () {
          clearTimeout(stalled)
          try {
            const piece = await readPiece(snapshot.select, position, left)
            if (this.destroyed) return
            stalled = giveUpLater()
            const before = position === after ? '[' : piece.json && ','
            position = piece.position
            left -= piece.size
            const last = piece.last || left === 0
            this.push(before + piece.json + (last ? ']' : ''))
            if (last) this.push(null)
          } catch (error) {
            this.destroy(error as Error)
          }
        },
        destroy (error, done) {
          clearTimeout(stalled)
          snapshot.free()
          done(error)
        }
      })
      // Without a listener, the error of a stream that nobody reads would end the process.
      list.on('error', () => {})
      let stalled = giveUpLater()
      return { list, next: limit === Infinity ? undefined : await nextOf() }

      function giveUpLater () {
        return setTimeout(() => list.destroy(new Error('The client does not read the list')), stallTimeout).unref()
      }

      async function nextOf () {
        try {
          const [last, behind] = await snapshot.selectEnd(after, limit - 1)
          return behind && positionOf([last])
        } catch (error) {
          list.destroy()
          throw error
        }
      }
    }
  }

  function valuesOf (record: object): Row {
    return fields.map(({ name, type }) => toColumn(Reflect.get(record, name), type))
  }

  function encodeRow (values: Row) {
    const record: Record<string, unknown> = {}
    fields.forEach(({ name, type }, n) => { record[name] = fromColumn(values[n], type) })
    return encode(record)
  }

  async function readPiece (select: SelectPiece, after: number, left: number) {
    let rows: Row[] = []
    let last = false
    for (const size of pieceSizes) {
      const limit = Math.min(size, left)
      rows = await select(after, limit)
      last = rows.length < limit
      if (rows.length > 0) break
    }
    return { json: rows.map(encodeRow).join(','), last, size: rows.length, position: positionOf(rows) }
  }
}

function quoted (name: string) {
  return `"${name.replaceAll('"', '""')}"`
}

/** Converts the value of a field for its column. A boolean becomes a number, because libsql aborts the process on a boolean. */
function toColumn (value: unknown, type: FieldType) {
  if (value === undefined) return null
  if (type === 'json') return JSON.stringify(value)
  return type === 'boolean' ? Number(value) : value
}

function fromColumn (value: unknown, type: FieldType): unknown {
  if (value === null) return undefined
  if (type === 'json') return JSON.parse(String(value))
  return type === 'boolean' ? Boolean(value) : value
}

/** A table and the SQL that creates its newest version. */
export interface Table extends Pick<Collection<HasId>, 'name' | 'upgrades'> {
  creation: string[]
}

/** The table of the idempotency keys. */
export const idempotencyTable: Table = {
  name: 'idempotency_keys',
  creation: [
    `create table idempotency_keys (
      collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null,
      primary key (collection, key))`,
    'create index idempotency_keys_by_age on idempotency_keys (at)'
  ]
}

/** The table of the last generated ids. */
export const lastIdsTable: Table = {
  name: 'last_ids',
  creation: ['create table last_ids (collection text primary key, id bigint not null)']
}

/** The table with the number of updates and deletions in each collection. Triggers count them, also those of other programs. */
export const changesTable: Table = {
  name: 'collection_changes',
  creation: ['create table collection_changes (collection text primary key, changes bigint not null)']
}

/** The number of changes starts at a random number below this one, so that a new database has other ETags than the previous one. */
export const changesStart = 1_000_000_000

/** The version of a collection, from the rows of `versionSelection`. */
export function versionOf (rows: Row[]) {
  return digestOf(JSON.stringify(rows))
}

/** The position of the last of these rows. */
function positionOf (rows: (Row | undefined)[]) {
  return Number(rows.at(-1)?.at(-1))
}

/** The table with the version of every table. */
const versionsTable = 'create table collections (name text primary key, version integer not null)'

/**
 * Creates missing tables and upgrades old ones, and returns the names of those that were created. It needs a transaction
 * that excludes others. If all tables are up to date, it changes nothing, so that a role without DDL privileges can start.
 */
export async function migrate (query: (sql: string) => MaybePromise<{ name?: string, version?: number }[]>, isNew: boolean, tables: Table[]) {
  if (isNew) await query(versionsTable)
  const versions = new Map((await query('select name, version from collections')).map(({ name, version }) => [name, Number(version)]))
  const created: string[] = []
  for (const { name, creation, upgrades = [] } of tables) {
    const newest = upgrades.length + 1
    const version = versions.get(name)
    if (version === undefined) {
      for (const sql of creation) await query(sql)
      await query(`insert into collections (name, version) values ('${name}', ${newest})`)
      created.push(name)
    } else if (version > newest) {
      throw new StartupError(`The table ${name} in DATABASE_URL has version ${version}, but this release supports only up to version ${newest}. Use a newer release.`)
    } else if (version < newest) {
      for (const sql of upgrades.slice(version - 1)) await query(sql)
      await query(`update collections set version = ${newest} where name = '${name}'`)
    }
  }
  return created
}
