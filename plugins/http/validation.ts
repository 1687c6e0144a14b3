import type { TSchema } from '@sinclair/typebox'
import type { ErrorObject, Options, ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import type { Problem } from '../../schemas/errors.js'

/** Creates an Ajv. It does not check our schemas against the meta schema, because that makes the start slower. */
export function createAjv (options: Options) {
  const ajv = new Ajv2020({ allErrors: true, verbose: true, meta: false, validateSchema: false, strictTypes: false, strictTuples: false, ...options })
  // That of Ajv takes quadratic time.
  return ajv.removeKeyword('uniqueItems').addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    validate: (isUnique: boolean, items: unknown[]) => !isUnique || new Set(items.map(canonical)).size === items.length,
    errors: false,
    error: { message: 'must not have duplicate items' }
  })
}

/** JSON with sorted keys. */
function canonical (value: unknown) {
  return JSON.stringify(value, (_key, part) => Object(part) === part && !Array.isArray(part) ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => a < b ? -1 : 1)) : part)
}

/** Rejects lone surrogates, which UTF-8 cannot represent. */
const isWellFormed = {
  keyword: 'isWellFormed',
  type: 'string',
  validate: (_schema: true, text: string) => text.isWellFormed(),
  errors: false,
  error: { message: 'must be well-formed Unicode text' }
} as const

let ajv: Ajv2020 | undefined
const validators = new Map<string, ValidateFunction>()

/** The Ajv for the schemas of records and requests. All apps of a process share it. */
export function sharedAjv () {
  ajv ??= addFormats.default(createAjv({ keywords: [isWellFormed] }))
    .addFormat('int64', true) // these two are for other programs
    .addFormat('double', true)
  return ajv
}

/** The validator of a schema. Types are strict. Equal schemas have the same validator. */
export function validatorOf ({ $id, ...schema }: TSchema) {
  const key = JSON.stringify(schema)
  // Our keyword is not in the schema itself, because other programs do not know it.
  const withTextCheck = (part: TSchema) => [part.type].flat().includes('string') ? { ...part, isWellFormed: true } : part
  const validate = validators.get(key) ?? sharedAjv().compile(mapSchema(schema, withTextCheck))
  validators.set(key, validate)
  return validate
}

/** The keywords that contain a schema or a list of schemas, and those that contain schemas by name. */
const nested = [
  'additionalItems', 'additionalProperties', 'allOf', 'anyOf', 'contains', 'else', 'if', 'items', 'not', 'oneOf', 'prefixItems', 'propertyNames',
  'then', 'unevaluatedItems', 'unevaluatedProperties'
]
const named = ['$defs', 'definitions', 'dependentSchemas', 'patternProperties', 'properties']

/** Changes a schema and all schemas in it. The path of each is a JSON Pointer. */
export function mapSchema<T extends object> (schema: T, change: (schema: TSchema, path: string) => object, path = ''): TSchema {
  const map = (value: unknown, ...names: unknown[]) =>
    typeof value === 'object' && value !== null ? mapSchema(value, change, path + names.map(pointer).join('')) : value
  const entries = Object.entries(schema).map(([keyword, value]) => {
    if (nested.includes(keyword)) return [keyword, Array.isArray(value) ? value.map((schema, n) => map(schema, keyword, n)) : map(value, keyword)]
    if (named.includes(keyword)) return [keyword, Object.fromEntries(Object.entries(Object(value)).map(([name, schema]) => [name, map(schema, keyword, name)]))]
    return [keyword, value]
  })
  return change(Object.fromEntries(entries), path) as TSchema
}

