import { StartupError } from '../../startup.js'
import { counted, maxCounted, unfit, violations } from '../errors.js'
import type { Field, FieldType } from '../fields.js'
import type { MaybePromise } from '../store.js'
import { ownName, type Actual, type Change, type Database, type ForeignKey } from './database.js'
import { keySql, literal, quoted, sqlValue, toColumn, type Index, type Reference, type Table } from './table.js'

/** What is recorded about a field. Previous releases have recorded the definition of its column. */
type Records = Record<string, Pick<Field, 'type' | 'types' | 'values'> | string>

/** The tables that all collections share: versions of tables, idempotency keys, last generated ids, and numbers of changes. */
export const sharedTables = [
  'create table collections (name text primary key, version integer not null, columns text not null)',
  `create table idempotency_keys (
    collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null,
    primary key (collection, key))`,
  'create table last_ids (collection text primary key, id bigint not null)',
  'create table collection_changes (collection text primary key, changes bigint not null)'
]

/** Statements that would commit a part of the changes. */
const transactionControl = /(^|;)\s*(begin|start|commit|rollback)(\s+(transaction|work|deferred|immediate|exclusive))*\s*(;|$)/i

/** What makes a field that is required and missing in some records possible. */
const howToGive = 'Add a default to the schema of the field, or make the field optional.'

/**
 * Creates missing tables and changes existing ones, as their schemas need it. It needs a transaction that excludes others, which is
 * rolled back if it throws. If all is up to date, it changes nothing, so that a role without DDL privileges can start.
 */
export async function migrate (database: Database, isNew: boolean, shared: string[], tables: Table[], onWarning?: (message: string) => void) {
  const { kind, query, run } = database
  if (isNew) for (const sql of shared) await run(sql)
  const rows = await query('select name, version, columns from collections')
  const problems: string[] = []
  const { compareKeys, addKeys, isPossible, differences, removals, count } = comparisonOf(database, problems, onWarning)
  const known = tables.map(table => ({ table, row: rows.find(([name]) => name === table.name) }))
  const isUpgraded = known.some(({ table, row }) => row && Number(row[1]) <= table.upgrades.length)
  for (const table of tables) await compareKeys(table, isUpgraded)
  for (const { table, row } of known) {
    if (row) await update(table, Number(row[1]), JSON.parse(String(row[2])))
    else await create(table)
  }
  if (problems.length === 0) await addKeys()
  if (problems.length > 0) throw new StartupError(unfit(problems))

  async function create (table: Table) {
    for (const sql of table.creation) await run(sql)
    await run(`insert into collections (name, version, columns) values ('${table.name}', ${table.upgrades.length + 1}, ${recordOf(table)})`)
    await table.fill?.(query)
  }

  async function update (table: Table, version: number, recorded: Records) {
    const { name, upgrades } = table
    const newest = upgrades.length + 1
    if (version > newest) throw new StartupError(`The table ${name} in the option store has version ${version}, but this release supports only up to version ${newest}. Use a newer release.`)
    const executed = await upgrade(table, version)
    const record = { ...recorded }
    const isRenamed = await rename(table, record)
    const actual = await database.read(table)
    for (const column of Object.keys(record)) if (!actual.has(column)) delete record[column]
    const changes = [...await differences(table, actual, record, executed), ...await removals(table, actual, record)]
    if (problems.length > 0) return
    await named(`Cannot change the table ${name}`, async () => {
      if (changes.length > 0) await database.alter(table, changes, actual)
      await database.complete(table, index => isPossible(table, index))
    })
    const isChanged = executed.length > 0 || isRenamed || changes.length > 0
    // The records in lists may have changed, so the ETags of lists change.
    if (isChanged) await run(`update collection_changes set changes = changes + 1 where collection = '${name}'`)
    const columns = recordOf(table, record)
    if (isChanged || (columns !== literal(JSON.stringify(recorded)) && await database.mayRecord())) {
      await run(`update collections set version = ${newest}, columns = ${columns} where name = '${name}'`)
    }
  }

  /** Executes the entries of `upgrades` that are new, and returns them. */
  async function upgrade ({ name, upgrades }: Table, version: number) {
    const entries = upgrades.slice(version - 1).map(entry => typeof entry === 'string' ? entry : entry[kind])
    for (const [n, sql] of entries.entries()) {
      await named(`Entry ${version + n} in upgrades of the collection ${name} failed, and nothing was changed`, () => {
        if (transactionControl.test(sql)) throw new Error('It must not begin or end a transaction')
        return run(sql)
      })
    }
    return entries
  }

  /** Renames columns. If the new one exists already, it gets the values that only the previous one has, unless both have values. Returns whether anything has changed. */
  async function rename (table: Table, record: Records) {
    const renames = Object.entries(table.renames)
    const actual = renames.length > 0 ? await database.read(table) : new Map()
    let isChanged = false
    for (const [from, to] of renames.filter(([from]) => actual.has(from))) {
      const [previous, next] = [quoted(from), quoted(to)]
      const isLeft = `${next} is null and ${previous} is not null`
      const isSame = JSON.stringify(record[to]) === JSON.stringify(record[from])
      const isMerged = isSame && !actual.get(from)?.isRequired
      const lost = actual.has(to) ? await count(table, [...isSame ? [`${next} <> ${previous}`] : [], ...isMerged ? [] : [isLeft]].join(' or ')) : 0
      if (lost) problems.push(`${table.name}.${from} cannot be renamed to ${to}, because the table has both, and ${counted(lost, 'record')} would lose a value. In upgrades, copy the values that you need, and remove one of both columns, such as: alter table ${table.table} drop column ${previous}`)
      if (!actual.has(to)) {
        await run(`alter table ${table.table} rename column ${previous} to ${next}`)
        Object.assign(record, { [to]: record[from] })
      } else if (isMerged && await count(table, isLeft)) {
        await run(`update ${table.table} set ${next} = ${previous}, ${previous} = null where ${isLeft}`)
      } else continue
      isChanged = true
    }
    return isChanged
  }
}

