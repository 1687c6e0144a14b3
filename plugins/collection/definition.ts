import type { TObject, TSchema } from '@sinclair/typebox'
import type { FastifyRequest, RouteShorthandOptions } from 'fastify'
import { pointer, type ValueProblem } from '../../schemas/errors.js'
import { Id, safeBounds, schemaId, schemaName } from '../../schemas/fields.js'
import { mapSchema, schemasIn } from '../../schemas/json-schema.js'
import { checkerOf } from '../http/validation.js'
import { StartupError } from '../startup.js'
import { indexedFields, uniqueFields } from '../stores/collection.js'
import type { HasId, MaybePromise, OwnStore, StoreDefinition } from '../stores/store.js'
import { problemsOfFilters } from './queries.js'

/** What clients can do with a collection, and the method of each operation. */
export const methods = {
  list: 'GET',
  get: 'GET',
  create: 'POST',
  createMany: 'POST',
  replace: 'PUT',
  update: 'PATCH',
  delete: 'DELETE'
} as const
export type Operation = keyof typeof methods
export const operations = Object.keys(methods) as Operation[]

/** The most records that a request of `createMany` can have. */
export const maxRecords = 1000

/** The record that a schema of TypeBox describes, or any record with an id. (Generic functions cannot use `Static`.) */
type RecordOf<S> = S extends { static: infer T } ? T & HasId : HasId | (HasId & Record<string, unknown>)

type StoreOption<R extends HasId> = OwnStore<R> | ((request: FastifyRequest) => MaybePromise<OwnStore<R>>)
type RouteOptions = RouteShorthandOptions & { schema?: Record<string, unknown> | undefined }

export interface Definition<S extends object = TObject, R extends HasId = RecordOf<S>>
  extends Omit<StoreDefinition<HasId>, 'schema' | 'seed'> {
  /** Schema of the records: a TypeBox object or a JSON Schema, with an integer `id`. */
  schema: S
  /** What clients can do: `list`, `get`, `create`, `createMany`, `replace`, `update`, `delete`. Default: all. */
  operations?: readonly Operation[] | undefined
  /** Who chooses the id of a new record: `client` or `server`. Default: `server`. */
  idSource?: 'client' | 'server' | undefined
  /** Records of a new collection. Default: none. */
  seed?: readonly R[] | undefined
  /** Name of the path parameter. Default: `id`. */
  idParameter?: string | undefined
  /** Your own store, or a function that returns the store of a request. Default: the decorator `stores`, or memory. */
  store?: StoreOption<R> | undefined
  /** Fastify route options by operation, such as `{ delete: { onRequest: requireAdmin } }`. */
  routes?: { [O in Operation]?: RouteOptions | undefined } | undefined
  /** Whether to answer errors. With `false`, the error handler of your app does. Default: true. */
  errorHandler?: boolean | undefined
}

/** A definition whose store can be of any record. TypeScript cannot always derive the record from the schema. */
export interface LooseDefinition<S extends object = object> extends Omit<Definition<S>, 'store'> {
  store?: object | undefined
}

/** Returns a definition, whose seed and store have the type of its schema. */
export function defineCollection<S extends { static: unknown }> (
  definition: Definition<S, HasId & S['static']>
): Definition<S>
export function defineCollection<S extends object> (definition: LooseDefinition<S>): Definition<S>
export function defineCollection (definition: object): object {
  return definition
}

export type CheckedDefinition = ReturnType<typeof checkDefinition>

/** Checks a definition, and adds what derives from it. Throws one error that lists all problems. */
export function checkDefinition (definition: Definition) {
  const problems = problemsOfDefinition(definition).map(({ path, message }) => `${path.slice(1)} ${message}`.trim())
  if (problems.length > 0) throw new StartupError(`Invalid collection ${definition.name}: ${problems.join('. ')}.`)
  const { name, operations: chosen = operations, idSource = 'server', idParameter = 'id' } = definition
  const { seed = [], filters = [], unique = [], references = {}, renames, removes, upgrade } = definition
  const schema = described(completeSchema(definition), definition)
  const One = schemaName(schema.$id)
  const readOnly = Object.keys(schema.properties).filter(field => schema.properties[field]?.readOnly === true)
  const writable = withoutFields(schema, readOnly)
  return {
    name,
    schema,
    newSchema: newSchemaOf(schema, writable, idSource),
    patchSchema: patchSchemaOf(writable, One),
    readOnly,
    operations: chosen,
    idSource,
    idParameter,
    seed,
    filters: [...new Set([...filters, ...Object.keys(references)])],
    unique,
    references,
    queried: indexedFields(definition),
    words: wordsOf(name, One),
    ...renames && { renames },
    ...removes && { removes },
    ...upgrade && { upgrade }
  }
}

