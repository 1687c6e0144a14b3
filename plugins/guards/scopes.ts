import type { FastifyRequest } from 'fastify'
import { missingScope } from '../../schemas/error-body.js'
import { httpError } from '../http/errors.js'

/** The scopes of a token that has none: it can do everything. */
export const allScopes = ['write']

/** The collection that a route belongs to. The routes of the plugin `collection` have it, and those of a host can. */
export function collectionOf (config: object = {}) {
  const { collection } = config as { collection?: unknown }
  return typeof collection === 'string' ? collection : undefined
}

/**
 * The scopes that allow these methods of a route. The first one allows the least. A request to an unknown path has no
 * methods: it needs what a read needs.
 */
export function scopesFor (methods: string[], config?: object): [string, ...string[]] {
  const collection = collectionOf(config)
  const isRead = methods.every(method => method === 'GET' || method === 'HEAD')
  if (collection === undefined) return isRead ? ['read', 'write'] : ['write']
  return isRead ? [`${collection}:read`, `${collection}:write`, 'read', 'write'] : [`${collection}:write`, 'write']
}

/** Returns whether one of the scopes that allow a request is granted. */
export function isAllowed (granted: readonly string[], allowing: readonly string[]) {
  return allowing.some(scope => granted.includes(scope))
}

/** Throws a 403 if there is a plugin `auth`, and the request has no scope to read a collection. */
export function requireScope ({ server, scopes }: FastifyRequest & { scopes?: readonly string[] }, collection: string) {
  const [needed, ...others] = scopesFor(['GET'], { collection })
  const isGuarded = server.hasRequestDecorator('scopes')
  if (isGuarded && !isAllowed(scopes ?? [], [needed, ...others])) throw forbidden(needed)
}

export function forbidden (scope: string) {
  const headers = { 'www-authenticate': `Bearer error="insufficient_scope", scope="${scope}"` }
  return Object.assign(httpError(403, missingScope(scope)), { code: 'ERR_INSUFFICIENT_SCOPE', headers })
}
