import { Transform } from 'node:stream'
import { TextDecoder } from 'node:util'
import type { TObject, TSchema } from '@sinclair/typebox'
import { forSameValue, inPlace, isSchema, mapSchema, partsIn, schemasIn } from './walk.js'

type Fields = Record<string, unknown>
type Access = 'readOnly' | 'writeOnly'

/** A field that an object in a value has or can have. `other` is the object at the same place of another value. */
interface Field {
  object: Fields
  name: string
  property: TSchema
  other: Fields
}

/** Stands for the absence of another value. */
const none = {}

/**
 * Returns a function that visits some fields of a schema in a value, outer fields first; if there is another value, only where
 * both have an object. It follows the fields that the value has, because a body can have many small objects, and the schemas
 * for the same value in some keywords. Most schemas have no such fields, and then there is no function.
 */
export function fieldVisitor (schema: TSchema, isVisited: (property: TSchema | boolean, isRequired: boolean) => boolean, visit: (field: Field) => void, followed = inPlace) {
  const targets = partsIn(schema)
  const plans = new Map<TSchema, ReturnType<typeof planOf>>()
  if (!hasFields(schema)) return
  return <T>(value: T, other: unknown = none, part = schema) => {
    walk(part, value, other)
    return value
  }

  function walk (schema: TSchema, value: unknown, otherValue: unknown) {
    if (!isObject(value) || !isObject(otherValue)) return
    if (!plans.has(schema)) plans.set(schema, planOf(schema))
    const plan = plans.get(schema)
    if (!plan) return
    if (Array.isArray(value)) return value.forEach((entry, n) => { for (const part of plan.itemsAt(n)) walk(part, entry, otherValue === none ? none : undefined) })
    for (const [name, property] of plan.fields) visit({ object: value, name, property, other: otherValue })
    for (const name of Object.keys(otherValue === none ? value : { ...otherValue, ...value })) {
      const { visited, parts } = plan.entryOf(name)
      for (const part of visited) visit({ object: value, name, property: Object(part), other: otherValue })
      for (const part of parts) walk(part, own(value, name), otherValue === none ? none : own(otherValue, name))
    }
  }

  /** What is the same for all values of a schema. */
  function planOf (schema: TSchema) {
    if (!hasFields(schema)) return
    const all = forSameValue(schema, targets, followed)
    const unconditional = new Set(forSameValue(schema, targets, ['allOf']))
    const maps = all.map(part => ({
      isUnconditional: unconditional.has(part),
      properties: part.properties ?? {},
      patterns: Object.entries<TSchema | boolean>({ ...part.patternProperties }).map(([pattern, part]) => ({ pattern: new RegExp(pattern, 'u'), part })),
      rest: part.additionalProperties,
      unevaluated: part.unevaluatedProperties || true
    }))
    const visited = new Set(all.flatMap(mapsOf).filter(part => isVisited(part, false)))
    const entryOf = (name: string) => {
      let isEvaluated = false
      const found = maps.flatMap(({ isUnconditional, properties, patterns, rest }) => {
        const matching = patterns.filter(({ pattern }) => pattern.test(name)).map(({ part }) => part)
        const isNamed = Object.hasOwn(properties, name)
        const others = matching.length > 0 || isNamed ? matching : [rest]
        isEvaluated ||= isNamed || (isUnconditional && others.some(Boolean))
        return [own(properties, name), ...others]
      })
      const parts = isEvaluated ? found : [...found, ...maps.map(({ unevaluated }) => unevaluated)]
      return { visited: parts.filter(part => visited.has(part)), parts: parts.filter(isSchema) }
    }
    const known = new Map(all.flatMap(({ properties }) => Object.keys({ ...properties })).map(name => [name, entryOf(name)]))
    const itemsAt = (n: number) => all.flatMap(({ prefixItems, items, unevaluatedItems, contains }) => [prefixItems?.[n] ?? items ?? unevaluatedItems, contains]).filter(isSchema)
    const fixed = Math.max(...all.map(({ prefixItems = [] }) => prefixItems.length))
    const rest = itemsAt(fixed)
    return { fields: all.flatMap(fieldsOf), entryOf: (name: string) => known.get(name) ?? entryOf(name), itemsAt: (n: number) => n < fixed ? itemsAt(n) : rest }
  }

  function hasFields (schema: TSchema, seen = new Set<TSchema>()): boolean {
    return schemasIn(schema).some(({ schema: part }) => {
      const target = targets.get(part.$ref)
      return fieldsOf(part).length > 0 || mapsOf(part).some(part => isVisited(part, false)) || (target && !seen.has(target) && hasFields(target, seen.add(target)))
    })
  }

  function fieldsOf ({ properties, required = [] }: TSchema) {
    return Object.entries<TSchema>({ ...properties }).filter(([name, property]) => isVisited(property, required.includes(name)))
  }
}

