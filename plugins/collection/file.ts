import { Type, type TSchema } from '@sinclair/typebox'
import type { ErrorObject, ValidateFunction } from 'ajv'
import addFormats from 'ajv-formats'
import { collectionsExample } from '../../schemas/config.js'
import { ConflictingRequest, ErrorBody, InvalidRequest, Problem } from '../../schemas/errors.js'
import { schemaName } from '../../schemas/fields.js'
import { isLinear } from '../schema/patterns.js'
import { problemsOf } from '../schema/problems.js'
import { createAjv, ownKeywords, sharedAjv } from '../schema/validation.js'
import { alternativesIn, forSameValue, inPlace, isAnnotation, isSchema, pointer, schemasIn, targetsIn } from '../schema/walk.js'
import { readObject, StartupError } from '../startup.js'
import { checkDefinition, problemsOfDefinition, problemsOfName, problemsOfRecords, type Definition } from './definition.js'
import { CollectionOptions } from './routes.js'

const dialect = 'https://json-schema.org/draft/2020-12/schema'

/** Keywords that Ajv knows, but our document, our tables or draft 2020-12 do not. */
const unsupported = ['$dynamicAnchor', '$dynamicRef', '$recursiveAnchor', '$recursiveRef', '$vocabulary', 'dependencies', 'id', 'nullable', ...ownKeywords]

type Problems = { path: string, message: string }[]

/** Compiled for the first file. */
let validator: ValidateFunction | undefined

/** Reads definitions from a JSON file and adds them to others. One with the name of another replaces it, and null removes it. */
export function readDefinitions (file: string, others: readonly Definition[]) {
  const entries = Object.entries(readObject('COLLECTIONS_FILE', file, collectionsExample))
  const definitions = new Map(others.map(definition => [definition.name, definition]))
  const problems: Problems = []
  const { name: _name, store, routes, ...options } = CollectionOptions.properties
  const validate = validator ??= addFormats.default(createAjv({ meta: true, keywords: ['expected'] }))
    .compile(Type.Object({ ...options, schema: Type.Unsafe({ $ref: dialect }) }, { additionalProperties: false }))
  for (const [name, entry] of entries) {
    if (entry === null && definitions.delete(name)) continue
    const definition = { ...Object(entry), name } as Definition
    validate(entry)
    const found = problemsOfEntry(definition, problemsOf(withTypes(validate.errors ?? [])))
    problems.push(...found.map(({ path, message }) => ({ path: pointer(name) + path, message })))
    definitions.set(name, definition)
  }
  if (problems.length === 0) problems.push(...sameNames([...definitions.values()]))
  const lines = new Set(problems.map(({ path, message }) => `  ${path} ${message}`))
  if (lines.size > 0) throw new StartupError(['Invalid collections (COLLECTIONS_FILE):', ...lines].join('\n'))
  return [...definitions.values()]
}

/** The errors of a definition. If a `type` is wrong, its errors name the types instead of a union of one and several types. */
function withTypes (errors: ErrorObject[]) {
  const places = errors.filter(({ keyword, instancePath }) => keyword === 'anyOf' && instancePath.endsWith('/type')).map(({ instancePath }) => instancePath)
  return errors.filter(({ keyword, instancePath }) => !(places.includes(instancePath) && ['anyOf', 'type'].includes(keyword)))
}

/** Checks in stages, because each needs what the previous one has checked. */
function problemsOfEntry (definition: Definition, problemsOfOptions: Problems): Problems {
  const isJsonSchema = problemsOfOptions.every(({ path }) => path !== '' && !path.startsWith('/schema'))
  const ofKeywords = isJsonSchema ? [...problemsOfKeywords(definition.schema), ...problemsOfPatterns(definition.schema)] : []
  const problems = [...problemsOfName(definition.name), ...problemsOfOptions, ...ofKeywords]
  if (problems.length > 0) return problems
  const ofDefinition = [...problemsOfDefinition(definition), ...problemsOfRecursion(definition.schema)]
  if (ofDefinition.length > 0) return ofDefinition
  return problemsOfRecords(checkDefinition(definition), definition.seed ?? []).map(({ path, message }) => ({ path: `/seed${path}`, message }))
}

/** Keywords, formats and references that are not supported. */
function problemsOfKeywords (schema: TSchema) {
  const { RULES: { keywords }, formats } = sharedAjv()
  const targets = targetsIn(schema)
  return schemasIn(schema, '/schema').flatMap(({ schema: part, path }) => {
    const isNested = path !== '/schema'
    const wrong = Object.keys(part).filter(keyword => !(Object.hasOwn(keywords, keyword) || isAnnotation(keyword)) || unsupported.includes(keyword) || (isNested && ['$id', '$schema'].includes(keyword)))
    return [
      ...wrong.map(keyword => ({ path: path + pointer(keyword), message: 'is not a supported keyword' })),
      // @fastify/swagger takes them for keywords.
      ...['$id', '$ref'].filter(name => Object.hasOwn({ ...part.properties }, name)).map(name => ({ path: `${path}/properties/${name}`, message: 'has a name that is reserved' })),
      // Ajv needs quadratic time for the format `url`. That of JSON Schema is `uri`.
      ...part.format !== undefined && (!Object.hasOwn(formats, part.format) || part.format === 'url') ? [{ path: `${path}/format`, message: 'is not a supported format' }] : [],
      ...part.$schema !== undefined && part.$schema !== dialect ? [{ path: `${path}/$schema`, message: `must be ${dialect}` }] : [],
      ...part.$ref !== undefined && !targets.has(part.$ref) ? [{ path: `${path}/$ref`, message: 'must be #/$defs/ and the name of a schema there' }] : []
    ]
  })
}

