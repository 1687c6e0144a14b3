import { unwatchFile, watchFile } from 'node:fs'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/error-body.js'
import { httpError } from '../http/errors.js'
import { failure } from '../http/responses.js'
import { defineBearerScheme, metadata, ownDecorator } from '../common/plugin.js'
import { StartupError } from '../common/startup.js'
import { documentGuard } from './document-guard.js'
import type { RateLimiter } from './rate-limit.js'
import { allScopes, collectionOf, forbidden, isAllowed, scopesFor } from './scopes.js'
import { digestOf, readEntries, readGrants, type Grant } from './tokens.js'

type CheckResult = boolean | readonly string[]

/** Options of the plugin `auth`. At least one of them is needed. */
export interface AuthOptions {
  /** Tokens that are accepted, each `TOKEN` or `NAME:TOKEN`, or one of these with its scopes. */
  tokens?: (string | { token: string, scopes: string[] })[] | undefined
  /** A file with more tokens, one per line, and their scopes after spaces. It is read again when it changes. */
  file?: string | undefined
  /** Returns whether a token is valid, or its scopes. Replaces `tokens` and `file`. */
  check?: ((token: string, request: FastifyRequest) => CheckResult | Promise<CheckResult>) | undefined
  /** What requests without a token may do, such as `read`. */
  publicScopes?: string[] | undefined
  /** Name of the security scheme in your OpenAPI document, for the routes of this scope. It must be defined there. */
  securityScheme?: string | undefined
}

const challenge = { 'WWW-Authenticate': Type.String({ description: 'How to authenticate' }) }

/** The error responses of a guarded route. */
const responses = {
  401: failure('The bearer token is missing or not valid', challenge),
  403: failure('The bearer token does not have the scope that the operation needs', challenge)
}

/**
 * Requires a bearer token with a scope that allows the request, on all routes of its scope. Adds the request
 * decorators `bearerToken` and `scopes`, and the name of the token to the log lines of the request. If the scope has a
 * rate limit, a request without a valid token counts for its IP address, and an address over its limit is refused.
 */
export default fp<AuthOptions>(async function auth (app, options) {
  const { check, publicScopes = [] } = options
  const collections = new Set<string>()
  if (!app.hasRequestDecorator('bearerToken')) app.decorateRequest('bearerToken').decorateRequest('scopes')

  documentGuard(app, () => responses)
  documentSecurity(app, options)
  app.addHook('onRoute', function noteCollection ({ config }) {
    const collection = collectionOf(config)
    if (collection !== undefined) collections.add(collection)
  })
  const known = knownTokens(app, options, collections)
  const grantOf = check ? checkedBy(check) : known

  app.addHook('onRequest', async function authenticate (request, reply) {
    const limiter = ownDecorator<RateLimiter>(request.server, 'rateLimiter', 'check')
    await limiter?.check(request, reply)
    try {
      const token = bearerTokenOf(request)
      const grant = token === undefined ? undefined : await grantOf(token, request)
      // Other guesses of this address may have used up the limit meanwhile.
      if (grant) await limiter?.check(request, reply)
      authorize(request, reply, token, grant)
    } catch (error) {
      await limiter?.count(request, reply)
      reply.headers({ ...(error as { headers?: object }).headers })
      throw error
    }
  })

  /** Gives a request its scopes, or throws what it lacks. */
  function authorize (request: FastifyRequest, reply: FastifyReply, token?: string, grant?: Grant) {
    const { authorization } = request.headers
    if (authorization && !grant) throw unauthorized(authorization)
    const granted = [...publicScopes, ...grant?.scopes ?? []]
    // (`setDecorator` would fail in scopes that are older than the decorators.)
    Object.assign(request, { bearerToken: token, scopes: granted })
    if (grant?.name !== undefined) request.log = reply.log = request.log.child({ token: grant.name })

    const allowing = scopesFor(request.is404 ? [] : [request.method], request.routeOptions.config)
    if (!isAllowed(granted, allowing)) throw grant ? forbidden(allowing[0]) : unauthorized()
  }
}, metadata('auth'))

type GrantOf = (token: string, request: FastifyRequest) => Grant | undefined | Promise<Grant | undefined>

function checkedBy (check: NonNullable<AuthOptions['check']>): GrantOf {
  return async function checkedGrant (token, request) {
    const result = await check(token, request)
    if (result === true) return { scopes: allScopes }
    return Array.isArray(result) ? { scopes: result } : undefined
  }
}

/** The tokens of the options, which are read when all collections are known, and again when the file changes. */
function knownTokens (app: FastifyInstance, options: AuthOptions, collections: Set<string>): GrantOf {
  const { file } = options
  let grants = new Map<string, Grant>()

  app.addHook('onReady', async function readTokens () {
    grants = readGrants(options, collections)
    if (file === undefined) return
    if (readEntries(file).length === 0) throw new StartupError('The option file contains no tokens.')
    watchFile(file, { interval: 1000, persistent: false }, readAgain)
  })
  app.addHook('onClose', async function stopWatching () {
    if (file !== undefined) unwatchFile(file, readAgain)
  })
  return token => grants.get(digestOf(token))

  function readAgain () {
    try {
      grants = readGrants(options, collections)
      app.log.info(`Tokens reloaded from ${file}`)
    } catch (error) {
      app.log.error({ err: error }, `Tokens cannot be reloaded from ${file}; the previous tokens stay valid`)
    }
  }
}

/** Adds the security scheme, and the scope that each route needs, to the document. */
function documentSecurity (app: FastifyInstance, { publicScopes = [], securityScheme }: AuthOptions) {
  app.addHook('onRoute', function addSecurity (route) {
    const scopes = scopesFor([route.method].flat(), route.config)
    const hasDocs = this.hasDecorator(defineBearerScheme)
    const defineScheme = hasDocs ? this.getDecorator<() => string>(defineBearerScheme) : undefined
    const scheme = securityScheme ?? defineScheme?.()
    if (scheme === undefined) return
    // A route needs all schemes of an entry, such as those of two scopes with `auth`.
    const { security = [{}] } = { ...route.schema }
    // Documents of hosts may be in OpenAPI 3.0, which allows no scopes here.
    const secured = security.map(schemes => ({ ...schemes, [scheme]: hasDocs ? [scopes[0]] : [] }))
    const isPublic = isAllowed(publicScopes, scopes)
    route.schema = { ...route.schema, security: isPublic ? [...security, ...secured] : secured }
  })
}

/** The token of a request, if its `Authorization` has the scheme `Bearer`, in upper or lower case (RFC 9110). */
function bearerTokenOf ({ headers: { authorization = '' } }: FastifyRequest) {
  return /^bearer (.+)$/i.exec(authorization)?.[1]?.trim()
}

function unauthorized (authorization = '') {
  const hasToken = /^bearer( |$)/i.test(authorization)
  const headers = { 'www-authenticate': hasToken ? 'Bearer error="invalid_token"' : 'Bearer' }
  const missing = authorization ? `${details[401]}: Authorization must be "Bearer" and a token` : details[401]
  return Object.assign(httpError(401, hasToken ? 'The bearer token is not valid' : missing), { headers })
}
