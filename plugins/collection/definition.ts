import type { TObject, TSchema } from '@sinclair/typebox'
import type { FastifyRequest, RouteShorthandOptions } from 'fastify'
import { Id, safeBounds, schemaId, schemaName } from '../../schemas/fields.js'
import { accessOf, withFields, withoutFields } from '../schema/access.js'
import { checkerOf } from '../schema/validation.js'
import { mapSchema, pointer, targetsIn } from '../schema/walk.js'
import { StartupError } from '../startup.js'
import { indexedFields, uniqueFields, type HasId, type MaybePromise, type Store, type StoreDefinition } from '../stores/store.js'
import { problemsOfFields } from './field-problems.js'
import { problemsOfFilters } from './queries.js'

/** What clients can do with a collection, and the method of each operation. */
export const methods = { list: 'GET', get: 'GET', create: 'POST', createMany: 'POST', replace: 'PUT', update: 'PATCH', delete: 'DELETE' } as const
export type Operation = keyof typeof methods
export const operations = Object.keys(methods) as Operation[]

/** The most records that a request of `createMany` can have. */
export const maxRecords = 1000

/** The record that a schema of TypeBox describes, or any record with an id. (With `Static<S>`, TypeScript 5 cannot compile generic functions.) */
type RecordOf<S> = S extends { static: infer T } ? T & HasId : HasId | (HasId & Record<string, unknown>)

export interface Definition<S extends object = TObject, R extends HasId = RecordOf<S>> extends Omit<StoreDefinition<never>, 'schema' | 'seed'> {
  /** Schema of the records: a TypeBox object or a JSON Schema, with an integer `id`. */
  schema: S
  /** What clients can do: some of `list`, `get`, `create`, `createMany`, `replace`, `update`, `delete`. Default: all. */
  operations?: readonly Operation[] | undefined
  /** Who chooses the id of a new record: `client` or `server`. Default: `server`. */
  idSource?: 'client' | 'server' | undefined
  /** Records of a new collection. Default: none. */
  seed?: readonly R[] | undefined
  /** Name of the path parameter. Default: `id`. */
  idParameter?: string | undefined
  /** Your own store, or a function that returns the store of a request. Default: the decorator `stores`, or memory. */
  store?: Store<R> | ((request: FastifyRequest) => MaybePromise<Store<R>>) | undefined
  /** Fastify route options by operation, such as `{ delete: { onRequest: requireAdmin } }`. */
  routes?: { [O in Operation]?: (RouteShorthandOptions & { schema?: Record<string, unknown> | undefined }) | undefined } | undefined
  /** Whether to answer errors. With `false`, the error handler of your app does. Default: true. */
  errorHandler?: boolean | undefined
}

/** Returns a definition, whose seed and store have the type of its schema. (Generic functions cannot use `RecordOf`, which is a condition.) */
export function defineCollection<S extends { static: unknown }> (definition: Definition<S, HasId & S['static']>): Definition<S>
export function defineCollection<S extends object> (definition: Definition<S>): Definition<S>
export function defineCollection (definition: Definition): Definition {
  return definition
}

/** Names that JavaScript objects and the decorator `stores` have, those of our own tables, and those that SQLite and PostgreSQL reserve. */
const reservedNames = /^(open|constructor|collections|collection_changes|idempotency_keys|last_ids|(sqlite|pg)_.*)$/

export type CheckedDefinition = ReturnType<typeof checkDefinition>

/** Checks a definition, and adds what derives from it. Throws one error that lists all problems. */
export function checkDefinition (definition: Definition) {
  const { name, operations: chosen = operations, idSource = 'server', idParameter = 'id', seed = [], filters = [], unique = [], references = {}, renames, upgrades } = definition
  const problems = problemsOfDefinition(definition).map(({ path, message }) => `${path.slice(1)} ${message}`.trim())
  if (problems.length > 0) throw new StartupError(`Invalid collection ${name}: ${problems.join('. ')}.`)
  const schema = described(completeSchema(definition), definition)
  const One = schemaName(schema.$id)
  // What the collection is called in the document: `order`, `orders`, and their names in operation ids.
  const words = { One, Many: pascalCase(name), one: One.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, ' ').toLowerCase(), many: name.replaceAll('_', ' ') }
  // What a request can contain, and what a response contains.
  const writable = optionalDefaults(withoutFields(schema, 'readOnly'))
  const responseSchema = withoutFields(schema, 'writeOnly')
  const isSame = writable === schema && responseSchema === schema
  const newSchema = idSource === 'server' ? ignoringId(withoutId(writable, One)) : isSame ? schema : { ...writable, $id: schemaId(`New${One}`) }
  return { name, schema, newSchema, patchSchema: patchOf(writable, One), responseSchema, operations: chosen, idSource, idParameter, seed, filters: [...new Set([...filters, ...Object.keys(references)])], unique, references, queried: indexedFields(definition), words, ...renames && { renames }, ...upgrades && { upgrades } }
}