/** Compares the fields, unique indexes and foreign keys of tables with what is stored. What needs a decision is added to the problems. */
function comparisonOf ({ kind, query, run, foreignKeys }: Database, problems: string[], onWarning?: (message: string) => void) {
  const altersKeys = kind === 'postgres' // SQLite has the keys in the definition of the table
  const missingKeys: { table: string, name: string, reference: Reference }[] = []
  return { compareKeys, addKeys, isPossible, differences, removals, count }

  /** Drops foreign keys that are not needed any more, and remembers the missing ones until all tables exist. SQLite does not check them while upgrades run. */
  async function compareKeys ({ table, name, references }: Table, isUpgraded: boolean) {
    const keys = await foreignKeys(name)
    const isSame = (one: ForeignKey, other: ForeignKey) => one.key === other.key && one.target === other.target
    for (const key of keys) if (altersKeys && ownName.test(key.key) && !references.some(reference => isSame(reference, key))) await run(`alter table ${table} drop constraint ${quoted(key.key)}`)
    for (const reference of references) if ((isUpgraded && !altersKeys) || !keys.some(key => isSame(reference, key))) missingKeys.push({ table, name, reference })
  }

  async function addKeys () {
    for (const { table, name, reference } of missingKeys) {
      const { column, target } = reference
      const values = await query(`
        select distinct ${column} from ${table} as t where ${column} is not null and not exists (
          select 1 from ${quoted(target)} as other where other.id = t.${column}) limit ${maxCounted + 1}`)
      if (values.length > 0) problems.push(violations.missing(`${name}.${reference.name}`, target, values.flat()))
      else if (altersKeys) await run(`alter table ${table} add ${keySql(reference, `foreign key (${column}) `)}`)
    }
  }

  /** Returns whether an index can be created. */
  async function isPossible ({ table, name }: Table, { unique }: Index) {
    if (!unique) return true
    const { column } = unique
    const values = await query(`select ${column} from ${table} where ${column} is not null group by ${column} having count(*) > 1 limit ${maxCounted + 1}`)
    if (values.length > 0) problems.push(violations.repeated(`${name}.${unique.name}`, values.flat()))
    return values.length === 0
  }

  /** The columns to add or to change. */
  async function differences (table: Table, actual: Actual, recorded: Records, executed: string[]) {
    const changes: Change[] = []
    for (const column of table.columns) {
      const { name, type, isOptional, values } = column
      const field = `${table.name}.${name}`
      const isGiven = isOptional || column.default !== undefined
      const has = actual.get(name)
      // An upgrade that mentions a column may have changed its values.
      const record = executed.some(sql => mentions(sql, name)) ? undefined : recorded[name]
      const known = typeof record === 'string' ? undefined : record
      const from = has && typeIn(has.type, known ?? column)
      const types = from === undefined ? [has?.type] : [known, column].find(field => field?.type === from)?.types ?? [from]
      const hasValueList = String(recorded[name]).includes(' in (')
      const otherCase = has ? undefined : [...actual.keys()].find(other => other.toLowerCase() === name.toLowerCase())
      if (otherCase !== undefined) {
        problems.push(`${field} differs from the column ${otherCase} only in upper and lower case. Add "renames": {"${otherCase}": "${name}"}.`)
      } else if (!has) {
        if (!isGiven && await count(table, '1 = 1')) problems.push(`${field} is required, but existing records do not have it. ${howToGive}`)
      } else if (from === undefined || !types.every(type => column.types.some(needed => needed === type || (needed === 'number' && type === 'integer')))) {
        problems.push(`${field} has values of the type ${types.join(' or ')}, but the schema needs ${column.types.join(' or ')}. Allow these types too, or add SQL to upgrades that converts the values.`)
      } else {
        const json = kind === 'sqlite' ? `json(${column.column})` : `${column.column}::json`
        if (type === 'json' && from === 'json' && !known) await named(`${field} must contain JSON after the upgrades`, () => query(`select count(${json}) from ${table.table}`))
        const missing = isGiven || has.isRequired ? 0 : await count(table, `${column.column} is null`)
        if (missing) problems.push(`${field} is required, but is missing in ${counted(missing, 'record')}. ${howToGive}`)
        const listed = values?.filter(value => value !== null || from === 'json').map(value => sqlValue(toColumn(value, from)))
        const removed = listed && !known?.values?.every(value => values?.includes(value)) ? await count(table, `${column.column} not in (${listed.join(', ')})`) : 0
        if (removed) problems.push(`${field} has values in ${counted(removed, 'record')} that the schema does not list. Add these values to the schema, or add SQL to upgrades that changes them.`)
      }
      if (!has?.fits || from !== type || has.isRequired === isOptional || hasValueList) changes.push({ column, has, from, hasValueList })
    }
    return changes
  }

  /** The columns of fields that the schema does not have any more, and that must become optional. Warns if records have values of such fields. */
  async function removals (table: Table, actual: Actual, recorded: Records) {
    const changes: Change[] = []
    for (const name of Object.keys(recorded).filter(name => table.columns.every(column => column.name !== name))) {
      const [has, values] = [actual.get(name), await count(table, `${quoted(name)} is not null`)]
      if (values) onWarning?.(`The schema of the collection ${table.name} does not have the field ${name}, which has values in ${counted(values, 'record')}. To keep them in another field, add "renames": {"${name}": "NEW_NAME"}. To remove them, add to upgrades: alter table ${table.table} drop column ${quoted(name)}`)
      if (!has?.isRequired || has.default !== undefined) continue
      changes.push({ column: { name, type: 'json', types: [], isOptional: true, column: quoted(name), columnType: has.type, definition: '' }, has, from: 'json' })
    }
    return changes
  }

  /** The number of records for which a condition is true. */
  async function count ({ table }: Table, condition: string) {
    const [[found] = []] = await query(`select count(*) from (select 1 from ${table} where ${condition} limit ${maxCounted + 1}) as counted`)
    return Number(found)
  }
}

