import type pg from 'pg'
import { conflicts } from '../errors.js'
import { expiredBefore, type Insert } from '../idempotency.js'
import { literal, quoted, type Row, type Table } from '../sql/table.js'
import { uniqueFields, type HasId, type StoreDefinition } from '../store.js'
import { codeOf } from './errors.js'
import type { postgresTable } from './statements.js'
import { dialect } from './tables.js'

/** What a call makes of a record. A new record has no `before` and no `position`, and may have a key. A removed one has no `record`. */
interface Step {
  before?: object
  position?: unknown
  record?: object | undefined
  key?: string | undefined
}

/** A violated constraint: its columns, and for a foreign key the table and the columns that it refers to. */
const violated = `
  with key (own, columns, target, others) as (
    select indrelid, indkey[0:indnkeyatts - 1], null, null from pg_index join pg_class on pg_class.oid = indexrelid where relname = $3 and 0 <> all(indkey)
    union all select conrelid, conkey, confrelid, confkey from pg_constraint where conname = $3 and contype = 'f'
  )
  select ${namesOf('own', 'columns')}, (select relname from pg_class where oid = target), ${namesOf('target', 'others')}
  from key where own = to_regclass(format('%I.%I', $1::text, $2::text))`

/** Finds out which calls of a batch conflict with others, after PostgreSQL has rejected the batch. The tables are those of all collections. */
export function conflictFinder<T extends HasId> (collection: StoreDefinition<T>, { table, fields }: ReturnType<typeof postgresTable<T>>, tables: Table[], read: (config: pg.QueryConfig) => Promise<pg.QueryResult<Row>>) {
  const { name, references = {} } = collection
  const unique = fields.filter(field => uniqueFields(collection).includes(field.name))

  return { conflictOf, conflictsInInserts, lookUp }

  /** The conflict of a single call, if it has violated a constraint of fields that we know. Other programs may have added the constraint. */
  async function conflictOf (error: unknown, isRemoval = false) {
    const { schema, table: violating, constraint } = (error as Error).cause as pg.DatabaseError
    const { rows: [row = []] } = await read({ text: violated, values: [schema, violating, constraint] })
    const [columns, target, others] = row as [string[], string | null, string[]]
    const known = (columns?: string[]) => fields.map(({ name }) => name).filter(name => columns?.includes(name))
    if (target === name && (isRemoval || violating !== name)) return conflicts.referred(String(violating), isRemoval ? undefined : known(others)[0])
    const [first, ...rest] = violating === name ? known(columns) : []
    if (first !== undefined) return target === null ? conflicts.used(first, ...rest) : conflicts.missing(first, target)
  }

  /** The conflicts of inserts that the database has rejected. */
  async function conflictsInInserts (inserts: Insert<T>[], error: unknown) {
    if (!isConflict(error)) return []
    if (inserts.length === 1 && !inserts[0]?.isMany) return [await conflictOf(error)]
    const find = await lookUp(inserts.flatMap(({ records, key }) => records.map(record => ({ record, key }))))
    return inserts.map(({ records, isMany, key }) => {
      const found = records.map(record => find({ record, key }))
      const n = found.findIndex(Boolean)
      return isMany ? found[n]?.at(n) : found[n]
    })
  }

  /** Looks up what some calls may conflict with. Returns a function that returns the conflict of a call, given the calls before it. */
  async function lookUp (steps: Step[]) {
    const values = (name: string) => steps.map(({ record = {} }): unknown => Reflect.get(record, name)).filter(value => value !== undefined)
    const removed = steps.flatMap(({ before = {}, record }) => record ? [] : [Reflect.get(before, 'id') as unknown])
    const keys = search(steps.flatMap(({ key }) => key ?? []), 'text', `(select key, 0 as position from idempotency_keys where collection = ${literal(name)} and at >= ${expiredBefore()}) as t on t.key`)
    const holders = unique.map(({ name, type, column, columnType }) => ({ name, ...search(values(name), columnType, `${table} as t on t.${type === 'string' ? dialect.byCodePoint(column) : column}`) }))
    const targets = Object.entries(references).map(([name, target]) => ({ name, target, ...search(values(name), 'bigint', `${quoted(target)} as t on t.id`) }))
    const referrers = tables.flatMap(({ name: other, table, references }) => references.filter(({ target }) => target === name).map(({ column }) =>
      ({ other, ...search(removed, 'bigint', `${table} as t on ${other === name ? 't.id <> given.value and ' : ''}t.${column}`) })))
    await run([keys, ...holders, ...targets, ...referrers])

    return function conflictOf ({ before = {}, position = NaN, record, key }: Step) {
      if (key !== undefined && keys.found.has(key)) return
      if (!record) {
        const referrer = referrers.find(({ found }) => found.has(Reflect.get(before, 'id')))
        return referrer && conflicts.referred(referrer.other)
      }
      const changed = <S extends { name: string }>(searches: S[]) => searches.map(search => ({ ...search, value: Reflect.get(record, search.name) as unknown }))
        .filter(({ name, value }) => value !== undefined && value !== Reflect.get(before, name))
      const taken = changed(holders).find(({ found, value }) => found.has(value) && found.get(value) !== position)
      if (taken) return conflicts.used(taken.name)
      for (const { found, value } of changed(holders)) found.set(value, position)
      // A record can refer to itself, and to records of earlier calls.
      const own = holders.find(({ name }) => name === 'id')?.found
      const missing = changed(targets).find(({ target, found, value }) => !found.has(value) && !(target === name && own?.has(value)))
      return missing && conflicts.missing(missing.name, missing.target)
    }
  }

  /** A condition that finds rows by values, and the position of the row that was found for each value. */
  function search (values: unknown[], columnType: string, join: string) {
    return { values: [...new Set(values)], columnType, join, found: new Map<unknown, unknown>() }
  }

  /** Executes all searches in one statement. */
  async function run (searches: ReturnType<typeof search>[]) {
    const text = searches.map(({ columnType, join }, n) => `select ${n}, given.place, t.position from unnest($${n + 1}::${columnType}[]) with ordinality as given (value, place) join ${join} = given.value`)
    const { rows } = await read({ text: text.join(' union all '), values: searches.map(({ values }) => values) })
    for (const [n, place, position] of rows) searches[Number(n)]?.found.set(searches[Number(n)]?.values[Number(place) - 1], position)
  }
}

/** Returns whether a statement has violated a unique constraint or a foreign key. */
export function isConflict (error: unknown) {
  return /^2350[35]$/.test(codeOf(Object(error).cause))
}

/** An array with the names of the columns of a table that have some numbers. */
function namesOf (table: string, numbers: string) {
  return `array(select attname::text from pg_attribute where attrelid = ${table} and attnum = any(${numbers}))`
}
