import type { TSchema } from '@sinclair/typebox'

/** The keywords that contain a schema or a list of schemas, and those that contain schemas by name. */
const nested = [
  'additionalItems', 'additionalProperties', 'allOf', 'anyOf', 'contains', 'else', 'if', 'items', 'not', 'oneOf', 'prefixItems', 'propertyNames',
  'then', 'unevaluatedItems', 'unevaluatedProperties'
]
const named = ['$defs', 'definitions', 'dependentSchemas', 'patternProperties', 'properties']

/** Changes a schema and all schemas in it. The path of each is a JSON Pointer. */
export function mapSchema<T extends object> (schema: T, change: (schema: TSchema, path: string) => object, path = ''): TSchema {
  const map = (value: unknown, ...names: unknown[]) =>
    typeof value === 'object' && value !== null ? mapSchema(value, change, path + names.map(pointer).join('')) : value
  const entries = Object.entries(schema).map(([keyword, value]) => {
    if (nested.includes(keyword)) return [keyword, Array.isArray(value) ? value.map((schema, n) => map(schema, keyword, n)) : map(value, keyword)]
    if (named.includes(keyword)) return [keyword, Object.fromEntries(Object.entries(Object(value)).map(([name, schema]) => [name, map(schema, keyword, name)]))]
    return [keyword, value]
  })
  return change(Object.fromEntries(entries), path) as TSchema
}

/** A schema and all schemas in it, each with its JSON Pointer. */
export function schemasIn (schema: object, path = '') {
  const found: { schema: TSchema, path: string }[] = []
  mapSchema(schema, (schema, path) => {
    found.push({ schema, path })
    return schema
  }, path)
  return found
}

/** A property as a part of a JSON Pointer. */
export function pointer (property: unknown) {
  return `/${String(property).replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** The schemas that a reference in a schema can have as its target. */
export function targetsIn (schema: TSchema) {
  return new Map(['$defs', 'definitions'].flatMap(keyword =>
    Object.entries<TSchema>({ ...schema[keyword] }).map(([name, target]): [string, TSchema] => [`#/${keyword}/${name}`, target])))
}

/** All schemas that a reference in a schema of a host can have as its target: those in it, by their JSON Pointer and their `$id`. */
export function partsIn (schema: TSchema) {
  return new Map(schemasIn(schema, '#').flatMap(({ schema: part, path }): [string, TSchema][] => [[path, part], [part.$id ?? path, part]]))
}

/** The keywords with schemas for the same value, except for `not`, whose annotations have no meaning. */
export const inPlace = ['allOf', 'anyOf', 'oneOf', 'if', 'then', 'else', 'dependentSchemas']

export function isSchema (value: unknown): value is TSchema {
  return Object(value) === value
}

/** The schemas in these keywords of a schema. */
export function alternativesIn (schema: TSchema, keywords: string[]): TSchema[] {
  return keywords.flatMap(keyword => keyword === 'dependentSchemas' ? Object.values({ ...schema[keyword] }) : schema[keyword]).filter(isSchema)
}

/** A schema, and all others for the same value that it refers to, or that it contains in these keywords. */
export function forSameValue (schema: TSchema, targets: ReturnType<typeof targetsIn>, keywords = inPlace) {
  const found = new Set([schema])
  for (const part of found) for (const other of [...alternativesIn(part, keywords), targets.get(part.$ref)]) if (other) found.add(other)
  return [...found]
}

/** Returns whether a keyword is an annotation of OpenAPI, which is for the document and does not change what is valid. */
export function isAnnotation (keyword: string) {
  return /^(x-.*|example|externalDocs|discriminator|xml)$/s.test(keyword)
}
