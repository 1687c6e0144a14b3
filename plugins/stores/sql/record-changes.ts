import { setImmediate as nextTurn } from 'node:timers/promises'
import type { ValueProblem } from '../../../schemas/error-body.js'
import type { Collection, Row } from '../collection.js'
import { isOfType } from '../indexed-fields.js'
import { counted, NotStorableError } from '../store-errors.js'
import type { AnyRecord, Id } from '../store.js'
import type { Connection } from './connection.js'
import { updateRows } from './rows.js'
import type { ChangeOptions, SchemaChange } from './schema-changes.js'
import type { Table } from './tables.js'

const recordsAtOnce = 1000
const progressInterval = 5000

/** How many records have a problem, and the id of one. */
type Problems = Map<string, { count: number, id: unknown }>

/** Reads all records, and writes those that change. Returns what is wrong with them. */
export async function changeRecords (connection: Connection, change: SchemaChange, options: ChangeOptions) {
  const { table, isOlder } = change
  const fit = isOlder ? asItIs(table.collection, options) : upToDate(table.collection, options)
  const writesAll = hasNewColumns(change)
  const report = progress(table, options)
  const problems: Problems = new Map()

  for (let last = 0, isDone = false; !isDone;) {
    const rows = await connection.run(`select position, id, record from ${table.table}
      where position > ${connection.dialect.parameter(1)} order by position limit ${recordsAtOnce}`, [last])
    const changed: Row[] = []
    for (const { position, id, record } of rows) {
      const { json = writesAll ? String(record) : undefined, values, problems: found } = fit(JSON.parse(String(record)))
      note(problems, id, found)
      if (json !== undefined) changed.push({ position: Number(position), id: id as Id, json, values })
    }
    if (isOlder || problems.size === 0) await updateRows(connection, table, changed)
    last = Number(rows.at(-1)?.position)
    isDone = rows.length < recordsAtOnce
    report(rows.length)
    await nextTurn()
  }

  const sentences = sentencesFor(table, problems)
  return isOlder ? warn(sentences, options) : sentences
}

/** An older release goes on, whatever the records are. */
function warn (sentences: string[], { log }: ChangeOptions) {
  for (const one of sentences) log?.warn(`An older schema is used again. ${one}`)
  return []
}

/** Whether the table gets columns that are still empty. */
function hasNewColumns ({ table, before = [] }: SchemaChange) {
  return table.columns.some(({ name, type, isTime }) =>
    !before.some(column => column.name === name && column.type === type && column.isTime === isTime))
}

/** Returns a function that logs from time to time how many records are checked. */
function progress ({ name }: Table, { log }: ChangeOptions) {
  let checked = 0
  let next = Date.now() + progressInterval
  return function report (more: number) {
    checked += more
    if (Date.now() < next) return
    log?.info(`The schema of ${name} has changed: ${checked} records are checked`)
    next = Date.now() + progressInterval
  }
}

function note (problems: Problems, id: unknown, found: string[]) {
  for (const problem of found) {
    const known = problems.get(problem) ?? { count: 0, id }
    problems.set(problem, { ...known, count: known.count + 1 })
  }
}

function sentencesFor ({ name }: Table, problems: Problems) {
  return Array.from(problems, ([problem, { count, id }]) => {
    const records = `${counted(count, 'record')} ${count === 1 ? 'does' : 'do'} not fit the schema`
    return `${name}: ${records}, such as the one with id ${id}: ${problem}`
  })
}

/** How a stored record fits the schema of this release: what it becomes, if it changes. */
interface Fit {
  values: Row['values']
  json?: string | undefined
  problems: string[]
}

/** An older release changes no records, and writes only columns. */
function asItIs (collection: Collection, { checkerOf }: ChangeOptions) {
  const problemsIn = checkerOf(collection.schema, { useDefaults: false, removeUnknown: false })
  return function fit (record: AnyRecord): Fit {
    const { values, problems } = indexed(collection, record)
    const ofType = collection.fields.map(({ name, type }) =>
      [name, isOfType(values[name], type) ? values[name] : undefined])
    return { values: Object.fromEntries(ofType), problems: [...toSentences(problemsIn(record)), ...problems] }
  }
}

/** Renames and removes fields, upgrades the record, and adds defaults if it does not fit without them. */
function upToDate (collection: Collection, { checkerOf }: ChangeOptions) {
  const { schema, removes, upgrade = (record: AnyRecord) => record, encode, times } = collection
  const problemsIn = checkerOf(schema, { useDefaults: false, removeUnknown: false })
  const problemsWithDefaults = checkerOf(schema, { useDefaults: true, removeUnknown: false })

  return function fit (old: AnyRecord): Fit {
    const { record, lost } = renamed(collection, old)
    const upgraded: AnyRecord = { ...times.completed(upgrade(record) as AnyRecord) }
    for (const name of removes) delete upgraded[name]
    const unknown = Object.keys(upgraded).filter(name => !Object.hasOwn(schema.properties, name))
    const invalid = problemsIn(upgraded) && problemsWithDefaults(upgraded)
    const { values, problems } = indexed(collection, upgraded)
    const json = encode(upgraded)
    return {
      values,
      json: json === encode(old) ? undefined : json,
      problems: [
        ...lost,
        ...unknown.map(name => `${name} is not in the schema. Add it, or name it in removes`),
        ...toSentences(invalid),
        ...problems
      ]
    }
  }
}

function renamed ({ renames }: Collection, old: AnyRecord) {
  const record = { ...old }
  const lost: string[] = []
  for (const [from, to] of Object.entries(renames)) {
    if (!Object.hasOwn(record, from)) continue
    if (Object.hasOwn(record, to)) lost.push(`${from} cannot be renamed to ${to}, because the record has both`)
    record[to] = record[from]
    delete record[from]
  }
  return { record, lost }
}

/** The values of the fields with an index, or why they cannot have one. */
function indexed ({ valuesOf }: Collection, record: AnyRecord): Pick<Fit, 'values' | 'problems'> {
  try {
    return { values: valuesOf(record), problems: [] }
  } catch (error) {
    if (!(error instanceof NotStorableError)) throw error
    return { values: {}, problems: toSentences(error.problems) }
  }
}

function toSentences (problems: ValueProblem[] = []) {
  return problems.map(({ path, message }) => `${path.slice(1) || 'it'} ${message}`)
}
