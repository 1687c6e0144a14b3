import type { TSchema } from '@sinclair/typebox'
import { pointer } from './error-body.js'

/** The keywords that contain a schema or a list of schemas. */
const nested = [
  'additionalProperties', 'allOf', 'anyOf', 'contains', 'else', 'if', 'items', 'not', 'oneOf', 'prefixItems',
  'propertyNames', 'then', 'unevaluatedItems', 'unevaluatedProperties'
]

/** The keywords that contain schemas by name. */
const named = ['$defs', 'definitions', 'dependentSchemas', 'patternProperties', 'properties']

/** Changes a schema and all schemas in it. The path of each is a JSON Pointer. */
export function mapSchema (schema: TSchema, change: (schema: TSchema, path: string) => object, path = ''): TSchema {
  const entries = Object.entries(schema).map(([keyword, value]) => {
    const isNamed = named.includes(keyword)
    if (!isNamed && !nested.includes(keyword)) return [keyword, value]
    const inner = path + pointer(keyword)
    if (Array.isArray(value)) return [keyword, value.map((part, n) => mapIfSchema(part, change, inner + pointer(n)))]
    if (!isNamed) return [keyword, mapIfSchema(value, change, inner)]
    const parts = Object.entries(value).map(([name, part]) => [name, mapIfSchema(part, change, inner + pointer(name))])
    return [keyword, Object.fromEntries(parts)]
  })
  return change(Object.fromEntries(entries), path) as TSchema
}

/** A schema can also be true or false. */
function mapIfSchema (value: unknown, change: Parameters<typeof mapSchema>[1], path: string) {
  return typeof value === 'object' && value !== null ? mapSchema(value as TSchema, change, path) : value
}

/** A schema and all schemas in it, each with its JSON Pointer. */
export function schemasIn (schema: TSchema, path = '') {
  const found: { schema: TSchema, path: string }[] = []
  mapSchema(schema, (schema, path) => {
    found.push({ schema, path })
    return schema
  }, path)
  return found
}
