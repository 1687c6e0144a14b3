import type { TObject, TSchema } from '@sinclair/typebox'
import { Id, safeBounds, schemaId, schemaName, TextId, Time } from '../../schemas/fields.js'
import { mapSchema } from '../../schemas/json-schema.js'
import { uniqueFields } from '../stores/collection.js'
import { timestamps } from '../stores/store.js'
import type { Definition } from './definition.js'

/** Completes a schema: all integers have bounds, and it has the id, the timestamps, a name and an example. */
export function completeSchema (definition: Definition): TObject {
  const { name, schema: given, seed: [example] = [], timestamps: isTimed } = definition
  const schema = mapSchema(given, completed) as TObject
  const isName = (text?: string) => text !== undefined && /^[\w.-]+$/.test(text)
  const One = [schemaName(schema.$id), schema.title].find(isName) ?? pascalCase(singular(name))
  const id = { ...schema.properties.id?.type === 'string' ? TextId : Id, ...schema.properties.id }
  const times = isTimed ? timestamps.map(field => [field, Time]) : []
  const properties = { ...schema.properties, id, ...Object.fromEntries(times) }
  const required = [...schema.required ?? [], ...times.map(([field]) => field)]
  const examples = schema.examples ?? (example && [example])
  return { ...schema, $id: schemaId(One), properties, required, ...examples && { examples } } as TObject
}

function completed (schema: TSchema) {
  const { items, additionalItems, ...rest } = schema
  // A tuple of TypeBox, in the words of the newest JSON Schema.
  const array = Array.isArray(items) ? { ...rest, prefixItems: items, items: additionalItems } : schema
  if (![schema.type].flat().includes('integer')) return array
  const minimum = Math.max(schema.minimum ?? -Infinity, safeBounds.minimum)
  const maximum = Math.min(schema.maximum ?? Infinity, safeBounds.maximum)
  return { ...array, minimum, maximum }
}

/** Adds to the descriptions of fields that they are unique, and what they refer to. */
export function described (schema: TObject, definition: Definition): TObject {
  const { references = {}, unique = [], idSource = 'server' } = definition
  const uniqueNames = uniqueFields({ schema, unique, idSource })
  const properties = Object.entries(schema.properties).map(([name, property]) => {
    const notes = [property.description]
    if (references[name]) notes.push(`id of a record of ${references[name]}`)
    if (uniqueNames.includes(name)) notes.push('unique')
    const description = notes.filter(Boolean).join('; ')
    return [name, description ? { ...property, description } : property]
  })
  return { ...schema, properties: Object.fromEntries(properties) }
}

/** A schema in which these fields can be left out. */
export function withOptional<S extends TSchema> (schema: S, fields: readonly string[]): S {
  return { ...schema, required: schema.required?.filter((name: string) => !fields.includes(name)) }
}

/** A schema without some of its fields, which its examples do not have either; the same one if there are none. */
export function withoutFields (schema: TObject, names: string[]): TObject {
  if (names.length === 0) return schema
  const without = (object: object) =>
    Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)))
  const { required = [], examples, ...rest } = schema
  const left = required.filter(name => !names.includes(name))
  return {
    ...rest,
    properties: without(schema.properties),
    ...left.length > 0 && { required: left },
    ...examples && { examples: examples.map(without) }
  } as TObject
}

/** The schema of a new record. Fields with a default are optional. */
export function newSchemaOf (schema: TObject, writable: TObject, idSource: 'client' | 'server') {
  const { required = [], ...rest } = idSource === 'server' ? withoutFields(writable, ['id']) : writable
  const left = required.filter(name => writable.properties[name]?.default === undefined)
  if (idSource === 'client' && writable === schema && left.length === required.length) return schema
  return { ...rest, ...left.length > 0 && { required: left }, $id: schemaId(`New${schemaName(schema.$id)}`) } as TObject
}

/** The schema of a merge patch, for the document: each field is optional, and null if it can be removed. */
export function patchSchemaOf (schema: TObject, name: string): TObject {
  const { examples, $defs, definitions, description, title, ...record } = withoutFields(schema, ['id'])
  return {
    ...partial(record as TSchema),
    $id: schemaId(`${name}Patch`),
    description: 'The fields to change; null removes an optional field',
    ...examples && { examples },
    ...$defs && { $defs },
    ...definitions && { definitions }
  } as TObject
}

function partial (schema: TSchema): object {
  const { type, title, description, properties, required = [] } = schema
  if (!properties) return schema
  const fields = Object.entries<TSchema>(properties).map(([name, field]) => {
    const part = field.type === 'object' ? partial(field) : field
    return [name, required.includes(name) ? part : { anyOf: [part, { type: 'null' }] }]
  })
  return { ...title && { title }, ...description && { description }, type, properties: Object.fromEntries(fields) }
}

export function pascalCase (name: string) {
  return name.replaceAll(/(^|_)([a-z\d]?)/g, (_, _start, letter: string) => letter.toUpperCase())
}

/** The singular of a name: `categories` is `category`, `boxes` is `box`, `statuses` is `status`, `sizes` is `size`. */
function singular (name: string) {
  if (/(?:series|species|news)$/.test(name)) return name
  return name.replace(/(?<!mov|cook)ies$/, 'y').replace(/(?<=ss|x|(?<!ca)ch|sh|[^aeo]us|alias)es$|(?<!s)s$/, '')
}
