import type { TObject, TSchema } from '@sinclair/typebox'
import type { Options } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { maxProblems, pointer, type Problem, type ValueProblem } from '../../schemas/error-body.js'
import { schemaName } from '../../schemas/fields.js'
import { metadata } from '../common/plugin.js'
import { invalid, parts } from './errors.js'
import { problemsOf, shortened } from './problems.js'

/** All problems are collected only for a small body, because Ajv needs super-linear time for many. In characters. */
const maxDetailed = 8192

/** Validates requests strictly. The schemas are those of the routes of this scope. */
export default fp(async function validation (app) {
  const forParameters = createAjv({ allErrors: true })
  app.setValidatorCompiler<TObject>(function compile ({ schema, httpPart, method }) {
    if (httpPart === 'body') return bodyValidator(app, schema, method)
    return parameterValidator(forParameters, schema, parts[httpPart as keyof typeof parts])
  })
}, metadata('validation'))

/** An Ajv with strict types. It does not check schemas against the meta schema, because that makes the start slower. */
export function createAjv (options: Options) {
  const ajv = new Ajv2020({
    strictTypes: false,
    strictTuples: false,
    strictRequired: false,
    multipleOfPrecision: 6, // otherwise 19.99 would not be a multiple of 0.01
    ownProperties: true, // a field can have the name of a method
    verbose: true, // the sentences need the schema
    code: { optimize: false }, // which takes most of the time to compile, and makes nothing faster here
    meta: false,
    validateSchema: false,
    ...options
  })
  return addFormats.default(ajv)
    .addFormat('int64', true) // these two are for other programs
    .addFormat('double', true)
    .addVocabulary(['expected', 'example', 'externalDocs', 'discriminator', 'xml'])
}

/** Makes an Ajv accept the annotations `x-…` in schemas. */
function withAnnotations (ajv: Ajv2020, schemas: object) {
  for (const [, name = ''] of JSON.stringify(schemas).matchAll(/"(x-[\w-]*)":/g)) {
    if (!ajv.RULES.keywords[name]) ajv.addKeyword(name)
  }
  return ajv
}

interface CheckerOptions {
  /** Whether to add the defaults of the schema to the value. */
  useDefaults?: boolean
  /** Whether to remove unknown fields where `additionalProperties` is false. Otherwise they are problems. */
  removeUnknown?: boolean
  /** Other schemas that the schema refers to, by their `$id`. */
  schemas?: Record<string, unknown>
}

/**
 * Returns a function that returns the problems of an invalid value, and removes the fields that
 * `additionalProperties: false` forbids. All problems are listed for a small value, otherwise the first one.
 */
export function checkerOf ({ $id, ...schema }: TSchema, options: CheckerOptions = {}) {
  const { useDefaults = false, removeUnknown: removeAdditional = true, schemas = {} } = options
  // In strict mode, Ajv refuses a default of a schema with a name of its own.
  const settings = { useDefaults, removeAdditional, strictSchema: !useDefaults }
  const compile = (allErrors: boolean) => withAnnotations(createAjv({ ...settings, allErrors }), { schema, schemas })
    .addSchema(Object.values(schemas) as object[])
    .compile(schema)
  const validate = compile(false)
  let validateAll: typeof validate | undefined
  return function problemsIn (value: unknown): ValueProblem[] | undefined {
    if (validate(value)) return isStorable(value) ? undefined : unstorable(value)
    if (String(JSON.stringify(value)).length > maxDetailed) return problemsOf(validate.errors)
    validateAll ??= compile(true)
    validateAll(value)
    const problems = problemsOf(validateAll.errors)
    const isNew = ({ path }: ValueProblem) => !problems.some(other => other.path === path)
    return [...problems, ...unstorable(value).filter(isNew)]
  }
}

/** The first values that JSON can express, but that cannot be kept: too large numbers, and half characters. */
function unstorable (value: unknown, path = '', found: ValueProblem[] = []): ValueProblem[] {
  if (found.length === maxProblems) return found
  if (typeof value === 'object' && value !== null) {
    for (const [name, part] of Object.entries(value)) unstorable(part, path + pointer(name), found)
  } else if (!isStorable(value)) {
    const message = typeof value === 'number' ? 'must be a number' : 'must be well-formed Unicode text'
    found.push({ path: shortened(path), message })
  }
  return found
}

