import { STATUS_CODES } from 'node:http'
import { finished } from 'node:stream/promises'
import { inspect } from 'node:util'
import createError from '@fastify/error'
import type { ErrorObject } from 'ajv'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { details, ErrorBody, InvalidRequest, Problem } from '../../schemas/errors.js'
import { metadata } from '../plugin.js'
import { problemsOf, shortened } from '../schema/problems.js'
import { noCache } from './responses.js'

/** Status and `detail` of the errors that stores throw. */
const storeErrors: Record<string, { status: number, detail?: string }> = {
  ERR_STORE_UNAVAILABLE: { status: 503, detail: details[503] },
  ERR_NO_ID_LEFT: { status: 503, detail: 'No more ids can be generated' },
  ERR_IDEMPOTENCY_KEY_IN_USE: { status: 409, detail: details[409] },
  ERR_IDEMPOTENCY_KEY_REUSED: { status: 422, detail: details[422] },
  ERR_INVALID_CURSOR: { status: 400 },
  ERR_NOT_STORABLE: { status: 400 },
  ERR_CONFLICT: { status: 409 }
}

/** An error with the properties that Fastify and our stores add. */
interface Thrown extends Omit<FastifyError, 'code'> {
  code?: string
  status?: number
  headers?: Record<string, string>
  problems?: Problem[]
  path?: string
  /** Why the request was rejected, for the log. It contains nothing that the client has sent. */
  reasonOf? (): string
}

/** Our own errors by status. They have no stack traces, which would take 10 % of the time of a response and are not logged. */
const errorClasses = {
  400: errorClass('ERR_INVALID_REQUEST', 400),
  401: errorClass('ERR_UNAUTHORIZED', 401),
  403: errorClass('ERR_CROSS_ORIGIN', 403),
  404: errorClass('ERR_NOT_FOUND', 404),
  412: errorClass('ERR_PRECONDITION_FAILED', 412),
  413: errorClass('FST_ERR_CTP_BODY_TOO_LARGE', 413),
  429: errorClass('ERR_TOO_MANY_REQUESTS', 429),
  503: errorClass('ERR_UNAVAILABLE', 503)
}

/** (The type of `createError` would be in our declarations, and not be found with `moduleResolution: bundler`.) */
function errorClass (code: string, status: number): new (detail: string) => Error {
  return createError(code, '%s', status, Error, false)
}

/** An error that is answered with this status and `detail`. */
export function httpError (status: keyof typeof errorClasses, detail: string = Object(details)[status]): Error {
  return new errorClasses[status](detail)
}

/** Creates a 400 error for the problems in one part of a request. The path is also that for the log, unless there is a `field`. */
export function invalid (part: Problem['in'], problems: (Omit<Problem, 'in'> & { field?: string })[], title = `Invalid ${part}`): Error & { problems: Problem[] } {
  const listed = (nameOf: (problem: typeof problems[0]) => string) => `${title}: ${problems.map(problem => `${nameOf(problem) || 'it'} ${problem.message}`).join(', ')}.`
  return Object.assign(httpError(400, listed(({ path }) => path.slice(1))), {
    problems: problems.map(({ path, message }) => ({ in: part, path, message })),
    reasonOf: () => shortened(listed(({ path, field = path.slice(1) }) => field), 1000)
  })
}

/** The response body for an error. It contains no details of an internal error. */
export function errorBody (error: Thrown, status: number): ErrorBody & { code?: string, errors?: Problem[] } {
  const { code = '', problems, path = '', message } = error
  const detail = storeErrors[code]?.detail
  if (detail) return { detail }
  if (status >= 500) return { detail: code === 'ERR_UNAVAILABLE' ? message : status === 500 ? details[500] : STATUS_CODES[status] ?? details[500] }
  if (status === 413) return { detail: details[413] }
  if (code === 'ERR_INVALID_CURSOR') return errorBody(invalid('query', [{ path: '/after', message: 'must be a cursor from the Link header of a page' }]), status)
  if (code === 'ERR_NOT_STORABLE') return errorBody(invalid(path ? 'body' : 'request', [{ path, message }]), status)
  if (code === 'ERR_CONFLICT') return errorBody(invalid(path ? 'body' : 'request', [{ path, message }], 'Conflict'), status)
  if (problems) return { detail: message, errors: problems }
  const ofHost = hostCode.test(code) && { code }
  if (status === 400) return { ...hostProblems(error), ...ofHost }
  return { detail: message || String(STATUS_CODES[status]), ...ofHost }
}

/** The parts of a request: their names in Fastify's routes and in our errors. */
export const parts = { body: 'body', params: 'path', querystring: 'query', headers: 'headers' } as const

