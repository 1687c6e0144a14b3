import type { TSchema } from '@sinclair/typebox'
import { isAnnotation, mapSchema } from './walk.js'

/** The keywords of a schema in Swagger 2.0, and those that OpenAPI 3.0 has, too. */
const swaggerKeywords = [
  '$ref', 'additionalProperties', 'allOf', 'default', 'description', 'enum', 'exclusiveMaximum', 'exclusiveMinimum', 'format', 'items', 'maximum', 'maxItems', 'maxLength',
  'maxProperties', 'minimum', 'minItems', 'minLength', 'minProperties', 'multipleOf', 'pattern', 'properties', 'readOnly', 'required', 'title', 'type', 'uniqueItems'
]
const openapiKeywords = [...swaggerKeywords, 'anyOf', 'deprecated', 'not', 'nullable', 'oneOf', 'writeOnly']

/** A schema in the words of Swagger 2.0 or OpenAPI 3.0. What they cannot express is left out. */
export function olderSchema (schema: object, version: '2.0' | '3.0') {
  const keywords = version === '2.0' ? swaggerKeywords : openapiKeywords
  const isKnown = (keyword: string) => keywords.includes(keyword) || (isAnnotation(keyword) && (keyword !== 'discriminator' || version === '3.0'))
  return mapSchema(schema, given => {
    const part: TSchema = version === '2.0' ? withoutAlternatives(given) : { ...given }
    if ('const' in part) part.enum = [part.const]
    if (part.required?.length === 0) delete part.required
    if ([part.type].flat().includes('array')) part.items = objectOf(part.items)
    if (part.properties) part.properties = Object.fromEntries(Object.entries(part.properties).map(([name, property]) => [name, objectOf(property)]))
    for (const keyword of ['allOf', 'anyOf', 'oneOf'].filter(keyword => part[keyword])) part[keyword] = part[keyword].map(objectOf)
    for (const [bound, exclusive, sign] of [['minimum', 'exclusiveMinimum', 1], ['maximum', 'exclusiveMaximum', -1]] as const) {
      const value = part[exclusive]
      if (typeof value !== 'number') continue
      delete part[exclusive]
      if (!(sign * Number(part[bound]) > sign * value)) Object.assign(part, { [bound]: value, [exclusive]: true })
    }
    return Object.fromEntries(Object.entries(part).filter(([keyword]) => isKnown(keyword)))
  })
}

/** The older versions have no schemas that are true or false. */
function objectOf (schema: unknown) {
  return Object(schema) === schema ? schema : {}
}

/** Swagger 2.0 has neither alternatives nor null, which is a keyword of other programs. Alternatives that are values become an enum. */
function withoutAlternatives ({ anyOf, oneOf = anyOf, nullable, ...schema }: TSchema): TSchema {
  const parts: TSchema[] = (oneOf ?? []).filter(({ type }: TSchema) => type !== 'null')
  const isNullable = nullable || parts.length < oneOf?.length
  const common = parts.length === 1 ? parts[0] : parts.length > 0 && parts.every(part => part.enum && part.type === parts[0]?.type) ? { ...parts[0], enum: parts.flatMap(part => part.enum) } : {}
  return { ...common, ...schema, ...isNullable && { 'x-nullable': true } }
}
