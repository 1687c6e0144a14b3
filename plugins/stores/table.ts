import { Readable } from 'node:stream'
import { encoderOf } from './encode.js'
import { CannotOpen, Unstorable, type Collection, type Eventually, type Identified } from './store.js'

/** The column types that both databases know, by the types of a schema. */
const columnTypes: Record<string, string> = { integer: 'bigint', number: 'double precision', string: 'text' }

/** How many records of a list are read at once: as many as possible whose texts take no more than these bytes. */
const pageSizes = [500, 20, 1]
const pageBytes = 1024 * 1024

/** The values of a record in the order of its fields, and in the end its position. */
export type Row = unknown[]

/** Runs the selection of a page, with the position to begin after and the most records that it may have. */
type SelectPage = (after: number, limit: number) => Eventually<Row[]>

/** How a collection is kept in a table: a column for each field, and one for the position. */
export function tableOf<T extends Identified> ({ name, schema }: Collection<T>) {
  const encode = encoderOf<T>(schema)
  const fields = Object.keys(schema.properties) as (keyof T & string)[]
  const types = fields.map(field => String(columnTypes[schema.properties[field]?.type]))
  const texts = fields.filter((_, n) => types[n] === 'text')
  const columns = fields.map(field => `"${field}"`).join(', ')
  const table = `"${name}"`

  return {
    table,
    types,
    columns,
    definition: fields.map((field, n) => `"${field}" ${types[n]} not null`).join(', '),
    encode,
    valuesOf: (record: T) => fields.map(field => record[field]),
    encodeRow,

    /** How many bytes the texts of a record take, roughly. */
    sizeOf: (record: T) => texts.reduce((sum, field) => sum + String(record[field]).length, 0),

    /** Refuses what neither database can keep. */
    checkText (record: T) {
      const field = texts.find(field => String(record[field]).includes('\0'))
      if (field) throw new Unstorable(`/${field}`, 'must not contain the character NUL, which the database cannot keep')
    },

    /** Selects a page, or nothing where its texts are too large to be read at once. */
    pageSelection (after: string, limit: string) {
      const next = `from ${table} where position > ${after}`
      const sizes = ['0', ...texts.map(field => `octet_length("${field}")`)].join(' + ')
      return `
        select ${columns}, position ${next} and (${limit} = 1 or ${pageBytes} >=
          (select sum(size) from (select ${sizes} as size ${next} order by position limit ${limit}) as sizes))
        order by position limit ${limit}`
    },

    /** The whole list, where it is no more than a page. */
    async shortList (select: SelectPage) {
      const { json, last } = await readPage(select, 0)
      return last ? `[${json}]` : undefined
    },

    /**
     * A list that is read page by page, as its reader takes it. When it ends, when its reader is gone, or when it has
     * waited too long for its reader, what it holds is freed.
     */
    longList (select: SelectPage, free: () => void, patience: number) {
      let position = 0
      const list = new Readable({
        async read () {
          clearTimeout(stalled)
          try {
            const page = await readPage(select, position)
            if (this.destroyed) return
            stalled = giveUpLater()
            const before = position === 0 ? '[' : page.json && ','
            position = page.position
            this.push(before + page.json + (page.last ? ']' : ''))
            if (page.last) this.push(null)
          } catch (error) {
            this.destroy(error as Error)
          }
        },
        destroy (error, done) {
          clearTimeout(stalled)
          free()
          done(error)
        }
      })
      // Who does not listen to the list, as none does who never reads it, does not want to hear that it is given up.
      list.on('error', () => {})
      let stalled = giveUpLater()
      return list

      function giveUpLater () {
        return setTimeout(() => list.destroy(new Error('The reader of a list has stalled')), patience).unref()
      }
    }
  }

  function encodeRow (values: Row) {
    const record: Partial<T> = {}
    fields.forEach((field, n) => { record[field] = values[n] as T[typeof field] })
    return encode(record as T)
  }

  async function readPage (select: SelectPage, after: number) {
    let rows: Row[] = []
    let last = false
    for (const limit of pageSizes) {
      rows = await select(after, limit)
      last = rows.length < limit
      if (rows.length > 0) break
    }
    return { json: rows.map(encodeRow).join(','), last, position: Number(rows.at(-1)?.at(-1)) }
  }
}

/**
 * Creates the table of a collection, or brings it to its newest version, and tells whether it was created. It asks
 * for a transaction that keeps all others out.
 */
export async function migrate (
  query: (sql: string) => Eventually<{ version?: number }[]>,
  { name, upgrades = [] }: Pick<Collection<Identified>, 'name' | 'upgrades'>,
  creation: string[]
) {
  const newest = upgrades.length + 1
  await query('create table if not exists collections (name text primary key, version integer not null)')
  const [row] = await query(`select version from collections where name = '${name}'`)
  if (row === undefined) {
    for (const sql of creation) await query(sql)
    await query(`insert into collections (name, version) values ('${name}', ${newest})`)
    return true
  }
  const version = Number(row.version)
  if (version > newest) {
    throw new CannotOpen(`The collection ${name} is at version ${version}, made by a newer release; this one knows it up to ${newest}.`)
  }
  for (const sql of upgrades.slice(version - 1)) await query(sql)
  await query(`update collections set version = ${newest} where name = '${name}'`)
  return false
}