/** The `detail` and the problems of a request that a host has rejected with 400. A message of its `schemaErrorFormatter` stays as it is. */
function hostProblems ({ message, validation, validationContext }: { message: string, validation?: ErrorObject[], validationContext?: string }) {
  if (!validation) return { detail: message || 'Bad Request', errors: [{ in: 'request', path: '', message }] satisfies Problem[] }
  const problems = problemsOf(validation)
  const isOfFastify = message === textOf(validation.map(({ instancePath, message }) => ({ path: instancePath, message })))
  return {
    detail: isOfFastify ? textOf(problems) : message,
    errors: problems.map(({ path, message }) => ({ in: parts[validationContext as keyof typeof parts], path, message }))
  }

  function textOf (problems: { path: string, message?: string }[]) {
    return problems.map(({ path, message }) => `${validationContext}${path} ${message}`).join(', ')
  }
}

/** The codes that are for clients: those of a host, of its plugins (`FST_JWT_…`), and of its validation. The others describe Fastify and our code. */
const hostCode = /^(?!FST_ERR_|ERR_|$)|^FST_ERR_VALIDATION$/

/**
 * Answers every error with JSON that has a `detail`. The body is sent as a plain object, because Fastify passes an
 * `Error` on to the error handler of the parent scope. With `errorHandler: false`, that is what happens.
 */
export default fp<{ errorHandler?: boolean }>(async function errors (app, { errorHandler = true }) {
  for (const schema of [ErrorBody, Problem, InvalidRequest]) if (!app.getSchema(String(schema.$id))) app.addSchema(schema)

  app.setErrorHandler<unknown>(function onError (thrown, request, reply) {
    const error = errorOf(thrown)
    const { code = '', headers, reasonOf = () => code === 'ERR_CONFLICT' ? body.detail : code } = error
    const status = [storeErrors[code]?.status, error.statusCode, error.status, reply.statusCode].find((status = 0) => status >= 400 && status <= 599) ?? 500
    const body = errorBody(error, status)
    if (!errorHandler) return reply.send(Object.assign(error, { statusCode: status }, status !== 500 && { message: body.detail, errors: body.errors }))
    // An outage is logged when it starts and when it ends, not for each request.
    if (status >= 500 && !['ERR_STORE_UNAVAILABLE', 'ERR_UNAVAILABLE'].includes(code)) request.log.error({ req: request, err: error }, error.message || body.detail)
    if (status === 503 || code === 'ERR_IDEMPOTENCY_KEY_IN_USE') reply.header('retry-after', 1)
    for (const name of ['content-encoding', 'etag']) if (reply.hasHeader(name)) reply.removeHeader(name) // those of a list that failed
    // Fastify would close the connection when a body is rejected. We read and discard the rest of the body.
    if (reply.getHeader('connection') === 'close' && !reply.raw.hasHeader('connection')) {
      reply.header('connection', reply.raw.shouldKeepAlive ? 'keep-alive' : 'close')
    }
    sendError(request, reply.headers({ ...headers }), status, body, reasonOf)
  })
}, metadata('errors'))

/** What was thrown, as an error. A host may throw an object with a `statusCode`, as @fastify/rate-limit does; other values are failures. */
function errorOf (thrown: unknown): Thrown {
  if (thrown instanceof Error) return thrown
  const { statusCode, status = statusCode, message = '' }: Record<string, unknown> = Object(thrown)
  if (typeof status !== 'number') return new Error(`A value that is not an Error was thrown: ${inspect(thrown)}`)
  return Object.assign(new Error(), thrown, { message: String(message) })
}

/** Sends the body of an error with the headers that every error response has. The line of the request in the log has the reason. */
export function sendError (request: FastifyRequest, reply: FastifyReply, status: number, body: ErrorBody, reasonOf = () => body.detail) {
  // Without a log, all requests have the logger of the server.
  if (request.log !== request.server.log) request.log = reply.log = request.log.child({ reason: reasonOf() || undefined })
  if (!reply.hasHeader('cache-control')) reply.header('cache-control', noCache)
  reply.code(status).header('x-request-id', request.id)
  if (!interruptsClient(request, reply)) return reply.send(body)
  // Waits up to five seconds for the end of the request.
  return finished(request.raw.resume(), { signal: AbortSignal.timeout(5000) }).catch(() => {}).then(() => { reply.send(body) })
}

/** Returns whether the response would close the connection while the client is sending, so that it might be lost. */
function interruptsClient ({ raw, headers }: FastifyRequest, reply: FastifyReply) {
  const waitsForContinue = headers.expect !== undefined && raw.readableFlowing === null
  if (raw.complete || waitsForContinue) return false
  return reply.getHeader('connection') === 'close' || !reply.raw.shouldKeepAlive
}
