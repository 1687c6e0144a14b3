import { Ajv, type ErrorObject } from 'ajv'
import fp from 'fastify-plugin'
import type { TSchema } from '@sinclair/typebox'
import { invalid } from './errors.js'
import { fault, parts } from './faults.js'
import { metadata } from './plugin.js'

/** Ajv options. Ajv does not check our schemas against the meta schema, because that makes the start slower. */
export const ajvOptions = {
  allErrors: true,
  removeAdditional: 'all',
  verbose: true,
  meta: false,
  validateSchema: false
} as const

/**
 * Validates the routes of its scope with one strict Ajv, whatever compilers, Ajv options and shared schemas the host
 * uses for its own routes. Stores return records as JSON, so only error bodies are left to serialize.
 */
export default fp(async function validation (app) {
  const ajv = new Ajv({ ...ajvOptions, coerceTypes: false })
  const shared: Record<string, TSchema> = {}

  app.setSchemaController({
    bucket: () => ({
      add (schema: TSchema & { $id: string }) {
        if (!Object.hasOwn(shared, schema.$id)) {
          shared[schema.$id] = schema
          ajv.addSchema(schema)
        }
        return app
      },
      getSchema: id => shared[id],
      getSchemas: () => shared
    })
  })

  app.setReplySerializer(body => JSON.stringify(body))
  app.addHook('onRoute', function compileByOurs (route) {
    route.validatorCompiler = ({ schema, httpPart }) => {
      const part = parts[httpPart as keyof typeof parts]
      const validate = ajv.compile(schema)
      const check = (data: unknown) => validate(data) || { error: invalid(part, (validate.errors as ErrorObject[]).map(fault)) }
      if (part === 'body') return check
      const { properties } = schema as TSchema
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
}, metadata('validation'))

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
