import type { FastifyInstance, FastifyPluginAsync } from 'fastify'

/** The versions of Fastify that our plugins support, as in package.json. */
const fastify = '^5.3.0'

/** What our plugins tell Fastify: their name, and the versions that they support. */
export function metadata (name: string) {
  return { fastify, name: `fastify-items-users/${name}` }
}

/** A plugin that can be registered several times. (@fastify/autoload loads only one plugin of each name.) */
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

/** Returns a function that returns the same value in all scopes of an app. (A decorator is visible only in its own.) */
export function shared<T> (create: () => T) {
  const values = new WeakMap<object, T>()
  return ({ server }: FastifyInstance) => {
    const value = values.get(server) ?? create()
    values.set(server, value)
    return value
  }
}