/** The problems of a definition, each with a JSON Pointer. */
export function problemsOfDefinition (definition: Definition) {
  const problems = [...problemsOfName(definition.name), ...problemsOfSchema(definition.schema)]
  if (definition.idSource === 'client' && accessOf(definition.schema)(definition.schema.properties?.id, 'readOnly')) problems.push({ path: '/schema', message: 'must not have a readOnly id, because clients choose it' })
  if (problems.length === 0 && definition.idSource !== 'client' && !definition.store) problems.push(...problemsOfGeneratedIds(definition.schema))
  if (problems.length > 0) return problems
  const schema = completeSchema(definition)
  return [...problemsOfFields(schema), ...problemsOfFilters(schema, definition), ...problemsOfRenames(definition)]
}

export function problemsOfName (name: unknown) {
  if (typeof name !== 'string' || !/^[a-z][a-z\d_]{0,47}$/.test(name)) return [{ path: '', message: 'must have a name of at most 48 lower case letters, digits and _ that starts with a letter' }]
  return reservedNames.test(name) ? [{ path: '', message: 'has a name that is reserved' }] : []
}

function problemsOfSchema (schema: TSchema) {
  const { type, properties, required } = Object(schema)
  const path = '/schema'
  if (type !== 'object' || Object(properties) !== properties) return [{ path, message: 'must be a TypeBox object, or a JSON Schema with type "object" and properties' }]
  if (properties.id?.type !== 'integer' || properties.id.nullable || !Array.isArray(required) || !required.includes('id')) return [{ path, message: 'must have a required integer id' }]
  const open = ['additionalProperties', 'patternProperties', 'unevaluatedProperties'].filter(keyword => Object(schema[keyword]) === schema[keyword] || schema[keyword] === true)
  return open.map(keyword => ({ path, message: `must not have ${keyword}, because a record has only the fields in properties` }))
}

/** Keywords that ids which the service generates do not follow. It follows `minimum` and `maximum`. */
const idKeywords = ['$ref', 'allOf', 'anyOf', 'const', 'enum', 'exclusiveMaximum', 'exclusiveMinimum', 'if', 'multipleOf', 'not', 'oneOf']

function problemsOfGeneratedIds ({ properties: { id } }: TObject) {
  const wrong = idKeywords.filter(keyword => keyword in { ...id })
  if (Number(id?.maximum) < Math.max(Number(id?.minimum ?? 1), 1)) wrong.push('this maximum')
  return wrong.map(keyword => ({ path: '/schema', message: `must not have ${keyword} for the id, because the service generates ids. Set idSource to client, or leave it out` }))
}

/** A field can have one previous name, which no field has now. */
function problemsOfRenames ({ schema: { properties }, renames = {} }: Definition) {
  return Object.entries(renames).flatMap(([from, to], n) => {
    const isRenamed = Object.values(renames).indexOf(to) < n
    const message = Object.hasOwn(properties, from)
      ? 'is still a field of the schema'
      : !Object.hasOwn(properties, to) ? 'must be the name of a field of the schema' : isRenamed ? 'is the new name of several fields' : undefined
    return message ? [{ path: `/renames${pointer(from)}`, message }] : []
  })
}

/**
 * The problems of the records of a collection. A seed is for all engines, so the records must not contain what a database cannot
 * store. Values of unique fields must not repeat.
 */
export function problemsOfRecords ({ schema, ...definition }: Pick<StoreDefinition<never>, 'schema' | 'unique' | 'idSource'>, records: unknown) {
  if (!Array.isArray(records)) return [{ path: '', message: 'must be an array' }]
  const problemsIn = checkerOf(schema)
  const used = uniqueFields(definition).map(name => ({ name, values: new Set([undefined]) }))
  return records.flatMap((record, n) => {
    const problems = problemsIn(record) ?? used.filter(({ name, values }) => values.size === values.add(record[name]).size && record[name] !== undefined)
      .map(({ name }) => ({ path: pointer(name), message: 'is already used' }))
    const texts = Object.entries(Object(record)).filter(([, value]) => typeof value === 'string' && value.includes('\0'))
    return [...problems, ...texts.map(([field]) => ({ path: pointer(field), message: 'must not contain the character NUL' }))]
      .map(({ path, message }) => ({ path: `/${n}${path}`, message }))
  })
}

