import { STATUS_CODES, type IncomingMessage } from 'node:http'
import { finished } from 'node:stream/promises'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema } from 'fastify'
import fp from 'fastify-plugin'
import { details, ErrorBody, failures, Fault, InvalidRequest, overloaded } from '../../schemas/http.js'
import { Unavailable, Unstorable } from '../stores/store.js'

/** Whatever was thrown, with the status that answers it. */
type Thrown = Error & { statusCode?: number }

/** A request that is not served, and why; `faults` make it a 400. */
class Refusal extends Error {
  constructor (readonly statusCode: number, detail: string, readonly faults?: Fault[]) {
    // It is the client's doing: nobody reads the stack, which takes a tenth of the time to refuse a request.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(detail)
    Error.stackTraceLimit = stackTraceLimit
  }
}

export const notFound = () => new Refusal(404, details[404])

export const tooManyRequests = () => new Refusal(429, details[429])

export const unauthorized = (detail: string) => new Refusal(401, detail)

/** There is more to do than can be done, and to write of it would be more still. */
export class Overload extends Unavailable {
  constructor () {
    super(undefined, overloaded)
  }
}

/** Hands on what was found, at once where it is at hand, or refuses. */
export function orNotFound<T> (found: T | undefined | Promise<T | undefined>): T | Promise<T> {
  if (found instanceof Promise) return found.then(orNotFound)
  if (found === undefined) throw notFound()
  return found
}

/** Refuses a request for what is wrong in one part of it. */
export function invalid (part: Fault['in'], faults: Omit<Fault, 'in'>[]) {
  const reasons = faults.map(({ path, message }) => `${path.slice(1) || 'it'} ${message}`)
  return new Refusal(400, `Invalid ${part}: ${reasons.join(', ')}.`, faults.map(fault => ({ in: part, ...fault })))
}

/** The body that answers a failed request. Of a failure of our own it tells nothing. */
export function errorBody (error: Thrown, status: number) {
  if (error instanceof Unavailable) return { detail: error.message }
  if (status === 500) return { detail: details[500] }
  if (status > 500) return { detail: STATUS_CODES[status] ?? details[500] }
  if (status === 413) return { detail: details[413] }
  if (status !== 400) return { detail: error.message || STATUS_CODES[status] }
  const { message, faults } = error instanceof Refusal ? error : refusal(error)
  return { detail: message, errors: faults }
}

function refusal (error: Thrown) {
  const { message } = error
  return error instanceof Unstorable ? invalid('body', [{ path: error.path, message }]) : invalid('request', [{ path: '', message }])
}

/**
 * Answers every error as JSON with a `detail`. The body is sent as a plain object: an `Error` would be handed
 * on to the error handler of the surrounding app.
 */
export default fp(async function errors (app) {
  for (const schema of [ErrorBody, Fault, InvalidRequest]) app.addSchema(schema)

  app.setErrorHandler<Thrown>(function onError (error, request, reply) {
    const status = [error.statusCode, reply.statusCode].find(isFailure) ?? 500
    if (status >= 500 && !(error instanceof Overload)) {
      const level = error instanceof Unavailable ? 'warn' : 'error'
      request.log[level]({ method: request.method, url: request.url, err: error }, error.message)
    }
    if (error instanceof Unavailable) reply.header('retry-after', 1)
    // Fastify means to close the connection for the sake of what is still to come. To close on a client that is
    // sending would reset it, and the answer would be lost; so the rest is read, and for a client that wants to be
    // closed on, it is read first. (Where the app itself closes, the raw response says so.)
    if (!reply.raw.hasHeader('connection')) reply.removeHeader('connection')
    const answer = () => { reply.code(status).send(errorBody(error, status)) }
    if (status === 413 && !reply.raw.shouldKeepAlive) return restOf(request.raw).then(answer)
    answer()
  })
}, { fastify: '5.x', name: 'fastify-items-users/errors' })

/** Has the document say of our routes what else they can answer, and more; those of a host are its own to describe. */
export function describeFailure (app: FastifyInstance, status: 401 | 429, more: (schema: RouteSchema) => FastifySchema) {
  app.addHook('onRoute', function describe (route) {
    const { schema } = route
    if (isOurs(schema)) route.schema = more({ ...schema, response: { ...schema.response, [status]: failures[status] } })
  })
}

/** The schema of a route of ours, which is known by the error that every one of them can answer. */
export interface RouteSchema extends FastifySchema {
  response: Record<string, TSchema>
}

function isOurs (schema: FastifySchema = {}): schema is RouteSchema {
  return (schema as Partial<RouteSchema>).response?.[500] === failures[500]
}

/** Waits for the end of a request, but not for long. */
async function restOf (request: IncomingMessage) {
  await finished(request.resume(), { signal: AbortSignal.timeout(5000) }).catch(() => {})
}

function isFailure (status = 0) {
  return status >= 400 && status <= 599
}
