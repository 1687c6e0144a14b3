import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import fp from 'fastify-plugin'
import type { TObject, TSchema } from '@sinclair/typebox'
import { invalid } from './errors.js'
import { fault, parts } from './faults.js'
import { metadata } from './plugin.js'

/** Rejects lone surrogates, which UTF-8 cannot represent. */
const isWellFormed = {
  keyword: 'isWellFormed',
  type: 'string',
  validate: (_schema: true, text: string) => text.isWellFormed(),
  errors: false,
  error: { message: 'must be well-formed Unicode text' }
} as const

/** Ajv options. Ajv does not check our schemas against the meta schema, because that makes the start slower. */
export const ajvOptions = {
  allErrors: true,
  removeAdditional: 'all',
  verbose: true,
  meta: false,
  validateSchema: false
} as const

/** Ajv options for records. The formats are for other programs. */
export const recordOptions = { ...ajvOptions, formats: { int64: true, double: true } as const, keywords: [isWellFormed] }

/** Compiled validators by their schema and the schemas that it can refer to. The apps of a process share them. */
const compiled = new Map<string, ValidateFunction>()

/**
 * Validates the routes of its scope with one strict Ajv, whatever compilers, Ajv options and shared schemas the host
 * uses for its own routes. Stores return records as JSON, so only error bodies are left to serialize.
 */
export default fp(async function validation (app) {
  const shared: Record<string, TSchema> = {}
  let ajv: Ajv | undefined

  app.setSchemaController({
    bucket: () => ({
      add (schema: TSchema & { $id: string }) {
        if (!Object.hasOwn(shared, schema.$id)) shared[schema.$id] = schema
        return app
      },
      getSchema: id => shared[id],
      getSchemas: () => shared
    })
  })

  app.setReplySerializer(body => JSON.stringify(body))
  app.addHook('onRoute', function compileByOurs (route) {
    route.validatorCompiler = ({ schema: given, httpPart }) => {
      const part = parts[httpPart as keyof typeof parts]
      const schema = part === 'headers' ? withLowerCaseNames(given as TObject) : given as TSchema
      const validate = validatorOf(schema)
      const check = (data: unknown) => validate(data) || { error: invalid(part, (validate.errors as ErrorObject[]).map(fault)) }
      if (part === 'body') return check
      const { properties } = schema
      const names = Object.keys(properties)
      const integers = names.filter(name => properties[name].type === 'integer')
      const isOptional = validate({})
      return data => {
        // Most requests have none of the optional parameters.
        if (isOptional && names.every(name => data[name] === undefined)) return true
        readIntegers(data, integers)
        return check(pick(data, names))
      }
    }
    route.serializerCompiler = () => JSON.stringify
  })

  function validatorOf (schema: TSchema) {
    const key = JSON.stringify([schema, shared])
    const validate = compiled.get(key) ?? compile(schema)
    compiled.set(key, validate)
    return validate
  }

  function compile (schema: TSchema) {
    ajv ??= new Ajv({ ...recordOptions, coerceTypes: false, schemas: Object.values(shared).map(checkingText) })
    return ajv.compile(checkingText(schema))
  }
}, metadata('validation'))

/** Adds our keyword to all strings of a schema. It is not in the schema itself, because other programs do not know it. */
export function checkingText<T extends TSchema> (schema: T): T {
  return JSON.parse(JSON.stringify(schema), (_key, value) => value?.type === 'string' ? { ...value, isWellFormed: true } : value)
}

/** Header names are in lower case in a request. */
function withLowerCaseNames ({ properties, required = [], ...schema }: TObject): TSchema {
  const named = Object.entries(properties).map(([name, property]) => [lowerCase(name), property])
  return { ...schema, properties: Object.fromEntries(named), required: required.map(lowerCase) }
}

const lowerCase = (name: string) => name.toLowerCase()

/** Copies the named properties. The others stay in the request, because a hook of the host may need them. */
function pick (data: Record<string, unknown>, names: string[]) {
  const picked: Record<string, unknown> = {}
  for (const name of names) picked[name] = data[name]
  return picked
}

/**
 * Converts parameters to numbers if the schema requires an integer and they consist of decimal digits. The validator
 * rejects all others. An integer beyond the largest number is still an integer.
 */
function readIntegers (data: Record<string, unknown>, names: string[]) {
  for (const name of names) {
    const text = data[name]
    if (typeof text !== 'string' || !/^-?\d+$/.test(text)) continue
    data[name] = Math.max(-Number.MAX_VALUE, Math.min(Number(text), Number.MAX_VALUE))
  }
}