/** A property as a part of a JSON Pointer. */
export function pointer (property: unknown) {
  return `/${String(property).replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** The parts of a request: their names in Fastify's routes and in our errors. */
export const parts = { body: 'body', params: 'path', querystring: 'query', headers: 'headers' } as const

const typeNames: Record<string, string> = { array: 'an array', boolean: 'true or false', integer: 'an integer', null: 'null', object: 'an object' }

/** Describes what a value must be: in the words of its schema, if it must match a pattern, a format or a function. */
export function explain ({ keyword, params, message = '', parentSchema: { expected, description } = {} }: ErrorObject) {
  const plain = message.replace('NOT', 'not')
  switch (keyword) {
    case 'required': return 'is required'
    case 'type': return `must be ${[params.type].flat().map(type => typeNames[type] ?? `a ${type}`).join(' or ')}`
    case 'minimum': return `must be at least ${params.limit}`
    case 'maximum': return `must be at most ${params.limit}`
    case 'enum': return `must be one of ${params.allowedValues.map(shown).join(', ')}`
    case 'const': return `must be ${shown(params.allowedValue)}`
    case 'minLength': return params.limit === 1 ? 'must not be empty' : plain
    case 'additionalProperties': case 'unevaluatedProperties': return 'is not a known field'
    case 'anyOf': case 'oneOf': return 'must match one of the allowed schemas'
    case 'dependentRequired': return `needs ${params.missingProperty}`
    case 'format': return expected ? `must be ${expected}` : `must match the format ${params.format}`
    case 'pattern': case 'is': return expected ?? description ? `must be ${expected ?? description}` : plain
    default: return plain
  }
}

function shown (value: unknown) {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** A long array can have an error for each of its values. The first ones are enough for a person, and comparing them takes little time. */
const maxErrors = 300

/** The problems of a value, one for each place that is wrong, with a JSON Pointer to it. */
export function problemsOf (errors: ErrorObject[] | null | undefined) {
  return (errors ?? []).slice(0, maxErrors).filter(isProblem).map(error => ({
    path: placeOf(error),
    message: error.propertyName === undefined ? explain(error) : `is a name that ${explain(error)}`,
    get field () { return fieldOf(error) }
  }))
}

/** Returns whether an error is a problem of its own: not one of a wrong type, which has an error, and not one of an alternative of a union. */
function isProblem (error: ErrorObject, _index: number, all: ErrorObject[]) {
  const { keyword, instancePath } = error
  if (keyword === 'if' || keyword === 'propertyNames') return false
  if ((keyword === 'const' || keyword === 'enum') && all.some(other => other.keyword === 'type' && other.instancePath === instancePath)) return false
  return !all.some(union => (union.keyword === 'anyOf' || union.keyword === 'oneOf') && isAlternative(error, union))
}

/** The place in the schema, for the log. (The path in the value can contain keys that the client has chosen.) */
function fieldOf ({ schemaPath, params }: ErrorObject) {
  return [...Array.from(schemaPath.matchAll(/\/properties\/([^/]+)/g), ([, name]) => name), params.missingProperty].filter(Boolean).join('/')
}

/** Ajv reports a missing or unknown property, and the name of a property, at its parent. */
function placeOf ({ keyword, instancePath, params, propertyName }: ErrorObject) {
  const property = propertyName ?? { required: params.missingProperty, additionalProperties: params.additionalProperty, unevaluatedProperties: params.unevaluatedProperty }[keyword]
  return property === undefined ? instancePath : instancePath + pointer(property)
}

/** Returns whether an error is about one of the alternatives of a union, which has an error of its own. */
function isAlternative ({ instancePath, schemaPath }: ErrorObject, union: ErrorObject) {
  const parent = union.schemaPath.slice(0, union.schemaPath.lastIndexOf('/') + 1)
  const isBeside = schemaPath.startsWith(parent) && !schemaPath.startsWith(`${union.schemaPath}/`)
  return !isBeside && (instancePath === union.instancePath || instancePath.startsWith(`${union.instancePath}/`))
}

/** The `detail` and the problems of a request that a host has rejected with 400. A message of its `schemaErrorFormatter` stays as it is. */
export function hostProblems ({ message, validation, validationContext }: { message: string, validation?: ErrorObject[], validationContext?: string }) {
  if (!validation) return { detail: message || 'Bad Request', errors: [{ in: 'request', path: '', message }] satisfies Problem[] }
  const problems = problemsOf(validation)
  const isOfFastify = message === textOf(validation.map(({ instancePath, message }) => ({ path: instancePath, message })))
  return {
    detail: isOfFastify ? textOf(problems) : message,
    errors: problems.map(({ path, message }) => ({ in: parts[validationContext as keyof typeof parts], path, message }))
  }

  function textOf (problems: { path: string, message?: string }[]) {
    return problems.map(({ path, message }) => `${validationContext}${path} ${message}`).join(', ')
  }
}