/** Completes a schema: all integers have bounds, the id has a format, and the schema has a name and an example. */
function completeSchema ({ name, schema: given, seed: [example] = [] }: Definition): TObject {
  const schema = mapSchema(given, completed) as TObject
  const One = [schemaName(schema.$id), schema.title].find(name => /^[\w.-]+$/.test(name ?? '')) ?? pascalCase(singular(name))
  const properties = { ...schema.properties, id: { ...Id, ...schema.properties.id } }
  return { ...schema, $id: schemaId(One), properties: properties as TObject['properties'], ...!schema.examples && example && { examples: [example] } }
}

/** Adds to the descriptions of fields that they are unique, and what they refer to. */
function described (schema: TObject, { references = {}, unique, idSource = 'server' }: Definition): TObject {
  const properties = Object.entries(schema.properties).map(([name, property]) => {
    const notes = [property.description, references[name] && `id of a record of ${references[name]}`, uniqueFields({ unique: unique ?? [], idSource }).includes(name) && 'unique'].filter(Boolean)
    return [name, notes.length > 0 ? { ...property, description: notes.join('; ') } : property]
  })
  return { ...schema, properties: Object.fromEntries(properties) }
}

function completed (schema: TSchema) {
  const { items, additionalItems, ...rest } = schema
  // A tuple of TypeBox, in the words of the newest JSON Schema.
  const array = Array.isArray(items) ? { ...rest, prefixItems: items, items: additionalItems } : schema
  if (![schema.type].flat().includes('integer')) return array
  const { minimum = -Infinity, maximum = Infinity } = schema
  return { ...array, minimum: Math.max(minimum, safeBounds.minimum), maximum: Math.min(maximum, safeBounds.maximum) }
}

function withoutId (schema: TObject, name: string): TObject {
  const { id, ...properties } = schema.properties
  const examples = schema.examples?.map(({ id, ...example }: HasId) => example)
  return { ...withFields(schema, properties), $id: schemaId(`New${name}`), ...examples && { examples } } as TObject
}

/** Fields with a default are optional in a request. */
function optionalDefaults (schema: TObject) {
  const hasDefault = (name: string) => schema.properties[name]?.default !== undefined
  return schema.required?.some(hasDefault) ? withFields(schema, schema.properties, name => !hasDefault(name)) as TObject : schema
}

/** In a closed schema, the id must be a known field, because it is ignored in a new record. */
function ignoringId (schema: TObject): TObject {
  const isClosed = [schema.additionalProperties, schema.unevaluatedProperties].includes(false)
  return isClosed ? { ...schema, properties: { id: { description: 'Ignored in a new record' } as TSchema, ...schema.properties } } : schema
}

/** The schema of a merge patch, for the document: each field of each object is optional, and null if it can be removed. */
function patchOf (schema: TObject, name: string): TObject {
  const { examples, $defs, definitions, ...record } = withoutId(schema, name)
  const targets = targetsIn(schema)
  const patch = { ...partial(record as TSchema), $id: schemaId(`${name}Patch`), description: 'The fields to change; null removes an optional field' }
  return { ...patch, ...examples && { examples }, ...$defs && { $defs }, ...definitions && { definitions } } as TObject

  function partial (given: TSchema, parents: TSchema[] = []): object {
    const schema = targets.get(given.$ref) ?? given
    if (parents.includes(schema)) return { type: 'object' }
    const { type, title, description, required = [], allOf, anyOf, oneOf = anyOf, additionalProperties, ...maps } = schema
    const part = (inner: TSchema) => partial(inner, [...parents, schema])
    const orNull = (inner: TSchema) => ({ anyOf: [part(inner), { type: 'null' }] })
    const fields = (keyword: string) => maps[keyword] && {
      [keyword]: Object.fromEntries(Object.entries<TSchema>(maps[keyword]).map(([name, field]) => [name, keyword === 'properties' && required.includes(name) ? part(field) : orNull(field)]))
    }
    if (type === 'object') {
      const others = Object(additionalProperties) === additionalProperties && { additionalProperties: orNull(additionalProperties) }
      return { ...title && { title }, ...description && { description }, type, ...fields('properties'), ...fields('patternProperties'), ...others }
    }
    // An object without required fields can match several alternatives.
    if (oneOf) return { ...title && { title }, ...description && { description }, anyOf: oneOf.map(part) }
    return allOf ? { ...schema, allOf: allOf.map(part) } : given
  }
}

function pascalCase (name: string) {
  return name.replaceAll(/(^|_)([a-z\d]?)/g, (_, _start, letter: string) => letter.toUpperCase())
}

/** The singular of a name: `categories` is `category`, `boxes` is `box`, `statuses` is `status`, `sizes` is `size`. */
function singular (name: string) {
  if (/(?:series|species|news)$/.test(name)) return name
  return name.replace(/(?<!mov|cook)ies$/, 'y').replace(/(?<=ss|x|(?<!ca)ch|sh|[^aeo]us|alias)es$|(?<!s)s$/, '')
}
