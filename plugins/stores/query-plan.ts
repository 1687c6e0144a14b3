import { hash } from 'node:crypto'
import type { AnyQuery } from '../../schemas/query.js'
import type { Field } from './indexed-fields.js'
import { invalidCursor } from './store-errors.js'
import { indexTime } from './times.js'

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
export interface Condition {
  field: Field
  operator: Operator
  value: Value | readonly Value[]
}

/** The place of a record in an order: its value, and its position among equal values. */
export interface Place {
  value: Value
  position: number
}

/** A query as an engine needs it. A page begins after the record at the place `after`. */
export interface Plan {
  conditions: Condition[]
  /** The field to order by, otherwise the order is that of positions. */
  sort?: Field | undefined
  descending: boolean
  limit: number
  after?: Place | undefined
  /** Whether it has no conditions, and is in the order of positions. */
  isPlain: boolean
  /** Identifies the conditions and the order. A cursor belongs to one query. */
  digest: string
}

/** The parameters of queries by name: the field and the operator of each. */
export function parametersOf (fields: Field[]) {
  const entries = fields.flatMap(field => {
    const ofType: readonly Operator[] = operators[field.type as keyof typeof operators]
    const names: Operator[] = field.isOptional ? [...ofType, 'exists'] : [...ofType]
    const parameters = names.map(operator => [`${field.name}.${operator}`, { field, operator }] as const)
    return [[field.name, { field, operator: 'in' as const }] as const, ...parameters]
  })
  return new Map<string, { field: Field, operator: Operator }>(entries)
}

/** Returns a function that reads queries for a collection whose fields can be queried. */
export function planner (fields: Field[]) {
  const parameters = parametersOf(fields)

  return function plan ({ where, sort, after, limit = Infinity }: AnyQuery): Plan {
    const conditions = Object.entries<Value | readonly Value[]>({ ...where })
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => conditionOf(name, value))
    const name = sort?.replace(/^-/, '')
    const field = name === undefined ? undefined : parameters.get(name)?.field
    if (name !== undefined && !field) throw new TypeError(`This collection cannot be sorted by ${sort}`)
    const content = conditions.map(({ field, operator, value }) => [field.name, operator, value]).sort()
    const isPlain = content.length === 0 && sort === undefined
    const digest = isPlain ? '' : hash('sha256', JSON.stringify([content, sort]), 'base64url').slice(0, 12)
    const plan = { conditions, sort: field, descending: sort?.startsWith('-') ?? false, limit, isPlain, digest }
    return after === undefined ? plan : { ...plan, after: placeAt(after, plan) }
  }

  function conditionOf (name: string, value: Value | readonly Value[]): Condition {
    const parameter = parameters.get(name)
    if (!parameter) throw new TypeError(`${name} is not a condition of this collection`)
    const asIndexed = (one: Value) => parameter.field.isTime && typeof one === 'string' ? indexTime(one) : one
    const values = [value].flat().map(asIndexed)
    return { ...parameter, value: parameter.operator === 'in' ? values : values[0] }
  }
}

/** The cursor of the page after a place: its position and, in an order, its value. */
export function cursorOf ({ position, value }: Place, { isPlain, digest }: Plan) {
  const content = isPlain ? position : [position, value ?? null, digest]
  return Buffer.from(JSON.stringify(content)).toString('base64url')
}

function placeAt (cursor: string, plan: Plan): Place {
  const place = parsed(cursor, plan)
  if (!place || cursorOf(place, plan) !== cursor) throw invalidCursor()
  if (place.value !== undefined && !canBeInCursor(place.value, plan.sort)) throw invalidCursor()
  return place
}

/** The place in a cursor. A client can send anything. */
function parsed (cursor: string, { isPlain }: Plan): Place | undefined {
  try {
    const content: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString())
    const [position, value] = isPlain ? [content] : content as unknown[]
    if (!Number.isSafeInteger(position) || Number(position) < 0) return
    return { position: Number(position), value: value as Value ?? undefined }
  } catch {}
}

function canBeInCursor (value: unknown, field?: Field) {
  if (typeof value === 'string') return field?.type === 'string' && value.isWellFormed() && !value.includes('\0')
  if (typeof value === 'boolean') return field?.type === 'boolean'
  if (typeof value !== 'number') return false
  return field?.type === 'number' || (field?.type === 'integer' && Number.isSafeInteger(value))
}

/** Returns a function that returns whether a value meets a condition. An absent value meets only `exists: false`. */
export function testOf ({ operator, value }: Condition): (actual: Value) => boolean {
  switch (operator) {
    case 'exists': return actual => (actual !== undefined) === value
    case 'prefix': return actual => actual !== undefined && String(actual).startsWith(String(value))
    case 'in': {
      const values = new Set(value as Value[])
      return actual => values.has(actual)
    }
  }
  const isMet = {
    gt: (order: number) => order > 0,
    gte: (order: number) => order >= 0,
    lt: (order: number) => order < 0,
    lte: (order: number) => order <= 0
  }[operator]
  return actual => actual !== undefined && isMet(compare(actual, value as Value))
}

/** Orders places as their query does. */
export function comparePlaces (one: Place, other: Place) {
  return compare(one.value, other.value) || one.position - other.position
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
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}

/** The least text that is larger than all texts with a prefix, if there is one. */
export function afterPrefix (prefix: string) {
  const points = Array.from(prefix, character => character.codePointAt(0) as number)
  while (points.at(-1) === 0x10ffff) points.pop()
  const last = points.pop()
  return last === undefined ? undefined : String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
}
