import type { Collection } from './collection.js'
import type { Reader } from './engine.js'
import type { Field } from './indexed-fields.js'
import type { Value } from './query-plan.js'
import { InvalidQueryError } from './store-errors.js'
import type { SummaryQuery } from './store.js'

/** The most groups of a summary. */
export const maxGroups = 1000

/** How many characters of a date its day, its month and its year are. */
const periods: Record<string, number> = { day: 10, month: 7, year: 4 }

/** What is computed for each group. */
export interface Summary {
  sum: Field[]
  min: Field[]
  max: Field[]
  group?: Group | undefined
}

/** The values by which records are in groups: those of a field, or so many characters of them. */
export interface Group {
  field: Field
  length?: number | undefined
}

/** The results of a group. Sums and other values are in the order of their fields. */
export interface SummaryRow {
  group: Value
  count: number
  sum: bigint[]
  min: Value[]
  max: Value[]
}

/** The names of the periods of a field that is a date or a time. */
export function periodsOf ({ name, isDate, isTime }: Field) {
  return isDate || isTime ? Object.keys(periods).map(period => `${name}.${period}`) : []
}

/** Returns the method `summarize` of a store. */
export function summariesOf (collection: Collection, reader: Reader) {
  const fieldOf = (name: string) => collection.fields.find(field => field.name === name) as Field

  return async function summarize (query: SummaryQuery) {
    const { where, group, sum = [], min = [], max = [] } = query
    const count = query.count ?? sum.length + min.length + max.length === 0
    const summary = { sum: sum.map(fieldOf), min: min.map(fieldOf), max: max.map(fieldOf), group: groupOf(group) }
    const rows = await reader.summarize(collection, collection.plan({ where }), summary)
    if (rows.length > maxGroups) throw new InvalidQueryError('/group', `has more than ${maxGroups} values`)
    return JSON.stringify(rows.map(row => ({
      ...group !== undefined && { [group]: shown(row.group, summary.group?.field, summary.group?.length) ?? null },
      ...count && { count: row.count },
      ...sum.length > 0 && { sum: byName(summary.sum, ({ name }, n) => exact(name, row.sum[n])) },
      ...min.length > 0 && { min: byName(summary.min, (field, n) => shown(row.min[n], field)) },
      ...max.length > 0 && { max: byName(summary.max, (field, n) => shown(row.max[n], field)) }
    })))
  }

  function groupOf (name?: string): Group | undefined {
    if (name === undefined) return
    if (fieldOf(name)) return { field: fieldOf(name) }
    const [, field = '', period = ''] = /^(.*)\.(day|month|year)$/.exec(name) ?? []
    return { field: fieldOf(field), length: periods[period] }
  }
}

function byName (fields: Field[], valueOf: (field: Field, n: number) => Value) {
  return Object.fromEntries(fields.map((field, n) => [field.name, valueOf(field, n)]))
}

function exact (name: string, sum = 0n) {
  if (BigInt.asIntN(54, sum) !== sum) throw new InvalidQueryError('/sum', `of ${name} is too large to be exact`)
  return Number(sum)
}

/** The value of an index as clients see it. */
function shown (value: Value, field?: Field, length?: number) {
  return field?.isTime && typeof value === 'string' && length === undefined ? `${value}Z` : value
}
