import type { TSchema } from '@sinclair/typebox'
import type { Options, ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { mapSchema } from './walk.js'

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