function isStorable (value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value)
  if (typeof value === 'string') return value.isWellFormed()
  if (Array.isArray(value)) return value.every(isStorable)
  return typeof value !== 'object' || value === null || Object.values(value).every(isStorable)
}

/** Validates a body. If it is a record, or a list of records, its unknown fields are removed. */
function bodyValidator (app: FastifyInstance, schema: TSchema, method: string) {
  const record = [schema, schema.items].find(isRecord)
  if (record && method === 'PATCH') return () => true // the handler validates the changed record
  const closed = record && { [record.$ref]: closedSchema(app.getSchema(record.$ref) as TObject, method) }
  const problemsIn = checkerOf(schema, { useDefaults: true, schemas: { ...app.getSchemas(), ...closed } })
  return function validateBody (body: unknown) {
    const problems = problemsIn(body)
    return problems ? { error: invalid('body', problems) } : true
  }
}

/** The id in the body of a PUT can be left out. The handler compares it with that of the path. */
function closedSchema ({ properties, required = [], ...schema }: TObject, method: string) {
  if (method !== 'PUT') return { ...schema, properties, required, additionalProperties: false }
  const others = required.filter(name => name !== 'id')
  return { ...schema, properties: { id: {}, ...properties }, required: others, additionalProperties: false }
}

/** Returns whether a schema refers to one of our records. */
function isRecord (schema?: TSchema) {
  return schema?.$ref !== undefined && schemaName(schema.$ref) !== schema.$ref
}

/** Validates the path, the query or the headers, and converts them to their types. */
function parameterValidator (ajv: Ajv2020, { $id, ...schema }: TObject, part: Problem['in']) {
  const complete = part === 'headers' ? headersSchema(schema) : schema
  // A header is a text, so that nothing can be wrong with most of ours.
  if (part === 'headers' && acceptsAll(complete)) return () => true
  const validate = withAnnotations(ajv, schema).compile(complete)
  const typed = Object.entries<TSchema>({ ...complete.properties }).filter(([, { type }]) => type !== 'string')
  return function validateParameters (data: Record<string, unknown>) {
    for (const [name, property] of typed) {
      if (data[name] !== undefined) data[name] = converted(data[name], property)
    }
    const problems = validate(data) ? problemsOfTexts(data, schema) : problemsOf(validate.errors).map(ofParameter)
    return problems.length > 0 ? { error: invalid(part, problems) } : true
  }
}

/** Whether all headers are optional, and of any text. */
function acceptsAll ({ properties, required = [] }: TObject) {
  const hasRule = ({ type, description, expected, ...rules }: TSchema) =>
    type !== 'string' || Object.keys(rules).length > 0
  return required.length === 0 && !Object.values<TSchema>(properties).some(hasRule)
}

/** In a request, the names of headers are in lower case. The description of a header says what it must be. */
function headersSchema ({ properties = {}, required = [], ...schema }: TObject) {
  const named = Object.entries(properties).map(([name, property]) =>
    [name.toLowerCase(), { ...property, expected: property.description }])
  const lowerCase = { properties: Object.fromEntries(named), required: required.map(name => name.toLowerCase()) }
  return { ...schema, ...lowerCase } as TObject
}

/** Converts the text of a parameter to the type of its schema. The validator rejects all other texts. */
function converted (value: unknown, { type, items }: TSchema): unknown {
  if (type === 'array') return [value].flat().map(item => converted(item, items))
  if (typeof value !== 'string') return value
  // An integer with hundreds of digits would be infinite, which is no integer.
  if (type === 'integer' && /^-?\d+$/.test(value)) {
    return Math.min(Math.max(Number(value), -Number.MAX_VALUE), Number.MAX_VALUE)
  }
  if (type === 'number' && /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(value)) return Number(value)
  if (type === 'boolean' && (value === 'true' || value === 'false')) return value === 'true'
  return value
}

/** The problem of a parameter that can be repeated, or that does not exist. */
function ofParameter ({ path, message }: ValueProblem) {
  return { path: path.replace(/(?<=.)\/\d+$/, ''), message: message.replace('known field', 'known parameter') }
}

/** Problems of the texts in filters that databases cannot compare. */
function problemsOfTexts (data: Record<string, unknown>, { additionalProperties }: TObject): ValueProblem[] {
  if (additionalProperties !== false) return []
  return Object.entries(data)
    .filter(([, value]) => [value].flat().some(text => typeof text === 'string' && text.includes('\0')))
    .map(([name]) => ({ path: pointer(name), message: 'must not contain the character NUL' }))
}