/** What is recorded about the fields of a table and about those that its schema does not have any more. */
function recordOf ({ columns }: Table, others: Records = {}) {
  return literal(JSON.stringify({ ...others, ...Object.fromEntries(columns.map(({ name, type, types, values }) => [name, { type, types, values }])) }))
}

/** The type of the values in a column. A text is JSON if the field was or is stored as JSON. */
function typeIn (columnType: string, { type }: Pick<Field, 'type'>): FieldType | undefined {
  if (/^(text|(var)?char)[^[]*$/i.test(columnType)) return type === 'json' ? 'json' : 'string'
  if (/^(big|small)?int(eger)?$/i.test(columnType)) return 'integer'
  if (/^(real|double precision|numeric)$/i.test(columnType)) return 'number'
  if (/^bool(ean)?$/i.test(columnType)) return 'boolean'
}

/** Returns whether SQL contains the name of a column as a word, and not only in a text or a comment. Texts of PostgreSQL such as $$it's$$ have other ends. */
function mentions (sql: string, name: string) {
  const texts = /[\\$]/.test(sql) ? /^$/g : /'[^']*'|--.*|\/\*[^]*?\*\/|"[^"]*"/g
  const code = sql.replaceAll(texts, part => part.startsWith('"') ? part : ' ').toLowerCase()
  return /^\w+$/.test(name) ? code.split(/\W+/).includes(name.toLowerCase()) : code.includes(quoted(name).slice(1, -1).toLowerCase())
}

/** Adds what was done to the message of an error. */
async function named (what: string, execute: () => MaybePromise<unknown>) {
  await Promise.resolve().then(execute).catch((error: Error) => { throw new StartupError(`${what}: ${error.message}`, { cause: error }) })
}
