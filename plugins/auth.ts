import { readFileSync, unwatchFile, watchFile } from 'node:fs'
import type { FastifyBearerAuthOptions, verifyBearerAuthFactory } from '@fastify/bearer-auth'
import fp from 'fastify-plugin'
import { asksForToken, details, unknownToken } from '../schemas/http.js'
import { describeFailure, unauthorized } from './errors.js'
import { CannotOpen } from './stores/store.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The bearer token of the request, where it is a good one. */
    bearerToken?: string
    /** Why the request will be refused. */
    bearerRefusal?: Error
  }
}

export interface AuthOptions {
  /** The tokens that are good. */
  tokens?: string[]
  /** A file of more of them, between commas or white space, that is read again when it changes. */
  file?: string
  /** Tells whether a token is good, in place of these. */
  check?: FastifyBearerAuthOptions['auth']
}

/**
 * Asks for a bearer token on every route of its scope. It looks at the token first and refuses later, so that what
 * runs in between, as a rate limit does, knows whose request it is and counts those too that will be refused.
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
  app.decorateRequest('bearerRefusal')

  app.addHook('onRequest', function identify (request, reply, done) {
    verify(request, reply, error => {
      if (error) request.bearerRefusal = error
      else request.bearerToken = request.headers.authorization?.slice('Bearer '.length).trim()
      done()
    })
  })

  app.addHook('preParsing', async function refuse ({ headers, bearerRefusal }, reply) {
    if (bearerRefusal === undefined) return
    if (reply.statusCode !== 401) throw bearerRefusal
    const missing = headers.authorization === undefined
    reply.header('www-authenticate', missing ? 'Bearer' : 'Bearer error="invalid_token"')
    throw unauthorized(missing ? details[401] : unknownToken)
  })

  describeFailure(app, 401, schema => ({ ...schema, ...asksForToken }))

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
}, { fastify: '5.x', name: 'auth' })

function tokensIn (file: string) {
  try {
    return readFileSync(file, 'utf8').split(/[\s,]+/).filter(token => token !== '')
  } catch (error) {
    throw new CannotOpen(`Cannot read the file of tokens: ${(error as Error).message}.`)
  }
}