/** What the collection is called in the document: `order`, `orders`, and their names in operation ids. */
function wordsOf (name: string, One: string) {
  const one = One.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, ' ').toLowerCase()
  return { One, Many: pascalCase(name), one, many: name.replaceAll('_', ' ') }
}

/** The problems of a definition, each with a JSON Pointer. */
export function problemsOfDefinition (definition: Definition): ValueProblem[] {
  const problems = [...problemsOfName(definition.name), ...problemsOfSchema(definition)]
  if (problems.length > 0) return problems
  const schema = completeSchema(definition)
  return [
    ...problemsOfFields(schema, definition),
    ...problemsOfFilters(schema, definition),
    ...problemsOfRenames(definition),
    ...problemsOfRemoves(definition)
  ]
}

/** Names of the decorator `stores` and of JavaScript objects, of our own tables, and those that databases reserve. */
const reservedNames = /^(open|constructor|(collections|collection_schemas|idempotency_keys)(_.*)?|(sqlite|pg)_.*)$/

export function problemsOfName (name: unknown): ValueProblem[] {
  if (typeof name !== 'string' || !/^[a-z][a-z\d_]{0,47}$/.test(name)) {
    return [{
      path: '',
      message: 'must have a name of at most 48 lower case letters, digits and _ that starts with a letter'
    }]
  }
  return reservedNames.test(name) ? [{ path: '', message: 'has a name that is reserved' }] : []
}

function problemsOfSchema ({ schema, idSource }: Definition): ValueProblem[] {
  const path = '/schema'
  const { type, properties, required }: Partial<TSchema> = schema
  if (type !== 'object' || typeof properties !== 'object') {
    return [{ path, message: 'must be a TypeBox object, or a JSON Schema with type "object" and properties' }]
  }
  const { id } = properties
  if (id?.type !== 'integer' || id.nullable || !Array.isArray(required) || !required.includes('id')) {
    return [{ path, message: 'must have a required integer id' }]
  }
  const problems = ['additionalProperties', 'patternProperties', 'unevaluatedProperties']
    .filter(keyword => (schema as TSchema)[keyword])
    .map(keyword => ({ path, message: `must not have ${keyword}, because a record has only the fields in properties` }))
  if (idSource === 'client' && id.readOnly) {
    problems.push({ path, message: 'must not have a readOnly id, because clients choose it' })
  }
  return problems
}

/** The names of columns and their indexes have at most 63 bytes in PostgreSQL. */
const maxIndexedName = 57

/** Names that @fastify/swagger takes for keywords. */
const reservedFields = ['$id', '$ref', '']

function problemsOfFields (schema: TObject, definition: Definition): ValueProblem[] {
  const isReserved = (name: string) => name in Object.prototype || reservedFields.includes(name)
  const hidden = schemasIn(schema, '/schema').filter(({ schema: part }) => part.writeOnly === true)
  const problems = [
    ...Object.keys(schema.properties).filter(isReserved).map(name => fieldProblem(name, 'has a name that is reserved')),
    ...problemsOfIndexes(indexedFields(definition)),
    ...hidden.map(({ path }) => ({ path, message: 'must not be writeOnly, because a response is the stored record' }))
  ]
  try {
    checkerOf(schema)
  } catch (error) {
    problems.push({ path: '/schema', message: `is not valid: ${(error as Error).message}` })
  }
  return problems
}

/** Fields with an index have a column, whose name must be different from others in any case. */
function problemsOfIndexes (fields: string[]): ValueProblem[] {
  const seen = new Set<string>()
  const isFree = (name: string) => seen.size < seen.add(name.toLowerCase()).size
  const isShort = (name: string) => !name.includes('\0') && Buffer.byteLength(name) <= maxIndexedName
  return fields.filter(name => !isFree(name) || !isShort(name)).map(name =>
    fieldProblem(name, 'cannot be queried: its name is too long, or not unique without its case'))
}

function fieldProblem (name: string, message: string): ValueProblem {
  return { path: `/schema/properties${pointer(name)}`, message }
}

