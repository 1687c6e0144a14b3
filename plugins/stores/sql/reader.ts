import type { Collection } from '../collection.js'
import type { Reader } from '../engine.js'
import type { Entry, Piece } from '../lists.js'
import { afterPrefix, type Condition, type Place, type Plan, type Value } from '../query.js'
import type { Connection, Dialect } from './connection.js'
import { columnName, tableFor, valueIn } from './tables.js'

/** A piece of a list. In an order, records without a value are a part of their own. */
interface Part extends Piece {
  kind?: 'absent' | 'present'
}

const comparisons = { gt: '>', gte: '>=', lt: '<', lte: '<=' }

export function readerOn ({ run, dialect }: Pick<Connection, 'run' | 'dialect'>): Reader {
  return {
    async first (collection, id) {
      const { table } = tableFor(collection)
      const text = `select record from ${table} where id = ${dialect.parameter(1)} order by position limit 1`
      const [row] = await run(text, [id])
      return row && String(row.record)
    },

    async entries (collection, piece) {
      const entries: Entry[] = []
      for (const part of partsOf(piece)) {
        const count = piece.count - entries.length
        if (count === 0) break
        const { text, values } = selectPart(collection, { ...part, count }, dialect)
        for (const { record, position, value } of await run(text, values, piece.plan.digest === '')) {
          entries.push({
            json: String(record),
            position: Number(position),
            value: valueIn(value, piece.plan.sort?.type)
          })
        }
      }
      return entries
    },

    async count (collection, plan) {
      const { table } = tableFor(collection)
      const { values, write } = writer(dialect)
      const limit = plan.limit < Infinity ? ` limit ${plan.limit}` : ''
      const text = `select count(*) as count from (
        select 1 from ${table} where ${write.all(plan.conditions)}${limit}) as counted`
      const [row] = await run(text, values, false)
      return Number(row?.count)
    },

    async lastPosition (collection) {
      const [row] = await run(`select max(position) as position from ${tableFor(collection).table}`)
      return Number(row?.position ?? 0)
    }
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

function selectPart (collection: Collection, part: Part, dialect: Dialect) {
  const { plan, after, lastPosition, count, kind } = part
  const { sort, descending, conditions } = plan
  const { values, write } = writer(dialect)
  const column = sort && columnName(sort.name)
  const where = [write.all(conditions)]
  if (kind) where.push(`${column} is ${kind === 'absent' ? '' : 'not '}null`)
  if (after) where.push(write.after(after, kind === 'absent' ? undefined : column, descending))
  if (lastPosition !== undefined) where.push(`position <= ${write.value(lastPosition)}`)

  const direction = descending ? 'desc' : 'asc'
  const nulls = descending ? 'nulls last' : 'nulls first'
  const byValue = column && kind !== 'absent' ? `${column} ${direction} ${nulls}, ` : ''
  const text = `select record, position, ${column ?? 'null'} as value from ${tableFor(collection).table}
    where ${where.join(' and ')} order by ${byValue}position ${direction} limit ${write.value(count)}`
  return { text, values }
}

/** Writes conditions, and collects their values as parameters. */
function writer ({ parameter }: Dialect) {
  const values: unknown[] = []
  const value = (given: unknown) => parameter(values.push(given))
  return { values, write: { value, all, after } }

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
