import type { verifyBearerAuthFactory } from '@fastify/bearer-auth'
import { Type, type Static } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/errors.js'
import { httpError, invalid } from '../http/errors.js'
import { checkOptions, custom, metadata, optional, ownDecorator } from '../plugin.js'
import { StartupError } from '../startup.js'
import type { RateLimiter } from './rate-limit.js'
import { parseTokens, readTokens, watchTokens, type Tokens } from './tokens.js'

/** Options of the plugin `auth`. At least one of them is needed. */
const AuthOptions = Type.Object({
  /** Tokens that are accepted, each `TOKEN` or `NAME:TOKEN`. */
  tokens: optional(Type.Array(Type.String({ minLength: 1 }))),
  /** A file with more tokens, one per line. Changes take effect within a second. */
  file: optional(Type.String({ minLength: 1 })),
  /** Returns whether a token is valid. Replaces `tokens` and `file`. */
  check: optional(custom<(token: string, request: FastifyRequest) => boolean | Promise<boolean>>('a function', value => typeof value === 'function')),
  /** Name of the security scheme in your OpenAPI document, for the routes of this scope. It must be defined there. */
  securityScheme: optional(Type.String({ minLength: 1 }))
})
export interface AuthOptions extends Static<typeof AuthOptions> {}

/**
 * Requires a bearer token on all routes of its scope. Adds the request decorator `bearerToken`, and the name of the token
 * to the log lines of the request. If the scope has a rate limit, a request without a valid token counts for its IP
 * address; once the address has used up the limit, no token from it is checked.
 */
export default fp<AuthOptions>(async function auth (app, options) {
  const { tokens = [], file, check, securityScheme } = checkOptions(app, 'auth', AuthOptions, options)
  const isInner = app.hasRequestDecorator('bearerToken')
  if (!isInner) await app.register(import('@fastify/bearer-auth'), { keys: [], addHook: false })
  const verifierOf = app.getDecorator<verifyBearerAuthFactory>('verifyBearerAuthFactory')
  const always = parseTokens(tokens)
  const fromFile = file === undefined ? undefined : readTokens(file)
  if (fromFile?.size === 0) throw new StartupError('The option file contains no tokens.')
  let { names, verify } = accepting(fromFile)
  if (file !== undefined) watchTokens(app, file, tokens => { ({ names, verify } = accepting(tokens)) })
  if (!isInner) app.decorateRequest('bearerToken')

  if (securityScheme !== undefined) {
    app.addHook('onRoute', function addSecurity (route) {
      // A route needs all schemes of an entry, for example those of two scopes with `auth`.
      const { security = [{}] } = { ...route.schema }
      route.schema = { ...route.schema, security: security.map(schemes => ({ ...schemes, [securityScheme]: [] })) }
    })
  }

  app.addHook('onRequest', async function authenticate (request, reply) {
    const { authorization } = request.headers
    const limiter = ownDecorator<RateLimiter>(request.server, 'rateLimiter', 'check')
    await limiter?.check(request, reply)
    // Names and values alternate in raw headers. Node would use the first one.
    if (request.raw.rawHeaders.filter((name, n) => n % 2 === 0 && name.toLowerCase() === 'authorization').length > 1) {
      await limiter?.count(request, reply)
      throw invalid('headers', [{ path: '/authorization', message: 'must be sent only once' }])
    }
    const refusal = await new Promise<Error | undefined>(resolve => verify(request, reply, resolve))
    if (refusal === undefined) {
      // Other requests that were checked at the same time may have used up the limit.
      await limiter?.check(request, reply)
      const token = String(authorization).slice('Bearer '.length).trim()
      request.setDecorator('bearerToken', token)
      const name = names.get(token)
      if (name !== undefined) request.log = reply.log = request.log.child({ token: name })
      return
    }
    await limiter?.count(request, reply)
    if (reply.statusCode !== 401) throw refusal
    const hasToken = /^bearer( |$)/i.test(authorization ?? '')
    reply.header('www-authenticate', hasToken ? 'Bearer error="invalid_token"' : 'Bearer')
    const missing = authorization ? `${details[401]}: Authorization must be "Bearer" and a token` : details[401]
    const detail = hasToken ? 'The bearer token is not valid' : missing
    throw Object.assign(httpError(401, detail), { reasonOf: () => detail })
  })

  function accepting (fromFile: Tokens = new Map()) {
    const names: Tokens = new Map([...always, ...fromFile])
    // The scheme is case-insensitive (RFC 9110). A wrong token is not an error of the service, so it is not logged as one.
    const verify = verifierOf({ keys: [...names.keys()], auth: check, addHook: false, specCompliance: 'rfc6749', verifyErrorLogLevel: '' })
    return { names, verify }
  }
}, metadata('auth'))
