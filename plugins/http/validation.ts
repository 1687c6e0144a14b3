import { Ajv, type ErrorObject } from 'ajv'
import fp from 'fastify-plugin'
import type { TSchema } from '@sinclair/typebox'
import { invalid } from './errors.js'

/** The parts of a request as Fastify's routes call them, and as our errors do. */
const parts = { body: 'body', params: 'path', querystring: 'query', headers: 'headers' } as const

/** How we validate. Our schemas are valid; to have Ajv check that would take a good part of the time to start. */
export const ajvOptions = {
  allErrors: true,
  removeAdditional: 'all',
  verbose: true,
  meta: false,
  validateSchema: false
} as const

/**
 * Validates the routes of this app by their schemas, strictly and in one way, whatever compilers, serialisers, Ajv
 * options and shared schemas the surrounding app has set for its own. Records reach a route as JSON already, encoded
 * by their schema; what is left are errors, ours or a hook's, to be sent as they are.
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
        // Most requests say nothing that a schema of options asks of them.
        if (isOptional && names.every(name => data[name] === undefined)) return true
        readIntegers(data, integers)
        return check(pick(data, names))
      }
    }
    route.serializerCompiler = () => JSON.stringify
  })
}, { fastify: '5.x', name: 'fastify-items-users/validation' })

/** Says in plain words what a value must be. */
export function explain ({ keyword, params, parentSchema, message }: ErrorObject) {
  switch (keyword) {
    case 'required': return 'is required'
    case 'type': return `must be ${/^[aio]/.test(params.type) ? 'an' : 'a'} ${params.type}`
    case 'minimum': return `must be at least ${params.limit}`
    case 'maximum': return `must be at most ${params.limit}`
    case 'enum': return `must be one of ${params.allowedValues.join(', ')}`
    case 'minLength': return 'must not be empty'
    case 'dependencies': return `needs ${params.missingProperty}`
    case 'pattern':
    case 'format': return `must be ${parentSchema?.description}`
    default: return String(message)
  }
}

/** Says where a fault is and what it is. Ajv places a missing value at its parent. */
function fault (error: ErrorObject) {
  const { keyword, instancePath, params } = error
  return {
    path: keyword === 'required' ? `${instancePath}/${params.missingProperty}` : instancePath,
    message: explain(error)
  }
}

/** A copy of what is named here: the rest is not ours to remove, since a header or a parameter may be for a hook. */
function pick (data: Record<string, unknown>, names: string[]) {
  const picked: Record<string, unknown> = {}
  for (const name of names) picked[name] = data[name]
  return picked
}

/**
 * Paths and queries hold text. Where their schema asks for an integer, this reads what is one in decimal digits
 * and leaves the rest for the validator to refuse. Too large to be a number is still an integer.
 */
function readIntegers (data: Record<string, unknown>, names: string[]) {
  for (const name of names) {
    const text = data[name]
    if (typeof text !== 'string' || !/^-?\d+$/.test(text)) continue
    data[name] = Math.max(-Number.MAX_VALUE, Math.min(Number(text), Number.MAX_VALUE))
  }
}
