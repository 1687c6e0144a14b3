import { Transform } from 'node:stream'
import { TextDecoder } from 'node:util'
import type { TObject, TSchema } from '@sinclair/typebox'
import { mapSchema, schemasIn, targetsIn } from './walk.js'

type Fields = Record<string, unknown>
type Access = 'readOnly' | 'writeOnly'

/** A field that an object in a value has or can have. `other` is the object at the same place of another value. */
interface Field {
  object: Fields
  name: string
  property: TSchema
  isRequired: boolean
  /** Whether the schema does not allow the field. */
  isForbidden: boolean
  other: Fields
}

/** Calls a function for each field of a schema in a value, for outer fields first. Some callers do not follow all keywords with schemas for the same value. */
export function visitFields (schema: TSchema, value: unknown, visit: (field: Field) => void, otherValue?: unknown, followed = ['allOf', 'anyOf', 'oneOf', 'then', 'else']) {
  const targets = targetsIn(schema)
  walk(schema, value, otherValue)

  function walk (schema: TSchema | undefined, value: unknown, otherValue: unknown) {
    if (typeof value !== 'object' || value === null || !schema) return
    const { $ref, properties = {}, required = [], items, prefixItems = [], additionalProperties, patternProperties } = schema
    for (const part of [targets.get($ref), ...followed.flatMap(keyword => schema[keyword])]) walk(part, value, otherValue)
    if (Array.isArray(value)) return value.forEach((entry, n) => walk(prefixItems[n] ?? items, entry, undefined))
    const object = value as Fields
    const other: Fields = Object(otherValue)
    for (const [name, property] of Object.entries<TSchema>(properties)) {
      visit({ object, name, property: { ...targets.get(property.$ref), ...property }, isRequired: required.includes(name), isForbidden: !property, other })
      walk(property, object[name], other[name])
    }
    for (const [name, entry] of Object.entries(object).filter(([name]) => !Object.hasOwn(properties, name))) {
      const matching = Object.entries<TSchema>({ ...patternProperties }).filter(([pattern]) => new RegExp(pattern, 'u').test(name)).map(([, part]) => part)
      for (const part of matching.length > 0 ? matching : [additionalProperties]) {
        if (part === false) visit({ object, name, property: part, isRequired: false, isForbidden: true, other })
        walk(part, entry, other[name])
      }
    }
  }
}

/** Returns whether a schema may have a field with a keyword. Most have none, and then nothing needs to be done with their values. */
export function hasKeyword (schema: TSchema, keyword: Access | 'default') {
  return JSON.stringify(schema).includes(keyword === 'default' ? '"default":' : `"${keyword}":true`)
}

/** Removes the fields that have a keyword from a value. */
export function removeFields<T> (schema: TSchema, keyword: Access, value: T) {
  visitFields(schema, value, ({ object, name, property }) => { if (property[keyword] === true) delete object[name] })
  return value
}

/** Adds the defaults of the fields that a value does not have. */
export function addDefaults<T> (schema: TSchema, value: T) {
  visitFields(schema, value, ({ object, name, property }) => {
    if (property.default !== undefined && object[name] === undefined) object[name] = structuredClone(property.default)
  }, undefined, ['allOf'])
  return value
}

/** Returns a function that returns a record with only the fields in `properties`. */
export function knownFieldsOf ({ properties }: TObject) {
  const isKnown = (name: string) => Object.hasOwn(properties, name)
  return <T extends object>(record: T) =>
    Object.keys(record).every(isKnown) ? record : Object.fromEntries(Object.entries(record).filter(([name]) => isKnown(name))) as T
}

/**
 * Returns a function that removes the fields that `additionalProperties: false` forbids in nested objects, before they are
 * validated, as Fastify does by default. Those in `anyOf` and the like are left to the validator, because they tell variants apart.
 */
export function nestedFieldsRemover (record: TObject) {
  const isStrict = schemasIn(record).some(({ schema, path }) => path !== '' && schema.additionalProperties === false)
  const open = { ...record, additionalProperties: true }
  return (value: unknown) => { if (isStrict) visitFields(open, value, ({ object, name, isForbidden }) => { if (isForbidden) delete object[name] }, undefined, []) }
}

/** A schema without the fields that have a keyword; the same one if no field has it. */
export function withoutFields (schema: TObject, keyword: Access) {
  if (!hasKeyword(schema, keyword)) return schema
  const targets = targetsIn(schema)
  const { examples, ...rest } = schema
  const changed = mapSchema(rest, part => {
    const kept = Object.entries<TSchema>({ ...part.properties }).filter(([, property]) => ({ ...targets.get(property.$ref), ...property })[keyword] !== true)
    return part.properties ? withFields(part, Object.fromEntries(kept)) : part
  }) as TObject
  return { ...changed, ...examples && { examples: structuredClone(examples).map((example: unknown) => removeFields(schema, keyword, example)) } }
}

/** A schema with these fields instead of its own. (In OpenAPI 3.0, `required` must not be empty.) */
export function withFields (schema: TSchema, properties: Record<string, TSchema>, isRequired = (name: string) => Object.hasOwn(properties, name)): object {
  const { required: names = [], ...rest } = schema
  const required = names.filter(isRequired)
  return { ...rest, properties, ...required.length > 0 && { required } }
}

/** Returns a stream that removes the fields with a keyword from the records in a JSON array. It holds one record at a time. */
export function fieldRemover (schema: TSchema, keyword: Access) {
  const decoder = new TextDecoder()
  let record = ''
  let depth = 0
  let isText = false
  let isEscaped = false
  return new Transform({
    transform (chunk: Buffer, _encoding, done) {
      const text = decoder.decode(chunk, { stream: true })
      let output = ''
      let start = 0
      for (let n = 0; n < text.length; n++) {
        const character = text[n]
        if (isText) {
          isText = isEscaped || character !== '"'
          isEscaped = !isEscaped && character === '\\'
        } else if (character === '"') {
          isText = true
        } else if (character === '{' || character === '[') {
          if (++depth === 2) [start, output] = [n, output + text.slice(start, n)]
        } else if ((character === '}' || character === ']') && --depth === 1) {
          output += JSON.stringify(removeFields(schema, keyword, JSON.parse(record + text.slice(start, n + 1))))
          record = ''
          start = n + 1
        }
      }
      if (depth > 1) record += text.slice(start)
      else output += text.slice(start)
      done(null, output)
    }
  })
}