/** The schemas for the fields of an object that are not in `properties`. */
function mapsOf ({ patternProperties, additionalProperties, unevaluatedProperties }: TSchema): (TSchema | boolean)[] {
  return [...Object.values<TSchema>({ ...patternProperties }), additionalProperties ?? true, unevaluatedProperties || true]
}

function isObject (value: unknown): value is Fields {
  return typeof value === 'object' && value !== null
}

/** A property that an object has itself, not from its prototype. */
function own (object: Fields, name: string) {
  return Object.hasOwn(object, name) ? object[name] : undefined
}

/** Returns a function that returns whether a field has a value of a keyword, in its own schema or in another one for the same value. */
export function accessOf (schema: TSchema) {
  const targets = partsIn(schema)
  return (property: unknown, keyword: Access | 'format', value: unknown = true) => isSchema(property) && forSameValue(property, targets).some(part => part[keyword] === value)
}

/** Returns a function that removes the fields that have a keyword from a value, if the schema has some. */
export function fieldRemover (schema: TSchema, keyword: Access) {
  const has = accessOf(schema)
  return fieldVisitor(schema, property => has(property, keyword), ({ object, name }) => { delete object[name] })
}

/** Returns a function that adds the readOnly fields of another value that a value does not have, if the schema has some. */
export function readOnlyKeeper (schema: TSchema) {
  const has = accessOf(schema)
  return fieldVisitor(schema, property => has(property, 'readOnly'), ({ object, name, other }) => {
    if (own(object, name) === undefined && own(other, name) !== undefined) object[name] = other[name]
  })
}

/**
 * Returns a function that adds the defaults of the fields that some values do not have, if the schema has some. It throws a
 * `RangeError` if they have more characters than a maximum, because an array can have many small objects. The values are those
 * of the schema or of a part of it.
 */
export function defaultAdder (schema: TSchema) {
  const targets = partsIn(schema)
  const defaultOf = (property: unknown) => isSchema(property) ? forSameValue(property, targets, ['allOf']).find(part => part.default !== undefined)?.default : undefined
  const texts = new Map<TSchema, string>()
  let left = 0
  const add = fieldVisitor(schema, property => defaultOf(property) !== undefined, ({ object, name, property }) => {
    if (own(object, name) !== undefined) return
    const text = texts.get(property) ?? JSON.stringify(defaultOf(property))
    texts.set(property, text)
    left -= name.length + text.length
    if (left < 0) throw new RangeError('The defaults are too large')
    object[name] = JSON.parse(text)
  }, ['allOf'])
  return add && ((values: unknown[], maximum: number, part = schema) => {
    left = maximum
    for (const value of values) add(value, none, part)
  })
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
  const has = accessOf(schema)
  const { examples, ...rest } = schema
  const changed = mapSchema(rest, part => {
    const kept = Object.entries<TSchema>({ ...part.properties }).filter(([, property]) => !has(property, keyword))
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
