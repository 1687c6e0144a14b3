import { Type, type TSchema } from '@sinclair/typebox'
import type { ErrorObject } from 'ajv'
import { collectionsExample } from '../../schemas/config.js'
import {
  ConflictingRequest, ErrorBody, InvalidRequest, pointer, Problem, type ValueProblem
} from '../../schemas/error-body.js'
import { oneOf, schemaName } from '../../schemas/fields.js'
import { schemasIn } from '../../schemas/json-schema.js'
import { problemsOf } from '../http/problems.js'
import { createAjv } from '../http/validation.js'
import { readObject, StartupError } from '../common/startup.js'
import { checkDefinition, operations, type Definition } from './definition.js'
import { problemsOfDefinition, problemsOfName, problemsOfRecords } from './definition-problems.js'

const dialect = 'https://json-schema.org/draft/2020-12/schema'

/** What a file can say about a collection. */
const Entry = Type.Object({
  schema: Type.Unsafe({ $ref: dialect }),
  operations: Type.Optional(Type.Array(oneOf(operations), { uniqueItems: true })),
  filters: Type.Optional(Type.Array(Type.String(), { uniqueItems: true })),
  unique: Type.Optional(Type.Array(Type.String(), { uniqueItems: true })),
  references: Type.Optional(Type.Record(Type.String(), Type.String())),
  idSource: Type.Optional(oneOf(['client', 'server'])),
  idParameter: Type.Optional(Type.String({ pattern: '^[A-Za-z_]+$', expected: 'letters and _' })),
  timestamps: Type.Optional(Type.Boolean()),
  seed: Type.Optional(Type.Array(Type.Object({}))),
  renames: Type.Optional(Type.Record(Type.String(), Type.String())),
  removes: Type.Optional(Type.Array(Type.String(), { uniqueItems: true }))
}, { additionalProperties: false })

/** Keywords that Ajv knows, but the document does not. */
const unsupported = [
  '$dynamicAnchor', '$dynamicRef', '$recursiveAnchor', '$recursiveRef', '$vocabulary', 'dependencies', 'id',
  'nullable'
]

/** Reads definitions from a JSON file and adds them to others. A name of another replaces it, and null removes it. */
export function readDefinitions (file: string, others: readonly Definition[]) {
  const entries = Object.entries(readObject('COLLECTIONS_FILE', file, collectionsExample))
  const definitions = new Map(others.map(definition => [definition.name, definition]))
  const validate = createAjv({ allErrors: true, meta: true }).compile(Entry)
  const problems: ValueProblem[] = []
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

/** The errors of a definition. Those of a wrong `type` name the types, not the union of one and several types. */
function withTypes (errors: ErrorObject[]) {
  const ofUnions = errors.filter(({ keyword, instancePath }) => keyword === 'anyOf' && instancePath.endsWith('/type'))
  const places = ofUnions.map(({ instancePath }) => instancePath)
  return errors.filter(({ keyword, instancePath }) =>
    !(places.includes(instancePath) && ['anyOf', 'type'].includes(keyword)))
}

/** Checks in stages, because each needs what the previous one has checked. */
function problemsOfEntry (definition: Definition, problemsOfOptions: ValueProblem[]): ValueProblem[] {
  const isJsonSchema = problemsOfOptions.every(({ path }) => path !== '' && !path.startsWith('/schema'))
  const ofKeywords = isJsonSchema ? problemsOfKeywords(definition.schema) : []
  const problems = [...problemsOfName(definition.name), ...problemsOfOptions, ...ofKeywords]
  if (problems.length > 0) return problems
  const ofDefinition = problemsOfDefinition(definition)
  if (ofDefinition.length > 0) return ofDefinition
  const ofSeed = problemsOfRecords(checkDefinition(definition), definition.seed ?? [])
  return ofSeed.map(({ path, message }) => ({ path: `/seed${path}`, message }))
}

/** Keywords, formats and references that are not supported. */
function problemsOfKeywords (schema: TSchema): ValueProblem[] {
  const { RULES: { keywords }, formats } = createAjv({})
  const targets = ['$defs', 'definitions'].flatMap(keyword =>
    Object.keys({ ...schema[keyword] }).map(name => `#/${keyword}${pointer(name)}`))
  const isSupported = (keyword: string) =>
    keyword.startsWith('x-') || (Object.hasOwn(keywords, keyword) && !unsupported.includes(keyword))
  const onlyAtTop = ['$id', '$schema']
  return schemasIn(schema, '/schema').flatMap(({ schema: part, path }) => {
    const isNested = path !== '/schema'
    const wrong = Object.keys(part).filter(keyword =>
      !isSupported(keyword) || (isNested && onlyAtTop.includes(keyword)))
    const problems = wrong.map(keyword => ({ path: path + pointer(keyword), message: 'is not a supported keyword' }))
    if (part.format !== undefined && !Object.hasOwn(formats, part.format)) {
      problems.push({ path: `${path}/format`, message: 'is not a supported format' })
    }
    if (part.$schema !== undefined && part.$schema !== dialect) {
      problems.push({ path: `${path}/$schema`, message: `must be ${dialect}` })
    }
    if (part.$ref !== undefined && !targets.includes(part.$ref)) {
      problems.push({ path: `${path}/$ref`, message: 'must be #/$defs/ and the name of a schema there' })
    }
    return problems
  })
}

/** Collections whose records would have the same name in the document. */
function sameNames (definitions: Definition[]): ValueProblem[] {
  const own = [ErrorBody, InvalidRequest, ConflictingRequest, Problem]
  const names = new Map(own.map(({ $id }) => [schemaName($id), 'an error']))
  return definitions.flatMap(definition => {
    const { name, words: { One } } = checkDefinition(definition)
    const components = [One, `New${One}`, `${One}Patch`]
    const taken = components.map(component => names.get(component)).find(Boolean)
    for (const component of components) names.set(component, name)
    if (!taken) return []
    return [{
      path: pointer(name),
      message: `has records with the name ${One}, like ${taken}. Set another title in the schema`
    }]
  })
}
