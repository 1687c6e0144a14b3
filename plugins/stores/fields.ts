import type { TObject, TSchema } from '@sinclair/typebox'
import fastJson from 'fast-json-stringify'
import { pointer, targetsIn } from '../schema/walk.js'

/** How the values of a field are stored: with a type that JSON and SQL have in common, or as JSON text. */
export type FieldType = 'integer' | 'number' | 'string' | 'boolean' | 'json'

export interface Field {
  name: string
  /** A JSON Pointer to it. */
  path: string
  type: FieldType
  /** The JSON types that its values can have, as far as its schema says. */
  types: string[]
  isOptional: boolean
  /** The values that it can have, if its schema lists them. */
  values?: unknown[]
  /** The value of existing records that do not have the field when it becomes required. */
  default?: unknown
}

/** The fields of a record, in the order of its schema. */
export function fieldsOf (schema: TObject): Field[] {
  const { properties, required = [] } = schema
  const targets = targetsIn(schema)
  return Object.entries(properties).map(([name, schema]) => {
    const target = resolved(schema)
    const type = typeOf(target)
    const types = jsonTypesOf(target)
    const values = valuesOf(target)?.filter(value => types.includes(jsonTypeOf(value)) || typeof value === 'number')
    const isListed = type !== 'boolean' && values?.length && values.every(value => Object(value) !== value)
    return { name, path: pointer(name), type, types, isOptional: !required.includes(name), values: isListed ? values : undefined, default: schema.default ?? target.default }
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

function jsonTypesOf ({ type, const: constant, enum: values = constant === undefined ? undefined : [constant], anyOf, oneOf = anyOf, nullable }: TSchema): string[] {
  const types = type ? [type].flat() : values?.map(jsonTypeOf) ?? oneOf?.flatMap(jsonTypesOf) ?? ['array', 'boolean', 'null', 'number', 'object', 'string']
  return [...new Set<string>(nullable ? [...types, 'null'] : types)]
}

function jsonTypeOf (value: unknown) {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
}

/** The values of an enumeration: `enum`, `const`, or a union of these. */
function valuesOf (schema: TSchema): unknown[] | undefined {
  if (schema.const !== undefined) return [schema.const]
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
