import type { TObject } from '@sinclair/typebox'
import type { FastifyRequest, RouteShorthandOptions } from 'fastify'
import { schemaName } from '../../schemas/fields.js'
import { StartupError } from '../common/startup.js'
import { indexedFields } from '../stores/collection.js'
import type { HasId, MaybePromise, OwnStore, StoreDefinition } from '../stores/store.js'
import { problemsOfDefinition } from './definition-problems.js'
import { completeSchema, described, newSchemaOf, pascalCase, patchSchemaOf, withoutFields } from './record-schemas.js'

/** What clients can do with a collection, and the method of each operation. */
export const methods = {
  list: 'GET',
  get: 'GET',
  create: 'POST',
  createMany: 'POST',
  replace: 'PUT',
  update: 'PATCH',
  delete: 'DELETE',
  summary: 'GET'
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
  /** Schema of the records: a TypeBox object or a JSON Schema, with an `id` that is an integer or a string. */
  schema: S
  /** What clients can do. Default: all of `operations`, `summary` if there are filters. */
  operations?: readonly Operation[] | undefined
  /** Who chooses the id of a new record: `client` or `server`. Default: `server`. */
  idSource?: 'client' | 'server' | undefined
  /** Records of a new collection. Default: none. */
  seed?: readonly R[] | undefined
  /** Name of the path parameter. Default: `id`. */
  idParameter?: string | undefined
  /** Whether a list ignores unknown parameters. Then it has neither filters nor an order. Default: false. */
  ignoreUnknownParameters?: boolean | undefined
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
  const { name, idSource = 'server', idParameter = 'id', ignoreUnknownParameters = false } = definition
  const { seed = [], filters = [], unique = [], references = {}, renames, removes, upgrade, timestamps } = definition
  const offered = definition.operations ?? defaultOperations(filters)
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
    operations: offered,
    isExpandable: offered.includes('get') && definition.routes?.get === undefined,
    idSource,
    idParameter,
    ignoreUnknownParameters,
    seed,
    filters: [...new Set([...filters, ...Object.keys(references)])],
    unique,
    references,
    queried: indexedFields(definition),
    words: wordsOf(name, One),
    timestamps,
    renames,
    removes,
    upgrade
  }
}

/** A summary is of the fields that can be filtered. */
function defaultOperations (filters: readonly string[]) {
  return filters.length > 0 ? operations : operations.filter(operation => operation !== 'summary')
}

/** What the collection is called in the document: `order`, `orders`, and their names in operation ids. */
function wordsOf (name: string, One: string) {
  const one = One.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, ' ').toLowerCase()
  return { One, Many: pascalCase(name), one, many: name.replaceAll('_', ' ') }
}
