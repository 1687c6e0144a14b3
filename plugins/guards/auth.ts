import { readFileSync, unwatchFile, watchFile } from 'node:fs'
import type { FastifyBearerAuthOptions, verifyBearerAuthFactory } from '@fastify/bearer-auth'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/errors.js'
import { unauthorized } from '../http/errors.js'
import { StartupError } from '../stores/store.js'
import type { RateLimiter } from './rate-limit.js'

/** Options of the plugin `auth`. At least one of them is needed. */
export interface AuthOptions {
  /** Tokens that are accepted. */
  tokens?: string[]
  /** A file with more tokens, separated by commas or white space. Changes take effect within a second. */
  file?: string
  /** Returns whether a token is valid. Replaces `tokens` and `file`. */
  check?: FastifyBearerAuthOptions['auth']
}

/**
 * Requires a bearer token on all routes of its scope. Adds the request decorator `bearerToken`. If the scope has a rate
 * limit, a request without a valid token counts for its IP address; once the address has used up the limit, no token
 * from it is checked.
 */
export default fp<AuthOptions>(async function auth (app, { tokens = [], file, check }) {
  await app.register(import('@fastify/bearer-auth'), { keys: [], addHook: false })
  const verifierOf = app.getDecorator<verifyBearerAuthFactory>('verifyBearerAuthFactory')
  let verify = verifier()

  if (file !== undefined) {
    watchFile(file, { interval: 1000, persistent: false }, readAgain)
    app.addHook('onClose', async function stopWatching () {
      unwatchFile(file, readAgain)
    })
  }

  app.decorateRequest('bearerToken')

  app.addHook('onRequest', async function authenticate (request, reply) {
    const { authorization } = request.headers
    const limiter = limiterOf(request)
    await limiter?.check(request, reply)
    const refusal = await new Promise<Error | undefined>(resolve => verify(request, reply, resolve))
    if (refusal === undefined) {
      // Other requests that were checked at the same time may have used up the limit.
      await limiter?.check(request, reply)
      return request.setDecorator('bearerToken', authorization?.slice('Bearer '.length).trim())
    }
    await limiter?.count(request, reply)
    if (reply.statusCode !== 401) throw refusal
    reply.header('www-authenticate', authorization === undefined ? 'Bearer' : 'Bearer error="invalid_token"')
    throw unauthorized(authorization === undefined ? details[401] : 'The bearer token is not valid')
  })

  function verifier () {
    const keys = file === undefined ? tokens : [...tokens, ...tokensIn(file)]
    // The scheme is case-insensitive (RFC 9110). A wrong token is not an error of the service, so it is not logged as one.
    return verifierOf({ keys, auth: check, addHook: false, specCompliance: 'rfc6749', verifyErrorLogLevel: '' })
  }

  function readAgain () {
    try {
      verify = verifier()
      app.log.info(`Tokens reloaded from ${file}`)
    } catch (error) {
      app.log.error({ err: error }, `Tokens cannot be reloaded from ${file}; the previous tokens stay valid`)
    }
  }
}, { fastify: '5.x', name: 'fastify-items-users/auth' })

/** The rate limiter of the scope that serves the request, if there is one. */
function limiterOf ({ server }: FastifyRequest) {
  return server.hasDecorator('rateLimiter') ? server.getDecorator<RateLimiter>('rateLimiter') : undefined
}

function tokensIn (file: string) {
  try {
    return readFileSync(file, 'utf8').split(/[\s,]+/).filter(token => token !== '')
  } catch (error) {
    throw new StartupError(`Cannot read AUTH_TOKENS_FILE: ${(error as Error).message}`)
  }
}
