import type { Collection } from '../collection.js'
import type { Reader } from '../engine.js'
import type { Field } from '../indexed-fields.js'
import type { Range } from '../lists.js'
import { afterPrefix, type Condition, type Place, type Plan, type Value } from '../query-plan.js'
import type { Connection, Dialect, ResultRow } from './connection.js'
import { columnName, tableFor, valueIn } from './tables.js'
import type { Id } from '../store.js'
import { maxGroups, type Summary } from '../summary.js'

/** A part of a range. In an order, records without a value are a part of their own. */
interface Span extends Range {
  kind?: 'absent' | 'present'
}

const comparisons = { gt: '>', gte: '>=', lt: '<', lte: '<=' }

export class SqlReader implements Reader {
  constructor (protected readonly connection: Connection) {}

  first (collection: Collection, id: Id) {
    const { table } = tableFor(collection)
    const { one, dialect } = this.connection
    const row = one(`select record from ${table} where id = ${dialect.parameter(1)} order by position limit 1`, [id])
    return row instanceof Promise ? row.then(recordIn) : recordIn(row)
  }

  keptList () {
    return undefined
  }

  async piece (collection: Collection, range: Range) {
    if (range.plan.sort) return this.sortedPiece(collection, range)
    const { text, values } = selectJoined(collection, range, this.connection.dialect)
    const row = await this.connection.one(text, values, { isPrepared: range.plan.isPlain })
    return {
      json: String(row?.json ?? ''),
      count: Number(row?.count),
      last: row?.position ? { value: undefined, position: Number(row.position) } : undefined,
      hasMore: Boolean(row?.more)
    }
  }

  async count (collection: Collection, plan: Plan) {
    const { table } = tableFor(collection)
    const { values, sql } = conditionsIn(this.connection.dialect)
    const limit = plan.limit < Infinity ? ` limit ${plan.limit}` : ''
    const text = `select count(*) as count from (
      select 1 from ${table} where ${sql.all(plan.conditions)}${limit}) as counted`
    const row = await this.connection.one(text, values, { isPrepared: false })
    return Number(row?.count)
  }

  async summarize (collection: Collection, plan: Plan, summary: Summary) {
    const { text, values } = selectSummary(collection, plan, summary, this.connection.dialect)
    const rows = await this.connection.run(text, values, { isPrepared: false })
    const { group, sum, min, max } = summary
    return rows.map(row => ({
      group: valueIn(row.value, group?.field.type),
      count: Number(row.count),
      sum: sum.map((_, n) => BigInt(String(row[`high${n}`] ?? 0)) * base + BigInt(String(row[`low${n}`] ?? 0))),
      min: min.map(({ type }, n) => valueIn(row[`min${n}`], type)),
      max: max.map(({ type }, n) => valueIn(row[`max${n}`], type))
    }))
  }

  async lastPosition (collection: Collection) {
    const row = await this.connection.one(`select max(position) as position from ${tableFor(collection).table}`)
    return Number(row?.position ?? 0)
  }

  private async sortedPiece (collection: Collection, range: Range) {
    const { connection: { run, dialect } } = this
    const { count, plan: { sort } } = range
    const found: ResultRow[] = []
    for (const span of spansOf(range)) {
      if (found.length > count) break
      const { text, values } = selectSorted(collection, { ...span, count: count + 1 - found.length }, dialect)
      found.push(...await run(text, values, { isPrepared: false }))
    }
    const rows = found.slice(0, count)
    const last = rows.at(-1)
    return {
      json: rows.map(({ record }) => record).join(),
      count: rows.length,
      last: last && { value: valueIn(last.value, sort?.type), position: Number(last.position) },
      hasMore: found.length > count
    }
  }
}

function recordIn (row?: ResultRow) {
  return row && String(row.record)
}

/** Records in the order of their positions, which the database joins. */
function selectJoined (collection: Collection, { plan, after, lastPosition, count }: Range, dialect: Dialect) {
  const { values, sql } = conditionsIn(dialect)
  const { table } = tableFor(collection)
  const where = [sql.all(plan.conditions)]
  if (lastPosition !== undefined) where.push(`position <= ${sql.value(lastPosition)}`)
  const text = `select json, count, position,
      exists (select 1 from ${table} where ${where.join(' and ')} and position > joined.position) as more
    from (select string_agg(record, ',' order by position) as json, count(*) as count, max(position) as position
      from (select record, position from ${table}
        where ${where.join(' and ')} and position > ${sql.value(after?.position ?? 0)}
        order by position limit ${sql.value(count)}) as page) as joined`
  return { text, values }
}

