import type { TObject, TSchema } from '@sinclair/typebox'
import fastJson from 'fast-json-stringify'
import { pointer, targetsIn } from '../schema/walk.js'

/** How the values of a field are stored: with a type that JSON and SQL have in common, or as JSON text. */
export type FieldType = 'integer' | 'number' | 'string' | 'boolean' | 'json'

/** The fields of a record, in the order of its schema, with the values that they can have if these are strings or numbers. */
export function fieldsOf (schema: TObject) {
  const { properties, required = [] } = schema
  const targets = targetsIn(schema)
  return Object.entries(properties).map(([name, schema]) => {
    const target = resolved(schema)
    const type = typeOf(target)
    const values = type === 'json' || type === 'boolean' ? undefined : valuesOf(target)
    return { name, path: pointer(name), type, isOptional: !required.includes(name), values: values?.every(value => isComparable(value, type)) ? values : undefined }
  })

  function resolved (schema: TSchema): TSchema {
    const target = targets.get(String(schema.$ref))
    return target ? resolved(target) : schema
  }
}

function typeOf ({ type, anyOf = [], nullable }: TSchema): FieldType {
  if (nullable) return 'json' // SQL null means that the field is absent
  if (type === 'number' || type === 'string' || type === 'boolean' || type === 'integer') return type
  const [common = 'json', ...others] = new Set<FieldType>(anyOf.map(typeOf))
  return others.length === 0 ? common : 'json'
}

/** Returns whether a column of this type can be compared with a value. */
function isComparable (value: unknown, type: FieldType) {
  return type === 'string' ? typeof value === 'string' && !value.includes('\0') : typeof value === 'number'
}

/** The values of an enumeration: `enum`, `const`, or a union of these. */
function valuesOf (schema: TSchema): (string | number)[] | undefined {
  if ('const' in schema) return [schema.const]
  if (schema.enum) return schema.enum
  const values = schema.anyOf?.map(valuesOf)
  return values?.includes(undefined) ? undefined : values?.flat()
}

/** Returns a function that encodes a record as JSON: the fields of its schema, in order, as `JSON.stringify` writes them. */
export function encoderOf (schema: TObject): (record: object) => string {
  // Only the types are passed on: with `required` fast-json-stringify changes the order, with `default` and `format` the values.
  const properties = fieldsOf(schema).map(({ name, type }) => [name, type === 'json' ? {} : { type }])
  return fastJson({ type: 'object', properties: Object.fromEntries(properties) })
}