/** A field can have several previous names, which no field has now. */
function problemsOfRenames ({ schema: { properties }, renames = {} }: Definition): ValueProblem[] {
  return Object.entries(renames).flatMap(([from, to]) => {
    const path = `/renames${pointer(from)}`
    if (Object.hasOwn(properties, from)) return [{ path, message: 'is still a field of the schema' }]
    return Object.hasOwn(properties, to) ? [] : [{ path, message: 'must be the name of a field of the schema' }]
  })
}

function problemsOfRemoves ({ schema: { properties }, removes = [] }: Definition): ValueProblem[] {
  const kept = removes.filter(name => Object.hasOwn(properties, name))
  return kept.map(name => ({ path: `/removes/${removes.indexOf(name)}`, message: 'is still a field of the schema' }))
}

type Seeded = Pick<StoreDefinition<HasId>, 'schema' | 'unique' | 'idSource'>

/** The problems of the initial records of a collection. Values of unique fields must not repeat. */
export function problemsOfRecords ({ schema, ...definition }: Seeded, records: unknown): ValueProblem[] {
  if (!Array.isArray(records)) return [{ path: '', message: 'must be an array' }]
  const problemsIn = checkerOf(schema)
  const used = uniqueFields(definition).map(name => ({ name, values: new Set([undefined]) }))
  return records.flatMap((record, n) => {
    const problems = problemsIn(record) ?? repeated(record)
    return problems.map(({ path, message }) => ({ path: `/${n}${path}`, message }))
  })

  function repeated (record: Record<string, undefined>) {
    return used
      .filter(({ name, values }) => record[name] !== undefined && values.size === values.add(record[name]).size)
      .map(({ name }) => ({ path: pointer(name), message: 'is already used' }))
  }
}

/** Completes a schema: all integers have bounds, the id has a format, and the schema has a name and an example. */
function completeSchema ({ name, schema: given, seed: [example] = [] }: Definition): TObject {
  const schema = mapSchema(given, completed) as TObject
  const isName = (text?: string) => text !== undefined && /^[\w.-]+$/.test(text)
  const One = [schemaName(schema.$id), schema.title].find(isName) ?? pascalCase(singular(name))
  const properties = { ...schema.properties, id: { ...Id, ...schema.properties.id } }
  const examples = schema.examples ?? (example && [example])
  return { ...schema, $id: schemaId(One), properties, ...examples && { examples } } as TObject
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
function described (schema: TObject, { references = {}, unique = [], idSource = 'server' }: Definition): TObject {
  const uniqueNames = uniqueFields({ unique, idSource })
  const properties = Object.entries(schema.properties).map(([name, property]) => {
    const notes = [property.description]
    if (references[name]) notes.push(`id of a record of ${references[name]}`)
    if (uniqueNames.includes(name)) notes.push('unique')
    const description = notes.filter(Boolean).join('; ')
    return [name, description ? { ...property, description } : property]
  })
  return { ...schema, properties: Object.fromEntries(properties) }
}

/** A schema without some of its fields, which its examples do not have either; the same one if there are none. */
function withoutFields (schema: TObject, names: string[]): TObject {
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
function newSchemaOf (schema: TObject, writable: TObject, idSource: 'client' | 'server') {
  const { required = [], ...rest } = idSource === 'server' ? withoutFields(writable, ['id']) : writable
  const left = required.filter(name => writable.properties[name]?.default === undefined)
  if (idSource === 'client' && writable === schema && left.length === required.length) return schema
  return { ...rest, ...left.length > 0 && { required: left }, $id: schemaId(`New${schemaName(schema.$id)}`) } as TObject
}

/** The schema of a merge patch, for the document: each field is optional, and null if it can be removed. */
function patchSchemaOf (schema: TObject, name: string): TObject {
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

function pascalCase (name: string) {
  return name.replaceAll(/(^|_)([a-z\d]?)/g, (_, _start, letter: string) => letter.toUpperCase())
}

/** The singular of a name: `categories` is `category`, `boxes` is `box`, `statuses` is `status`, `sizes` is `size`. */
function singular (name: string) {
  if (/(?:series|species|news)$/.test(name)) return name
  return name.replace(/(?<!mov|cook)ies$/, 'y').replace(/(?<=ss|x|(?<!ca)ch|sh|[^aeo]us|alias)es$|(?<!s)s$/, '')
}
