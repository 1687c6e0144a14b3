import { Type, type Static, type TObject, type TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifyPluginAsync } from 'fastify'
import { StartupError } from './startup.js'
import { problemsOf } from './schema/problems.js'
import { createAjv } from './schema/validation.js'

/** The versions of Fastify that our plugins support, as in package.json. */
const fastify = '^5.3.0'

/** What our plugins tell Fastify: their name, and the versions that they support. */
export function metadata (name: string) {
  return { fastify, name: `fastify-items-users/${name}` }
}

/** A plugin that can be registered several times. It has no name, because @fastify/autoload loads one plugin of each name. */
export function repeatable<T extends object> (plugin: FastifyPluginAsync<T>) {
  return Object.assign(plugin, { [Symbol.for('plugin-meta')]: { fastify } })
}

/** The decorator of `docs` that defines the security scheme of `auth` in its document, and returns the name. */
export const defineBearerScheme = Symbol('define bearer scheme')

/** Returns the decorator of one of our plugins, if the scope has it. A host may have another one with this name. */
export function ownDecorator<T> (app: FastifyInstance, name: string, method: keyof T & string): T | undefined {
  const decorator = app.hasDecorator(name) ? app.getDecorator(name) : undefined
  return typeof Object(decorator)[method] === 'function' ? decorator as T : undefined
}

/** Returns a function that returns the same value in all scopes of an app, because a decorator is visible only in its own scope. */
export function shared<T> (create: () => T) {
  const values = new WeakMap<object, T>()
  return ({ server }: FastifyInstance) => {
    const value = values.get(server) ?? create()
    values.set(server, value)
    return value
  }
}

/** The schema of an option that is not JSON, such as a function. The error message is "must be" and what is expected. */
export function custom<T> (expected: string, is: (value: unknown) => boolean) {
  return Type.Unsafe<T>({ expected, is })
}

/** The schema of an option that can be left out, or undefined. */
export function optional<T extends TSchema> (schema: T) {
  return Type.Optional(Type.Unsafe<Static<T> | undefined>(schema))
}

let ajv: ReturnType<typeof createAjv> | undefined

/**
 * Returns the options of a plugin. Throws one error that lists all invalid ones. Unknown options are ignored, because a host
 * may pass the same options to all plugins; one that looks like a known option is logged.
 */
export function checkOptions<T extends object> (app: FastifyInstance, plugin: string, schema: TObject, options: T) {
  ajv ??= createAjv({
    code: { optimize: false }, // each validator runs only a few times
    keywords: ['expected', { keyword: 'is', validate: (is: (value: unknown) => boolean, value: unknown) => is(value) }]
  })
  const validate = ajv.compile(schema)
  validate(options)
  const problems = problemsOf(validate.errors).map(({ path, message }) => `${path.slice(1)} ${message}`)
  if (problems.length > 0) throw new StartupError(`Invalid options of the plugin ${plugin}: ${problems.join('. ')}.`)
  const names = [...Object.keys(schema.properties), 'prefix', 'logLevel', 'logSerializers'] // Fastify passes its own options on
  for (const hint of misspelledIn(Object.keys(options), names, names)) app.log.warn(`The plugin ${plugin} has no option ${hint}`)
  return options
}

/** The names that are not known but look like a known one that is possible, which somebody may have meant. */
export function misspelledIn (names: string[], known: string[], possible: string[]) {
  return names.filter(name => !known.includes(name)).flatMap(name => {
    const nearest = possible.find(other => isSimilar(name.toLowerCase(), other.toLowerCase()))
    return nearest ? [`${name}. Did you mean ${nearest}?`] : []
  })
}

/** Returns whether two words are the same except for one letter that is wrong, missing, additional or in another place. */
function isSimilar (one: string, other: string) {
  if (Math.abs(one.length - other.length) > 1) return false
  const withoutOne = (word: string) => [word, ...Array.from(word, (_, n) => word.slice(0, n) + word.slice(n + 1))]
  const words = new Set(withoutOne(other))
  return withoutOne(one).some(word => words.has(word))
}
