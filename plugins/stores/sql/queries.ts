import type { FieldType } from '../fields.js'
import { afterPrefix, planner, type Condition, type Place, type Plan, type Value } from '../query.js'
import { fromColumn, sum, toColumn, type Dialect, type Row, type tableOf } from './table.js'

export interface Statement {
  text: string
  values: unknown[]
  /** Whether it is often used, so that it is worth preparing. */
  isPlain?: boolean
}

type Table = ReturnType<typeof tableOf>
type Field = Table['fields'][number]
type Column = Pick<Field, 'type' | 'column' | 'columnType'>

/** A piece of a list has at most so many bytes, unless it is one record. */
const pieceBytes = 1024 * 1024

/** Some records in the order of a query: those whose sort field is absent, those that have it, or all if it is required. */
export interface Part {
  plan: Plan<Field>
  kind?: 'absent' | 'present'
  /** Only the records after this place, and up to the other one. */
  after?: Place | undefined
  until?: Place | undefined
  /** A condition that few records meet. Its index is used instead of that of the order. */
  narrow?: Condition | undefined
}

/** The parts of a query, in its order. They are separate, because a comparison with null is neither true nor false. */
export function partsOf (plan: Plan<Field>, narrow?: Condition): Part[] {
  const { sort, descending, after } = plan
  const kinds = !sort?.isOptional ? [undefined] : descending ? ['present', 'absent'] as const : ['absent', 'present'] as const
  const parts = kinds.map((kind): Part => ({ plan, narrow, ...kind && { kind } }))
  const first = parts.findIndex(({ kind }) => !after || !kind || (kind === 'absent') === (after.value === undefined))
  return parts.slice(first).map((part, n) => n === 0 ? { ...part, after } : part)
}

/** The condition that a field has one value, if the order is that of creation. The index of the field has this order for each value. */
function equality ({ conditions, sort }: Plan) {
  return sort ? undefined : conditions.find(({ operator, value }) => operator === 'in' && (value as Value[]).length === 1)
}

/** Whether a condition of a part is met by what the index of the part leads to. */
function isIndexed ({ plan, narrow }: Part, condition: Condition) {
  return condition === (narrow ?? equality(plan)) || (!narrow && plan.sort?.name === condition.field.name)
}

/** The part without the conditions that need the records themselves; undefined if there are none. */
export function indexOnly (part: Part): Part | undefined {
  const { plan } = part
  const conditions = plan.conditions.filter(condition => isIndexed(part, condition))
  return conditions.length < plan.conditions.length ? { ...part, plan: { ...plan, conditions } } : undefined
}

/** The statements for the lists of a table. The functions return a column as it is selected, and the value that was selected. */
export function listStatements ({ table, fields, indexed }: Table, dialect: Dialect, selectedAs = ({ column }: Column) => column, decoded = (value: unknown, _type: FieldType) => value) {
  const write = partWriter(dialect)
  const columns = fields.map(selectedAs).join(', ')
  const sizes = sum(fields.filter(({ columnType }) => columnType === 'text').map(({ column }) => `coalesce(octet_length(${column}), 0)`))

  return {
    plan: planner(fields.filter(({ name }) => indexed.includes(name))),

    /** Selects records of a part, or none if their texts are too large to be read at once. */
    selectPiece (part: Part, count: number): Statement {
      const { where, order, values } = write(part)
      const limit = dialect.parameter(values.push(count), 'int')
      const next = `from ${table} where ${where}`
      const text = `
        select ${columns}, position ${next} and (${limit} = 1 or ${pieceBytes} >=
          (select sum(size) from (select ${sizes} as size ${next} order by ${order} limit ${limit}) as sizes))
        order by ${order} limit ${limit}`
      return { text, values, isPlain: part.plan.isPlain }
    },

    selectPlaces (part: Part, count: number, offset = 0): Statement {
      const { where, order, values } = write(part)
      const { sort } = part.plan
      return { text: `select ${sort ? selectedAs(sort) : 'null'}, position from ${table} where ${where} order by ${order} limit ${count} offset ${offset}`, values }
    },

    selectCount (part: Part): Statement {
      const { where, values } = write(part)
      const { limit } = part.plan
      return { text: `select count(*) from (select 1 from ${table} where ${where}${limit < Infinity ? ` limit ${limit}` : ''}) as counted`, values }
    },

    /** The place of a record, or of a row with only its place. */
    placeOf (row: Row, { sort }: Plan): Place {
      const n = row.length === 2 ? 0 : fields.findIndex(({ name }) => name === sort?.name)
      return { value: sort && fromColumn(decoded(row[n], sort.type), sort.type) as Value, position: Number(row.at(-1)) }
    }
  }
}

/** Returns a function that writes the conditions and the order of a part. */
function partWriter ({ parameter, isPresent, byCodePoint, withoutIndex }: Dialect) {
  const positions: Column = { type: 'integer', column: 'position', columnType: 'bigint' }

  return function write (part: Part) {
    const { plan: { conditions, sort, descending }, kind, after, until, narrow } = part
    const values: unknown[] = []
    const add = (value: unknown, { type, columnType }: Column) => parameter(values.push(toColumn(value, type)), columnType)
    const order = (sort && kind !== 'absent' ? [sort, positions] : [positions]).map(column => used(column, !narrow))
    const where = [
      ...conditions.map(condition => clause(condition, used(condition.field, isIndexed(part, condition)))),
      ...sort && kind ? [kind === 'absent' ? `${sort.column} is null` : isPresent(sort.column, sort.type)] : [],
      ...after ? [compared(descending ? '<' : '>', after)] : [],
      ...until ? [compared(descending ? '>=' : '<=', until)] : []
    ]
    return { where: where.join(' and ') || '1 = 1', order: order.map(({ column }) => descending ? `${column} desc` : column).join(', '), values }

    function compared (operator: string, { value, position }: Place) {
      const place = order.length === 1 ? [position] : [value, position]
      return `(${order.map(({ column }) => column)}) ${operator} (${order.map((column, n) => add(place[n], column))})`
    }

    function clause ({ operator, value }: Condition, given: ReturnType<typeof used>) {
      const { column, bare, type } = given
      switch (operator) {
        case 'in': {
          const [one, ...others] = (value as Value[]).map(value => add(value, given))
          return others.length === 0 ? `${column} = ${one}` : `${column} in (${[one, ...others]})`
        }
        case 'exists': return value ? isPresent(bare, type) : `${bare} is null`
        case 'prefix': {
          const next = afterPrefix(String(value))
          return `${column} >= ${add(value, given)}${next === undefined ? '' : ` and ${column} < ${add(next, given)}`}`
        }
        default: return `${column} ${{ gt: '>', gte: '>=', lt: '<', lte: '<=' }[operator]} ${add(value, given)}`
      }
    }
  }

  /** A column as it is compared. Without statistics, a database may choose a bad index, so only the good one can be used. */
  function used (given: Column, isIndexed: boolean) {
    const column = isIndexed ? given.column : withoutIndex(given.column)
    return { ...given, bare: column, column: given.type === 'string' ? byCodePoint(column) : column }
  }
}
