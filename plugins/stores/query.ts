import type { Query } from '../../schemas/query.js'
import { InvalidCursorError } from './errors.js'
import type { Field } from './fields.js'
import { digestOf } from './idempotency.js'

/** A value that a query can compare. An absent field has none. */
export type Value = string | number | boolean | undefined

/** The types of fields that a query can use, and how it can compare their values beyond equality. */
export const operators = {
  string: ['gt', 'gte', 'lt', 'lte', 'prefix'],
  integer: ['gt', 'gte', 'lt', 'lte'],
  number: ['gt', 'gte', 'lt', 'lte'],
  boolean: []
} as const

/** The name of an operator, which also is the end of its parameter. That of equality has none. */
export type Operator = 'in' | 'exists' | typeof operators[keyof typeof operators][number]

/** A condition for the values of a field. For `in`, the value is a list. */
export interface Condition<F extends Field = Field> {
  field: F
  operator: Operator
  value: Value | readonly Value[]
}

/**
 * A query as an engine needs it: records with equal values of the sort field are in the order of their positions, and a page
 * begins after the record at the place `after`.
 */
export type Plan<F extends Field = Field> = ReturnType<ReturnType<typeof planner<F>>>

/** The place of a record in an order. */
export interface Place {
  value: Value
  position: number
}

/** The parameters of queries by name: the field and the operator of each. */
export function parametersOf<F extends Field> (fields: F[]) {
  const entries = fields.flatMap(field => [
    { name: field.name, field, operator: 'in' as const },
    ...operators[field.type as keyof typeof operators].map(operator => ({ name: `${field.name}.${operator}`, field, operator })),
    ...field.isOptional ? [{ name: `${field.name}.exists`, field, operator: 'exists' as const }] : []
  ])
  return new Map<string, { field: F, operator: Operator }>(entries.map(({ name, ...parameter }) => [name, parameter]))
}

/** Returns a function that reads queries for a collection whose fields can be queried. */
export function planner<F extends Field> (fields: F[]) {
  const parameters = parametersOf(fields)
  return function plan ({ where, sort, after, limit = Infinity }: Pick<Query<object>, 'after' | 'limit'> & { where?: object, sort?: string }) {
    const conditions = Object.entries<Value | readonly Value[]>({ ...where }).flatMap(([name, value]): Condition<F>[] => {
      const parameter = parameters.get(name)
      if (!parameter) throw new TypeError(`${name} is not a condition of this collection`)
      return value === undefined ? [] : [{ ...parameter, value: parameter.operator === 'in' ? [value].flat() : value }]
    })
    const descending = sort?.startsWith('-') ?? false
    const field = sort === undefined ? undefined : parameters.get(descending ? sort.slice(1) : sort)?.field
    if (sort !== undefined && !field) throw new TypeError(`This collection cannot be sorted by ${sort}`)
    const isPlain = conditions.length === 0 && !field
    const digest = () => digestOf(JSON.stringify([conditions.map(({ field, operator, value }) => [field.name, operator, value]).sort(), sort])).slice(0, 12)
    const cursorOf = ({ position, value }: Place) => Buffer.from(isPlain ? String(position) : JSON.stringify([position, value ?? null, digest()])).toString('base64url')
    return { conditions, sort: field, descending, limit, isPlain, cursorOf, ...after !== undefined && { after: placeAt(after) } }

    function placeAt (cursor: string): Place {
      const place = parsed(cursor, isPlain)
      if (!place || cursorOf(place) !== cursor || (place.value !== undefined && !isOfType(place.value, field))) throw new InvalidCursorError()
      return place
    }
  }
}

/** The place in a cursor. A client can send anything. */
function parsed (cursor: string, isPlain: boolean): Place | undefined {
  try {
    const content: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString())
    const [position, value] = isPlain ? [content] : content as unknown[]
    if (Number.isSafeInteger(position) && Number(position) >= 0) return { position: Number(position), value: value as Value ?? undefined }
  } catch {}
}

function isOfType (value: unknown, field?: Field) {
  if (typeof value === 'string') return field?.type === 'string' && value.isWellFormed() && !value.includes('\0')
  if (typeof value === 'boolean') return field?.type === 'boolean'
  return typeof value === 'number' && (field?.type === 'number' || (field?.type === 'integer' && Number.isSafeInteger(value)))
}

/** Returns a function that returns whether a value meets a condition. An absent value meets only `exists: false`. */
export function testOf ({ operator, value }: Condition): (actual: Value) => boolean {
  if (operator === 'exists') return actual => (actual !== undefined) === value
  if (operator === 'prefix') return actual => actual !== undefined && String(actual).startsWith(String(value))
  const values = new Set(operator === 'in' ? value as Value[] : [])
  if (operator === 'in') return actual => values.has(actual)
  const isMet = { gt: (order: number) => order > 0, gte: (order: number) => order >= 0, lt: (order: number) => order < 0, lte: (order: number) => order <= 0 }[operator]
  return actual => actual !== undefined && isMet(compare(actual, value as Value))
}

/** Orders values: absent ones first, and texts by code point, as UTF-8 does. */
export function compare (one: Value, other: Value) {
  if (one === other) return 0
  if (one === undefined) return -1
  if (other === undefined) return 1
  return typeof one === 'string' ? compareTexts(one, String(other)) : Number(one) - Number(other)
}

function compareTexts (one: string, other: string) {
  const length = Math.min(one.length, other.length)
  for (let n = 0; n < length; n++) {
    const [a, b] = [one.charCodeAt(n), other.charCodeAt(n)]
    if (a !== b) return byCodePoint(a) - byCodePoint(b)
  }
  return one.length - other.length
}

/** UTF-16 has surrogates, which are parts of the largest code points, before U+E000. */
function byCodePoint (unit: number) {
  return unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}

/** The least text that is larger than all texts with a prefix, if there is one. */
export function afterPrefix (prefix: string) {
  const points = Array.from(prefix, character => character.codePointAt(0) as number)
  while (points.at(-1) === 0x10ffff) points.pop()
  const last = points.pop()
  return last === undefined ? undefined : String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
}