/** A body of 1 MB can have 500,000 values. Each is compared with all its schemas, and its name with all names of fields. */
const maxWidth = 100

/** The keywords with schemas for the same value. */
const alternatives = [...inPlace, 'not']

/**
 * A schema that refers to itself must do this for a part of the value, and only in one of its alternatives. Otherwise the
 * validation would not end, or take exponential time. A record has only the fields in `properties`, so no other part of the
 * schema may use other fields.
 */
function problemsOfRecursion (schema: TSchema): Problems {
  const targets = targetsIn(schema)
  const widths = new Map<TSchema, number>()
  const recursive = [...targets].filter(([ref, target]) => references(target).has(ref))
  const endless = recursive.filter(([ref, target]) => forSameValue(target, targets, alternatives).some(({ $ref }) => $ref === ref))
  if (endless.length > 0) return endless.map(([ref]) => ({ path: `/schema${ref.slice(1)}`, message: 'must not refer to itself for the same value' }))
  const used = forSameValue(schema, targets, alternatives).flatMap(({ properties, required = [], dependentRequired, dependentSchemas }) =>
    [...Object.keys({ ...properties, ...dependentRequired, ...dependentSchemas }), ...required, ...Object.values({ ...dependentRequired }).flat()])
  const missing = new Set(used.filter(name => !Object.hasOwn(schema.properties, name)))
  const width = widthOf(schema)
  return [
    ...width > maxWidth ? [{ path: '/schema', message: `must not apply more than ${maxWidth} schemas to the same value, but applies up to ${width}` }] : [],
    ...schemasIn(schema, '/schema').filter(({ schema: { properties }, path }) => path !== '/schema' && Object.keys({ ...properties }).length > maxWidth)
      .map(({ path }) => ({ path: `${path}/properties`, message: `must not have more than ${maxWidth} fields, because it is nested` })),
    ...recursive.flatMap(([ref, target]) => schemasIn(target, `/schema${ref.slice(1)}`).filter(({ schema }) => isExponential(schema, ref))
      .map(({ path }) => ({ path, message: `must not refer to ${ref} in several alternatives, because this takes exponential time` }))),
    ...[...missing].map(name => ({ path: '/schema/properties', message: `must contain ${name}, which another part of the schema uses` }))
  ]

  function isExponential (part: TSchema, ref: string) {
    const { $ref, contains, patternProperties, allOf, anyOf, oneOf, not, if: condition, then, else: otherwise, dependentSchemas, ...parts } = part
    const branches = [...alternativesIn(part, alternatives), { $ref }, contains, ...Object.values({ ...patternProperties }), parts]
    return branches.filter(branch => references(branch).has(ref)).length > 1
  }

  /** All references in a schema, and in their targets. */
  function references (value: unknown, found = new Set<string>()) {
    for (const { schema: { $ref } } of isSchema(value) ? schemasIn(value) : []) {
      if ($ref !== undefined && found.size < found.add($ref).size) references(targets.get($ref), found)
    }
    return found
  }

  /**
   * How many schemas a schema applies to the same value or to the same part of it, at most. What it refers to counts each
   * time, except for itself. Ajv compares a value with the objects in an enum one by one.
   */
  function widthOf (schema: unknown): number {
    if (!isSchema(schema)) return 0
    const known = widths.get(schema)
    if (known !== undefined) return known
    widths.set(schema, 0)
    const { $ref, properties, patternProperties, prefixItems = [], items, contains, additionalProperties, propertyNames, unevaluatedItems, unevaluatedProperties, enum: values = [] } = schema
    const parts = [...Object.values({ ...properties }), ...prefixItems, items, additionalProperties, propertyNames, unevaluatedItems, unevaluatedProperties]
    const others = [...alternativesIn(schema, alternatives), targets.get($ref), contains, ...Object.values({ ...patternProperties })]
    const width = parts.reduce((most, part) => Math.max(most, widthOf(part)), 1) + others.reduce((sum, other) => sum + widthOf(other), values.filter(isSchema).length)
    widths.set(schema, width)
    return width
  }
}

/** Patterns that clients could keep the service busy with. */
function problemsOfPatterns (schema: TSchema) {
  return schemasIn(schema, '/schema').flatMap(({ schema: part, path }) => [
    ...part.pattern === undefined ? [] : [{ path: `${path}/pattern`, pattern: part.pattern }],
    ...Object.keys({ ...part.patternProperties }).map(pattern => ({ path: `${path}/patternProperties${pointer(pattern)}`, pattern }))
  ].filter(({ pattern }) => !isLinear(pattern)).map(({ path }) => ({ path, message: 'can take super-linear time. Begin it with ^, and do not repeat what can match the same text in several ways' })))
}

/** Collections whose records would have the same name in the document. */
function sameNames (definitions: Definition[]): Problems {
  const names = new Map([ErrorBody, InvalidRequest, ConflictingRequest, Problem].map(({ $id }) => [schemaName($id), 'an error']))
  return definitions.flatMap(definition => {
    const { name, words: { One } } = checkDefinition(definition)
    const taken = [One, `New${One}`, `${One}Patch`].map(component => names.get(component)).find(Boolean)
    for (const component of [One, `New${One}`, `${One}Patch`]) names.set(component, name)
    return taken ? [{ path: pointer(name), message: `has records with the name ${One}, like ${taken}. Set another title in the schema` }] : []
  })
}
