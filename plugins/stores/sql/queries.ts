import type { Entry, Piece } from '../lists.js'
import { afterPrefix, type Condition, type Place, type Plan, type Value } from '../query.js'
import type { MaybePromise } from '../store.js'
import { columnName, fromColumn, toColumn, type Dialect, type Table } from './tables.js'

export interface Statement {
  text: string
  values: unknown[]
  /** Whether the text is always the same, so that it can be prepared once. */
  isPlain: boolean
}

/** A piece of a list. In an order, records without a value are a part of their own. */
interface Part extends Piece {
  kind?: 'absent' | 'present'
}

/** Runs a statement and returns its rows as arrays. */
type Run = (statement: Statement) => MaybePromise<unknown[][]>

const comparisons = { gt: '>', gte: '>=', lt: '<', lte: '<=' }

/** Returns a function that reads a piece of a list. */
export function entriesReader ({ table }: Table, dialect: Dialect, run: Run) {
  return async function entriesOf (piece: Piece) {
    const entries: Entry[] = []
    for (const part of partsOf(piece)) {
      const count = piece.count - entries.length
      if (count === 0) break
      const { sort } = piece.plan
      for (const [record, position, value] of await run(selectPart(table, { ...part, count }, dialect))) {
        entries.push({ record: String(record), position: Number(position), value: fromColumn(value, sort?.type) })
      }
    }
    return entries
  }
}

/** Returns a function that counts the records of a query, up to its limit. */
export function counter ({ table }: Table, dialect: Dialect, run: Run) {
  return async function count (plan: Plan) {
    const write = writer(dialect)
    const where = plan.conditions.map(write.condition).join(' and ') || '1 = 1'
    const limit = plan.limit < Infinity ? ` limit ${plan.limit}` : ''
    const text = `select count(*) from (select 1 from ${table} where ${where}${limit}) as counted`
    const [row] = await run({ text, values: write.values, isPlain: false })
    return Number(row?.[0])
  }
}

/** A comparison with a place in an order does not hold for absent values, so that they are a statement of their own. */
function partsOf (piece: Piece): Part[] {
  const { plan: { sort, descending }, after } = piece
  if (!sort?.isOptional || !after) return [piece]
  if (after.value === undefined) {
    const rest: Part = { ...piece, kind: 'absent' }
    return descending ? [rest] : [rest, { ...piece, after: undefined, kind: 'present' }]
  }
  const rest: Part = { ...piece, kind: 'present' }
  return descending ? [rest, { ...piece, after: undefined, kind: 'absent' }] : [rest]
}

function selectPart (table: string, part: Part, dialect: Dialect): Statement {
  const { plan, after, lastPosition, count, onlyPlaces, kind } = part
  const { sort, descending, conditions } = plan
  const write = writer(dialect)
  const column = sort && columnName(sort.name)
  const where = [
    ...conditions.map(write.condition),
    ...kind ? [`${column} is ${kind === 'absent' ? '' : 'not '}null`] : [],
    ...after ? [write.after(after, kind === 'absent' ? undefined : column, descending)] : [],
    ...lastPosition === undefined ? [] : [`position <= ${write.value(lastPosition)}`]
  ]
  const direction = descending ? ' desc' : ''
  const nulls = descending ? dialect.nullsLast : dialect.nullsFirst
  const byValue = column && kind !== 'absent' ? `${column}${direction}${nulls}, ` : ''
  const text = `select ${onlyPlaces ? 'null' : 'record'}, position, ${column ?? 'null'} from ${table}
    where ${where.join(' and ') || '1 = 1'} order by ${byValue}position${direction} limit ${write.value(count)}`
  return { text, values: write.values, isPlain: plan.digest === '' }
}

/** Writes conditions, and collects their values as parameters. */
function writer ({ parameter }: Dialect) {
  const values: unknown[] = []
  const value = (given: unknown) => parameter(values.push(toColumn(given)))
  return { values, value, condition, after }

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
