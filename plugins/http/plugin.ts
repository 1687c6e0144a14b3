import { Type, type TObject } from '@sinclair/typebox'
import { Ajv } from 'ajv'
import type { FastifyInstance } from 'fastify'
import { StartupError } from '../stores/store.js'
import { fault } from './faults.js'

/** What our plugins tell Fastify: their name, and the versions of Fastify that they support, as in package.json. */
export function metadata (name: string) {
  return { fastify: '^5.3.0', name: `fastify-items-users/${name}` }
}

/** Returns the decorator of one of our plugins, if the scope has it. A host may have another one with this name. */
export function ownDecorator<T> (app: FastifyInstance, name: string, method: keyof T & string): T | undefined {
  const decorator = app.hasDecorator(name) ? app.getDecorator(name) : undefined
  return typeof Object(decorator)[method] === 'function' ? decorator as T : undefined
}

/** The schema of an option that is not JSON, such as a function. The error message is "must be" and what is expected. */
export function custom<T> (expected: string, is: (value: unknown) => boolean) {
  return Type.Unsafe<T>({ expected, is })
}

/** The schema of an option that is a function. */
export function callback<T> () {
  return custom<T>('a function', value => typeof value === 'function')
}

/** Options of a plugin without options. */
export const NoOptions = Type.Object({})

/** Options that Fastify reads and passes on to the plugin. */
const optionsOfFastify = ['prefix', 'logLevel', 'logSerializers']

let ajv: Ajv | undefined

/** Throws one error that lists all invalid and unknown options of a plugin. */
export function checkOptions (plugin: string, schema: TObject, options: object) {
  ajv ??= new Ajv({
    allErrors: true,
    verbose: true,
    meta: false,
    validateSchema: false,
    code: { optimize: false }, // each validator runs only a few times
    keywords: ['expected', { keyword: 'is', validate: (is: (value: unknown) => boolean, value: unknown) => is(value) }]
  })
  const validate = ajv.compile(schema)
  validate(options)
  const invalid = (validate.errors ?? []).map(fault).map(({ path, message }) => `${path.slice(1)} ${message}`)
  const names = Object.keys(schema.properties)
  const unknown = Object.keys(options)
    .filter(name => !names.includes(name) && !optionsOfFastify.includes(name))
    .map(name => `${name} is not an option; ${names.length > 0 ? `the options are ${names.join(', ')}` : 'there are no options'}`)
  const faults = [...invalid, ...unknown]
  if (faults.length > 0) throw new StartupError(`Invalid options of the plugin ${plugin}: ${faults.join('. ')}.`)
}
