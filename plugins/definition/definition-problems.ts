import type { TObject, TSchema } from '@sinclair/typebox'
import { PageQuery } from '../../schemas/fields.js'
import { pointer, type ValueProblem } from '../../schemas/error-body.js'
import { schemasIn } from '../../schemas/json-schema.js'
import { checkerOf } from '../http/validation.js'
import { indexedFields, uniqueFields, type WithUnique } from '../stores/collection.js'
import { fieldsOf } from '../stores/indexed-fields.js'
import { parametersOf } from '../stores/query-plan.js'
import { timestamps, type AnyRecord } from '../stores/store.js'
import type { Definition } from './definition.js'
import { completeSchema, withOptional } from './record-schemas.js'

/** The problems of a definition, each with a JSON Pointer. */
export function problemsOfDefinition (definition: Definition): ValueProblem[] {
  const problems = [...problemsOfName(definition.name), ...problemsOfSchema(definition)]
  if (problems.length > 0) return problems
  const schema = completeSchema(definition)
  return [
    ...problemsOfTimestamps(definition),
    ...problemsOfFields(schema, definition),
    ...problemsOfFilters(schema, definition),
    ...problemsOfRenames(definition),
    ...problemsOfRemoves(definition)
  ]
}

/** Names of the decorator `stores` and of objects, of our own tables, and those that databases reserve. */
const reservedNames =
  /^(open|expandable|transaction|constructor|(collections|collection_schemas|idempotency_keys)(_.*)?|(sqlite|pg)_.*)$/

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
  const isId = id?.type === 'integer' || id?.type === 'string'
  if (!isId || id.nullable || !Array.isArray(required) || !required.includes('id')) {
    return [{ path, message: 'must have a required id that is an integer or a string' }]
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

/** The parameters of lists and summaries that are not filters. */
const listParameters = [...Object.keys(PageQuery.properties), 'sort', 'total', 'expand']
const summaryParameters = ['count', 'sum', 'min', 'max', 'group']

function problemsOfFields (schema: TObject, definition: Definition): ValueProblem[] {
  const isReserved = (name: string) => name in Object.prototype || reservedFields.includes(name)
  const hidden = schemasIn(schema, '/schema').filter(({ schema: part }) => part.writeOnly === true)
  const problems = [
    ...Object.keys(schema.properties).filter(isReserved).map(name => fieldProblem(name, 'has a name that is reserved')),
    ...problemsOfIndexes(indexedFields(definition)),
    ...hidden.map(({ path }) => ({ path, message: 'must not be writeOnly, because a response is the stored record' })),
  ]
  if (definition.references && schema.properties.expand) {
    problems.push(fieldProblem('expand', 'has the name of related records'))
  }
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

function problemsOfTimestamps ({ schema, timestamps: hasTimestamps = false }: Definition): ValueProblem[] {
  const taken = hasTimestamps ? timestamps.filter(name => Object.hasOwn(schema.properties, name)) : []
  return taken.map(name => fieldProblem(name, 'is a field that timestamps add'))
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

/** The problems of the initial records of a collection. Values of unique fields must not repeat. */
export function problemsOfRecords (definition: WithUnique, records: unknown): ValueProblem[] {
  if (!Array.isArray(records)) return [{ path: '', message: 'must be an array' }]
  if (records.length === 0) return []
  const problemsIn = checkerOf(withOptional(definition.schema, timestamps))
  const used = uniqueFields(definition).map(name => ({ name, values: new Set<unknown>() }))
  return records.flatMap((record, n) => {
    const problems = problemsIn(record) ?? repeated(record)
    return problems.map(({ path, message }) => ({ path: `/${n}${path}`, message }))
  })

  function repeated (record: AnyRecord) {
    return used
      .filter(({ name, values }) => {
        const value = record[name] ?? undefined
        return value !== undefined && values.size === values.add(value).size
      })
      .map(({ name }) => ({ path: pointer(name), message: 'is already used' }))
  }
}

/** What is wrong with the filters, the unique fields and the references of a definition. */
function problemsOfFilters (schema: TObject, definition: Definition) {
  const { filters = [], unique = [], references = {}, operations } = definition
  const fields = new Map(fieldsOf(schema).map(field => [field.name, field]))
  const hasSummary = operations?.includes('summary') ?? filters.length > 0
  const taken = new Map([...listParameters, ...hasSummary ? summaryParameters : []].map(name => [name, '']))
  const listed = (option: string, names: readonly string[]) =>
    names.map((name, n) => ({ name, path: `/${option}/${n}` }))
  const referring = Object.keys(references).map(name => ({ name, path: `/references${pointer(name)}` }))
  return [...listed('filters', filters), ...listed('unique', unique), ...referring].flatMap(({ name, path }) => {
    const message = problemOf(name)
    return message ? [{ path, message }] : []
  })

  function problemOf (name: string) {
    const field = fields.get(name)
    if (!field) return `must be a field of the schema, and ${name} is not`
    if (!field.type) {
      return `must be a field that is a string, an integer, a number or a boolean, and ${name} is not. ` +
        'Add a type to its schema, such as "type": "string"'
    }
    const names = [...parametersOf([field]).keys()]
    const same = names.find(parameter => (taken.get(parameter) ?? name) !== name)
    for (const parameter of names) taken.set(parameter, name)
    const isOfSummary = summaryParameters.includes(String(same))
    return same && `has the parameter ${same}, which ${isOfSummary ? 'the operation summary has' : 'exists already'}`
  }
}
