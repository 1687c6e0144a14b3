import type { verifyBearerAuthFactory } from '@fastify/bearer-auth'
import { Type, type Static } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { scope } from '../../schemas/config.js'
import { details, missingScope } from '../../schemas/errors.js'
import { httpError, invalid } from '../http/errors.js'
import { checkOptions, custom, defineBearerScheme, metadata, optional, ownDecorator } from '../plugin.js'
import { StartupError } from '../startup.js'
import type { RateLimiter } from './rate-limit.js'
import { allScopes, collectionOf, isAllowed, scopesFor } from './scopes.js'
import { entriesOf, invalidTokens, readEntries, tokensOf, unknownCollection, watchTokens, type Entry, type Tokens } from './tokens.js'

type CheckResult = boolean | readonly string[]

/** Options of the plugin `auth`. At least one of them is needed. */
const AuthOptions = Type.Object({
  /** Tokens that are accepted, each `TOKEN` or `NAME:TOKEN`, or one of these with its scopes. */
  tokens: optional(Type.Array(Type.Union([
    Type.String({ minLength: 1 }),
    Type.Object({ token: Type.String({ minLength: 1 }), scopes: Type.Array(Type.String()) }, { additionalProperties: false })
  ]))),
  /** A file with more tokens, one per line, and their scopes after spaces. Changes take effect within a second. */
  file: optional(Type.String({ minLength: 1 })),
  /** Returns whether a token is valid, or its scopes. Replaces `tokens` and `file`. */
  check: optional(custom<(token: string, request: FastifyRequest) => CheckResult | Promise<CheckResult>>('a function', value => typeof value === 'function')),
  /** What requests without a token may do, such as `read`. */
  publicScopes: optional(Type.Array(Type.String({ pattern: `^${scope.pattern}$`, expected: scope.expected }))),
  /** Name of the security scheme in your OpenAPI document, for the routes of this scope. It must be defined there. */
  securityScheme: optional(Type.String({ minLength: 1 }))
})
export interface AuthOptions extends Static<typeof AuthOptions> {}

/**
 * Requires a bearer token with a scope that allows the request, on all routes of its scope. Adds the request decorators
 * `bearerToken` and `scopes`, and the name of the token to the log lines of the request. If the scope has a rate limit, a
 * request without a valid token counts for its IP address; once the address has used up the limit, no token from it is checked.
 */
