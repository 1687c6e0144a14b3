import type { TSchema } from '@sinclair/typebox'

/** A record that was generated from a schema. */
export type Generated = { id: number } & Record<string, unknown>

/** A valid record with this id and all fields. Other numbers give other values, where the schema allows them. */
export function recordOf (schema: TSchema, id: number, n = 0): Generated {
  return { ...valueOf(schema, n) as object, id }
}

function valueOf (schema: TSchema, n: number): unknown {
  const { type, minimum = -1e6, maximum = 1e6, minLength = 0, maxLength = Infinity, minItems = 1 } = schema
  const hasExamples = schema.format || schema.pattern || Array.isArray(schema.items)
  const constants = schema.const === undefined ? undefined : [schema.const]
  const choices = schema.enum ?? constants ?? (hasExamples ? schema.examples : undefined)
  if (choices) return choices[n % choices.length]
  const variants = schema.anyOf ?? schema.oneOf
  if (variants) return valueOf(variants[n % variants.length], n)
  if (type === 'string') return `number ${n}`.padEnd(minLength, '.').slice(0, maxLength)
  if (type === 'integer') return Math.min(Math.max(n + 3, minimum), maximum)
  if (type === 'number') return Math.min(Math.max(n + 19.99, minimum), maximum)
  if (type === 'boolean') return n % 2 === 0
  if (type === 'array') return Array.from({ length: minItems }, (_, place) => valueOf(schema.items ?? {}, n + place))
  if (type === 'object') {
    return Object.fromEntries(Object.entries<TSchema>(schema.properties)
      .map(([name, field]) => [name, valueOf(field, n)]))
  }
  return null
}

const texts = ['', ' ', '\n\t"\\', '\0\u0001', '\u2028', '\u007f', '\uFFFD\uFEFF\uFFFF', 'e\u0301',
  'Zoë 愛 🫖 👩‍👩‍👧 مرحبا',
  'NULL', '{}', "it's", '$1', '%s', '\\u0000', 'x'.repeat(100_000), '__proto__', '<script>', '; drop table items; --']
const integers = [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 0, -2, 2 ** 31, -(2 ** 31) - 1]
const numbers = [0, -1.5, 0.1, 5e-324, -5e-324, 1.7976931348623157e308, 2 ** 53, 1e21, 1e-7, 123456789.12345679, 1 / 3]

/** Valid values of a field, with those at the edges. */
export function edgesOf (schema: TSchema): unknown[] {
  const { type, minimum = -Infinity, maximum = Infinity, minLength = 0, maxLength = Infinity } = schema
  if (isText(schema)) return texts.filter(({ length }) => length >= minLength && length <= maxLength)
  if (type === 'integer' || type === 'number') {
    return (type === 'integer' ? integers : numbers).filter(value => value >= minimum && value <= maximum)
  }
  return Array.from({ length: schema.enum?.length ?? 2 }, (_, n) => valueOf(schema, n))
}

/** Whether a field can be any text. */
export function isText ({ type, enum: values, format, pattern }: TSchema) {
  return type === 'string' && !values && !format && !pattern
}

const kinds = { null: null, boolean: true, string: '1', number: 1.5, array: [1], object: { id: 1 } }
const names: Record<string, string> = {
  string: 'a string',
  integer: 'an integer',
  number: 'a number',
  boolean: 'true or false',
  array: 'an array',
  object: 'an object'
}

/** Values of other types than that of a field, and the message for them. */
export function wrongOf ({ type }: TSchema): [value: unknown, message: string][] {
  return typeof type !== 'string'
    ? []
    : Object.entries(kinds).filter(([kind]) => kind !== type).map(([, value]) => [value, `must be ${names[type]}`])
}
