import { readFileSync, unwatchFile, watchFile } from 'node:fs'
import type { FastifyBearerAuthOptions, verifyBearerAuthFactory } from '@fastify/bearer-auth'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details } from '../../schemas/errors.js'
import { unauthorized } from '../http/errors.js'
import { StartupError } from '../stores/store.js'
import type { RateLimiter } from './rate-limit.js'

export interface AuthOptions {
  /** The tokens that are good. */
  tokens?: string[]
  /** A file of more of them, between commas or white space, that is read again when it changes. */
  file?: string
  /** Tells whether a token is good, in place of these. */
  check?: FastifyBearerAuthOptions['auth']
}

/**
 * Asks for a bearer token on every route of its scope, and decorates the request with it as `bearerToken`. If the scope
 * has a rate limit, a request without a valid token counts against its IP address, and once the address has used up its
 * limit, no token from it is checked.
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
      // Guesses that were checked at the same time may have used up the limit.
      await limiter?.check(request, reply)
      return request.setDecorator('bearerToken', authorization?.slice('Bearer '.length).trim())
    }
    await limiter?.count(request, reply)
    if (reply.statusCode !== 401) throw refusal
    reply.header('www-authenticate', authorization === undefined ? 'Bearer' : 'Bearer error="invalid_token"')
    throw unauthorized(authorization === undefined ? details[401] : 'The bearer token is not known')
  })

  function verifier () {
    const keys = file === undefined ? tokens : [...tokens, ...tokensIn(file)]
    // The scheme is in any case (RFC 9110). A refusal is no error of the service, so it is not logged as one.
    return verifierOf({ keys, auth: check, addHook: false, specCompliance: 'rfc6749', verifyErrorLogLevel: '' })
  }

  function readAgain () {
    try {
      verify = verifier()
      app.log.info('the file of tokens has changed and was read again')
    } catch (error) {
      app.log.error({ err: error }, 'the file of tokens has changed and cannot be read; those read before are still good')
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
    throw new StartupError(`Cannot read the file of tokens: ${(error as Error).message}.`)
  }
}
