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
  other: Fields
}

/** The keywords with schemas for the same value. */
const inPlace = ['allOf', 'anyOf', 'oneOf', 'then', 'else']

/** Stands for the absence of another value. */
const none = {}

/**
 * Returns a function that visits some fields of a schema in a value, outer fields first; if there is another value, only where
 * both have an object. It follows the fields that the value has, because a body can have many small objects. Most schemas
 * have no such fields, and then there is no function.
 */
export function fieldVisitor (schema: TSchema, isVisited: (property: TSchema | false, isRequired: boolean) => boolean, visit: (field: Field) => void, followed = inPlace) {
  const targets = targetsIn(schema)
  const plans = new Map<TSchema, ReturnType<typeof planOf>>()
  if (!hasFields(schema)) return
  return <T>(value: T, other: unknown = none) => {
    walk(schema, value, other)
    return value
  }

  function walk (schema: TSchema | undefined, value: unknown, otherValue: unknown) {
    if (!schema || !isObject(value) || !isObject(otherValue)) return
    if (!plans.has(schema)) plans.set(schema, planOf(schema))
    const plan = plans.get(schema)
    if (!plan) return
    for (const part of plan.parts) walk(part, value, otherValue)
    if (Array.isArray(value)) return value.forEach((entry, n) => walk(schema.prefixItems?.[n] ?? schema.items, entry, otherValue === none ? none : undefined))
    for (const [name, property] of plan.fields) visit({ object: value, name, property, other: otherValue })
    for (const name of Object.keys(value)) {
      for (const part of plan.partsOf(name)) {
        if (part) walk(part, value[name], otherValue === none ? none : otherValue[name])
        else if (part === false && isVisited(part, false)) visit({ object: value, name, property: {} as TSchema, other: otherValue })
      }
    }
  }

  /** What is the same for all values of a schema. */
  function planOf (schema: TSchema) {
    if (!hasFields(schema)) return
    const { $ref, properties = {}, additionalProperties, patternProperties } = schema
    const patterns = Object.entries<TSchema | false>({ ...patternProperties }).map(([pattern, part]) => ({ pattern: new RegExp(pattern, 'u'), part }))
    return {
      parts: [targets.get($ref), ...followed.flatMap(keyword => schema[keyword])],
      fields: fieldsOf(schema),
      partsOf (name: string): (TSchema | false | undefined)[] {
        if (Object.hasOwn(properties, name)) return [properties[name]]
        const matching = patterns.filter(({ pattern }) => pattern.test(name)).map(({ part }) => part)
        return matching.length > 0 ? matching : [additionalProperties]
      }
    }
  }

  function hasFields (schema: TSchema, seen = new Set<TSchema>()): boolean {
    return schemasIn(schema).some(({ schema: part }) => {
      const target = targets.get(part.$ref)
      const others = [part.additionalProperties, ...Object.values({ ...part.patternProperties })]
      return fieldsOf(part).length > 0 || (others.includes(false) && isVisited(false, false)) || (target && !seen.has(target) && hasFields(target, seen.add(target)))
    })
  }

  function fieldsOf ({ properties, required = [] }: TSchema) {
    return Object.entries<TSchema>({ ...properties }).map(([name, property]): [string, TSchema] => [name, property && { ...targets.get(property.$ref), ...property }])
      .filter(([name, property]) => isVisited(property, required.includes(name)))
  }
}

function isObject (value: unknown): value is Fields {
  return typeof value === 'object' && value !== null
}

/** Returns a function that removes the fields that have a keyword from a value, if the schema has some. */
export function fieldRemover (schema: TSchema, keyword: Access) {
  return fieldVisitor(schema, property => Object(property)[keyword] === true, ({ object, name }) => { delete object[name] })
}

/** Returns a function that adds the defaults of the fields that a value does not have, if the schema has some. */
export function defaultAdder (schema: TSchema) {
  return fieldVisitor(schema, property => Object(property).default !== undefined, ({ object, name, property }) => {
    if (object[name] === undefined) object[name] = structuredClone(property.default)
  }, ['allOf'])
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
  return fieldVisitor({ ...record, additionalProperties: true }, property => property === false, ({ object, name }) => { delete object[name] }, [])
}

/** A schema without the fields that have a keyword; the same one if no field has it. */
export function withoutFields (schema: TObject, keyword: Access) {
  const removeFields = fieldRemover(schema, keyword)
  if (!removeFields) return schema
  const targets = targetsIn(schema)
  const { examples, ...rest } = schema
  const changed = mapSchema(rest, part => {
    const kept = Object.entries<TSchema>({ ...part.properties }).filter(([, property]) => ({ ...targets.get(property.$ref), ...property })[keyword] !== true)
    return part.properties ? withFields(part, Object.fromEntries(kept)) : part
  }) as TObject
  return { ...changed, ...examples && { examples: structuredClone(examples).map((example: unknown) => removeFields(example)) } }
}

/** A schema with these fields instead of its own. (In OpenAPI 3.0, `required` must not be empty.) */
export function withFields (schema: TSchema, properties: Record<string, TSchema>, isRequired = (name: string) => Object.hasOwn(properties, name)): object {
  const { required: names = [], ...rest } = schema
  const required = names.filter(isRequired)
  return { ...rest, properties, ...required.length > 0 && { required } }
}

/** Returns a stream that changes the records in a JSON array. It holds one record at a time. */
export function recordStream (change: (record: unknown) => unknown) {
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
          output += JSON.stringify(change(JSON.parse(record + text.slice(start, n + 1))))
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