/** SQL compares nothing with null. So after a place, the records without a value are a statement of their own. */
function spansOf (range: Range): Span[] {
  const { plan: { sort, descending }, after } = range
  if (!sort?.isOptional || !after) return [range]
  if (after.value === undefined) {
    const rest: Span = { ...range, kind: 'absent' }
    return descending ? [rest] : [rest, { ...range, after: undefined, kind: 'present' }]
  }
  const rest: Span = { ...range, kind: 'present' }
  return descending ? [rest, { ...range, after: undefined, kind: 'absent' }] : [rest]
}

function selectSorted (collection: Collection, span: Span, dialect: Dialect) {
  const { plan: { sort, descending, conditions }, after, lastPosition, count, kind } = span
  const { values, sql } = conditionsIn(dialect)
  const column = columnName(sort?.name ?? 'id')
  const where = [sql.all(conditions)]
  if (kind) where.push(`${column} is ${kind === 'absent' ? '' : 'not '}null`)
  if (after) where.push(sql.after(after, kind === 'absent' ? undefined : column, descending))
  if (lastPosition !== undefined) where.push(`position <= ${sql.value(lastPosition)}`)

  const direction = descending ? 'desc' : 'asc'
  const nulls = descending ? 'nulls last' : 'nulls first'
  const byValue = kind === 'absent' ? '' : `${column} ${direction} ${nulls}, `
  const text = `select record, position, ${column} as value from ${tableFor(collection).table}
    where ${where.join(' and ')} order by ${byValue}position ${direction} limit ${sql.value(count)}`
  return { text, values }
}

/** Integers are added in two halves, because the sum of many could be too large for SQLite. */
const base = 2n ** 26n

function selectSummary (collection: Collection, plan: Plan, { group, sum, min, max }: Summary, dialect: Dialect) {
  const { values, sql } = conditionsIn(dialect)
  const column = group ? columnName(group.field.name) : 'null'
  const value = group?.length ? `substr(${column}, 1, ${group.length})` : column
  // PostgreSQL has no least boolean.
  const comparable = ({ name, type }: Field) => {
    const column = columnName(name)
    return type === 'boolean' ? `case when ${column} then 1 when not ${column} then 0 end` : column
  }
  const highAndLow = ({ name }: Field, n: number) => {
    const column = columnName(name)
    return `sum(${column} / ${base}) as high${n}, sum(${column} % ${base}) as low${n}`
  }
  const results = [
    ...sum.map(highAndLow),
    ...min.map((field, n) => `min(${comparable(field)}) as min${n}`),
    ...max.map((field, n) => `max(${comparable(field)}) as max${n}`)
  ]
  const text = `select ${[`${value} as value`, 'count(*) as count', ...results]} from ${tableFor(collection).table}
    where ${sql.all(plan.conditions)}${group ? ' group by 1 order by 1 nulls first' : ''}
    limit ${maxGroups + 1}`
  return { text, values }
}

/** Writes conditions in SQL, and collects their values as parameters. */
function conditionsIn ({ parameter }: Dialect) {
  const values: unknown[] = []
  const value = (given: unknown) => parameter(values.push(given))
  return { values, sql: { value, all, after } }

  function all (conditions: Plan['conditions']) {
    return conditions.map(condition).join(' and ') || '1 = 1'
  }

  function after (place: Place, column: string | undefined, descending: boolean) {
    const operator = descending ? '<' : '>'
    if (column === undefined) return `position ${operator} ${value(place.position)}`
    return `(${column}, position) ${operator} (${value(place.value)}, ${value(place.position)})`
  }

  function condition ({ field, operator, value: given }: Condition) {
    const column = columnName(field.name)
    switch (operator) {
      case 'in': return `${column} in (${(given as Value[]).map(value)})`
      case 'exists': return `${column} is ${given ? 'not ' : ''}null`
      case 'prefix': {
        const next = afterPrefix(String(given))
        return `${column} >= ${value(given)}${next === undefined ? '' : ` and ${column} < ${value(next)}`}`
      }
      default: return `${column} ${comparisons[operator]} ${value(given)}`
    }
  }
}