export default fp<AuthOptions>(async function auth (app, options) {
  const { tokens = [], file, check, publicScopes = [], securityScheme } = checkOptions(app, 'auth', AuthOptions, options)
  const isInner = app.hasRequestDecorator('bearerToken')
  if (!isInner) await app.register(import('@fastify/bearer-auth'), { keys: [], addHook: false })
  const verifierOf = app.getDecorator<verifyBearerAuthFactory>('verifyBearerAuthFactory')
  const collections = new Set<string>()
  let accepted = accepting(new Map())
  if (!isInner) app.decorateRequest('bearerToken').decorateRequest('scopes')

  app.addHook('onRoute', function addSecurity (route) {
    const collection = collectionOf(route.config)
    if (collection !== undefined) collections.add(collection)
    const scopes = scopesFor([route.method].flat(), route.config)
    const ofDocs = this.hasDecorator(defineBearerScheme) ? this.getDecorator<() => string>(defineBearerScheme) : undefined
    const scheme = securityScheme ?? ofDocs?.()
    if (scheme === undefined) return
    // A route needs all schemes of an entry, for example those of two scopes with `auth`.
    const { security = [{}] } = { ...route.schema }
    // Other documents may be older than OpenAPI 3.1, which allows scopes here.
    const secured = security.map(schemes => ({ ...schemes, [scheme]: ofDocs ? [scopes[0]] : [] }))
    route.schema = { ...route.schema, security: isAllowed(publicScopes, scopes) ? [...security, ...secured] : secured }
  })

  if (file !== undefined) watchTokens(app, file, accept)

  // All collections are known now.
  app.addHook('onReady', async function readTokens () {
    const inFile = file === undefined ? undefined : readEntries(file)
    if (inFile?.length === 0) throw new StartupError('The option file contains no tokens.')
    const problem = unknownCollection(publicScopes, collections)
    const problems = [...accept(inFile), ...problem ? [`the option publicScopes ${problem}`] : []]
    if (problems.length > 0) throw invalidTokens(problems)
  })

  app.addHook('onRequest', async function authenticate (request, reply) {
    const { authorization } = request.headers
    const { tokens, verify } = accepted
    const limiter = ownDecorator<RateLimiter>(request.server, 'rateLimiter', 'check')
    await limiter?.check(request, reply)
    // Names and values alternate in raw headers. Node would use the first one.
    if (request.raw.rawHeaders.filter((name, n) => n % 2 === 0 && name.toLowerCase() === 'authorization').length > 1) {
      await limiter?.count(request, reply)
      throw invalid('headers', [{ path: '/authorization', message: 'must be sent only once' }])
    }
    const allowing = scopesFor(request.is404 ? [] : [request.method], request.routeOptions.config)
    if (!authorization && isAllowed(publicScopes, allowing)) {
      request.setDecorator('scopes', [...publicScopes])
      return
    }
    const refusal = await new Promise<Error | undefined>(resolve => verify(request, reply, resolve))
    if (refusal === undefined) {
      // Other requests that were checked at the same time may have used up the limit.
      await limiter?.check(request, reply)
      const token = String(authorization).slice('Bearer '.length).trim()
      request.setDecorator('bearerToken', token)
      // Without an entry, `check` has set the scopes.
      const { name, scopes = request.getDecorator<readonly string[]>('scopes') } = { ...tokens.get(token) }
      if (name !== undefined) request.log = reply.log = request.log.child({ token: name })
      const granted = [...publicScopes, ...scopes]
      request.setDecorator('scopes', granted)
      if (isAllowed(granted, allowing)) return
      await limiter?.count(request, reply)
      reply.header('www-authenticate', `Bearer error="insufficient_scope", scope="${allowing[0]}"`)
      const detail = missingScope(allowing[0])
      throw Object.assign(httpError(403, detail), { code: 'ERR_INSUFFICIENT_SCOPE', reasonOf: () => detail })
    }
    await limiter?.count(request, reply)
    if (reply.statusCode !== 401) throw refusal
    const hasToken = /^bearer( |$)/i.test(authorization ?? '')
    reply.header('www-authenticate', hasToken ? 'Bearer error="invalid_token"' : 'Bearer')
    const missing = authorization ? `${details[401]}: Authorization must be "Bearer" and a token` : details[401]
    const detail = hasToken ? 'The bearer token is not valid' : missing
    throw Object.assign(httpError(401, detail), { reasonOf: () => detail })
  })

  /** Accepts the valid tokens of the options and of the file. Returns the problems of the others. */
  function accept (inFile: Entry[] = []) {
    const { tokens: valid, problems } = tokensOf([...entriesOf(tokens), ...inFile], collections)
    accepted = accepting(check ? new Map() : valid)
    return problems
  }

  function accepting (tokens: Tokens) {
    // The scheme is case-insensitive (RFC 9110). A wrong token is not an error of the service, so it is not logged as one.
    const verify = verifierOf({ keys: [...tokens.keys()], auth: check && checkToken, addHook: false, specCompliance: 'rfc6749', verifyErrorLogLevel: '' })
    return { tokens, verify }
  }

  /** Returns whether a token is valid, and sets the scopes of the request. */
  async function checkToken (token: string, request: FastifyRequest) {
    const result = await check?.(token, request)
    const scopes = result === true ? allScopes : result
    if (Array.isArray(scopes)) request.setDecorator('scopes', scopes)
    return Array.isArray(scopes)
  }
}, metadata('auth'))
