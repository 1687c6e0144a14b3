import type { TSchema } from '@sinclair/typebox'
import type { Options, ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'

/** Creates an Ajv. It does not check our schemas against the meta schema, because that makes the start slower. */
export function createAjv (options: Options) {
  return new Ajv2020({ allErrors: true, verbose: true, meta: false, validateSchema: false, strictTypes: false, strictTuples: false, ...options })
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
const validators = new WeakMap<TSchema, ValidateFunction>()

/** The validator of a schema. Types are strict. All apps of a process share it. */
export function validatorOf (schema: TSchema) {
  ajv ??= addFormats.default(createAjv({ keywords: [isWellFormed] }))
    .addFormat('int64', true) // these two are for other programs
    .addFormat('double', true)
  const validate = validators.get(schema) ?? ajv.compile(mapSchema({ ...schema, $id: undefined }, withTextCheck))
  validators.set(schema, validate)
  return validate
}

/** Adds our keyword to a string. It is not in the schema itself, because other programs do not know it. */
function withTextCheck (schema: TSchema) {
  return [schema.type].flat().includes('string') ? { ...schema, isWellFormed: true } : schema
}

/** The keywords that contain a schema or a list of schemas, and those that contain schemas by name. */
const nested = [
  'additionalItems', 'additionalProperties', 'allOf', 'anyOf', 'contains', 'else', 'if', 'items', 'not', 'oneOf', 'prefixItems', 'propertyNames',
  'then', 'unevaluatedItems', 'unevaluatedProperties'
]
const named = ['$defs', 'definitions', 'dependentSchemas', 'patternProperties', 'properties']

/** Changes a schema and all schemas in it. */
export function mapSchema<T extends object> (schema: T, change: (schema: TSchema) => object): TSchema {
  const map = (value: unknown) => typeof value === 'object' && value !== null ? mapSchema(value, change) : value
  const entries = Object.entries(schema).map(([keyword, value]) => {
    if (nested.includes(keyword)) return [keyword, Array.isArray(value) ? value.map(map) : map(value)]
    if (named.includes(keyword)) return [keyword, Object.fromEntries(Object.entries(Object(value)).map(([name, schema]) => [name, map(schema)]))]
    return [keyword, value]
  })
  return change(Object.fromEntries(entries)) as TSchema
}
