import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { httpError } from '../http/errors.js'
import { failure } from '../http/responses.js'
import { metadata } from '../common/plugin.js'
import { documentGuard } from './document-guard.js'

export interface CrossOriginProtectionOptions {
  /** Origins whose pages may change data, such as `https://example.com`, or `*` for all. Default: none. */
  origins?: string[] | undefined
}

const responses = { 403: failure('A browser sent the request from a page of another origin') }

/**
 * Rejects requests that a browser sends from a page of another origin, on all routes of its scope, unless the method is
 * safe or the origin is allowed. The rules are those of Go's `http.CrossOriginProtection`. Register it before `auth`.
 */
export default fp<CrossOriginProtectionOptions>(async function crossOriginProtection (app, { origins = [] }) {
  if (origins.includes('*')) return
  documentGuard(app, ({ method }) => [method].flat().every(isSafe) ? {} : responses)

  app.addHook('onRequest', function rejectCrossOrigin (request, _reply, done) {
    const { method, headers } = request
    const isAllowed = isSafe(method) || !isCrossOrigin(request) || origins.includes(String(headers.origin))
    done(isAllowed ? undefined : httpError(403))
  })
}, metadata('cross-origin-protection'))

function isSafe (method: string) {
  return ['GET', 'HEAD', 'OPTIONS'].includes(method)
}

/** Browsers send `Origin`, and over HTTPS or to localhost also `Sec-Fetch-Site`. Other clients send neither. */
function isCrossOrigin (request: FastifyRequest) {
  const { 'sec-fetch-site': site, origin } = request.headers
  if (site) return site !== 'same-origin' && site !== 'none'
  if (!origin) return false
  // A proxy may have terminated TLS, so the scheme of our own origin is not known.
  return origin !== `http://${request.host}` && origin !== `https://${request.host}`
}
