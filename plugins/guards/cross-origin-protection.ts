import { Type, type Static } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { httpError } from '../http/errors.js'
import { checkOptions, metadata, optional } from '../plugin.js'

const CrossOriginProtectionOptions = Type.Object({
  /** Origins whose pages may send requests that change data, such as `https://example.com`, or `*` for all. */
  origins: optional(Type.Array(Type.String()))
})
export interface CrossOriginProtectionOptions extends Static<typeof CrossOriginProtectionOptions> {}

/**
 * Rejects requests that a browser sends from a page of another origin, on all routes of its scope, unless the method is
 * safe or the origin is allowed. The rules are those of Go's `http.CrossOriginProtection`. Register it before `auth`.
 */
export default fp<CrossOriginProtectionOptions>(async function crossOriginProtection (app, options) {
  const { origins = [] } = checkOptions(app, 'crossOriginProtection', CrossOriginProtectionOptions, options)
  if (origins.includes('*')) return

  app.addHook('onRequest', function rejectCrossOrigin (request, _reply, done) {
    const isSafe = ['GET', 'HEAD', 'OPTIONS'].includes(request.method)
    const isRejected = !isSafe && isCrossOrigin(request) && !origins.includes(String(request.headers.origin))
    done(isRejected ? httpError(403) : undefined)
  })

  app.decorate('crossOriginProtection', true)
}, metadata('cross-origin-protection'))

/** Browsers send `Origin`, and over HTTPS or to localhost also `Sec-Fetch-Site`. Other clients send neither. */
function isCrossOrigin (request: FastifyRequest) {
  const { 'sec-fetch-site': site, origin } = request.headers
  if (site) return site !== 'same-origin' && site !== 'none'
  if (!origin) return false
  // A proxy may have terminated TLS, so the scheme of our own origin is not known.
  return origin !== `http://${request.host}` && origin !== `https://${request.host}`
}
