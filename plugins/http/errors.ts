import { STATUS_CODES } from 'node:http'
import { inspect } from 'node:util'
import createError from '@fastify/error'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import {
  details, ErrorBody, InvalidRequest, Problem, problemsIn, sentenceOf, type ValueProblem
} from '../../schemas/error-body.js'
import { metadata } from '../common/plugin.js'
import { problemsOf, shortened } from './problems.js'
import { noCache } from './responses.js'

/** The parts of a request: their names in Fastify's routes and in our errors. */
export const parts = { body: 'body', params: 'path', querystring: 'query', headers: 'headers' } as const

/** The codes of 503 whose message is for clients. */
const unavailable = ['ERR_STORE_UNAVAILABLE', 'ERR_NO_ID_LEFT', 'ERR_UNAVAILABLE']

/** An error with the properties that Fastify, a host and our stores add. */
interface Thrown extends Omit<FastifyError, 'code'> {
  code?: string
  status?: number
  headers?: Record<string, string>
  problems?: Problem[]
}

/** Our own errors by status. They have no stack traces, which would take 10 % of the time and are not logged. */
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

/** A 400 error for the problems in one part of a request. */
export function invalid (part: Problem['in'], problems: ValueProblem[]): Error & { problems: Problem[] } {
  const error = httpError(400, sentenceOf(`Invalid ${part}`, problems))
  return Object.assign(error, { problems: problemsIn(part, problems) })
}

/** The response body for an error. It contains no details of an internal error. */
export function errorBody (error: Thrown, status: number): ErrorBody & { code?: string, errors?: Problem[] } {
  const { code = '', problems, message } = error
  if (unavailable.includes(code)) return { detail: message }
  if (status === 500) return { detail: details[500] }
  if (status > 500) return { detail: STATUS_CODES[status] ?? details[500] }
  if (status === 413) return { detail: details[413] }
  if (problems) return { detail: message, errors: problems }

  const ofHost = hostCode.test(code) && { code }
  if (status === 400) return { ...hostProblems(error), ...ofHost }
  return { detail: message || String(STATUS_CODES[status]), ...ofHost }
}

/** The codes that are for clients: those of a host, of its plugins (`FST_JWT_…`), and of its validation. */
const hostCode = /^(?!FST_ERR_|ERR_|$)|^FST_ERR_VALIDATION$/

/** The `detail` and the problems of a request that a host has rejected with 400. */
function hostProblems ({ message, validation, validationContext }: Thrown) {
  if (!validation) return { detail: message || 'Bad Request', errors: problemsIn('request', [{ path: '', message }]) }
  const part = parts[validationContext as keyof typeof parts]
  return { detail: message, errors: problemsIn(part, problemsOf(validation as Parameters<typeof problemsOf>[0])) }
}

/**
 * Answers every error with JSON that has a `detail`. The body is sent as a plain object, because Fastify passes an
 * `Error` on to the error handler of the parent scope. With `errorHandler: false`, that is what happens.
 */
export default fp<{ errorHandler?: boolean }>(async function errors (app, { errorHandler = true }) {
  for (const schema of [ErrorBody, Problem, InvalidRequest]) {
    if (!app.getSchema(String(schema.$id))) app.addSchema(schema)
  }

  app.setErrorHandler<unknown>(function onError (thrown, request, reply) {
    const error = errorOf(thrown)
    const status = statusOf(error, reply)
    const body = errorBody(error, status)
    if (!errorHandler) {
      const message = status === 500 ? error.message : body.detail
      return reply.send(Object.assign(error, { statusCode: status, message, errors: body.errors }))
    }
    // The reason of an outage is in the line of the request.
    if (status >= 500 && !unavailable.includes(String(error.code))) {
      request.log.error({ req: request, err: error }, error.message || body.detail)
    }
    setErrorHeaders(reply, status, error)
    sendError(request, reply.code(status), body, error.cause)
  })
}, metadata('errors'))

function setErrorHeaders (reply: FastifyReply, status: number, { headers, problems = [] }: Thrown) {
  if (status === 503) reply.header('retry-after', 1)
  for (const name of ['content-encoding', 'etag']) reply.removeHeader(name) // those of a list that failed
  // Fastify would close the connection. Without this header, Node reads and discards the rest of a body.
  if (status === 413 || problems[0]?.in === 'body') reply.removeHeader('connection')
  reply.headers({ ...headers })
}

function statusOf ({ statusCode, status }: Thrown, reply: FastifyReply) {
  const known = [statusCode, status, reply.statusCode]
  return known.find((status = 0) => status >= 400 && status <= 599) ?? 500
}

/** What was thrown, as an error. A host may throw an object with a `statusCode`; other values are failures. */
function errorOf (thrown: unknown): Thrown {
  // A value has so many levels that a function that follows them has used up the stack.
  if (thrown instanceof RangeError && /call stack/.test(thrown.message)) {
    return invalid('body', [{ path: '', message: 'must not be nested so deeply' }])
  }
  if (thrown instanceof Error) return thrown
  const { statusCode, status = statusCode, message = '' }: Record<string, unknown> = Object(thrown)
  if (typeof status !== 'number') return new Error(`A value that is not an Error was thrown: ${inspect(thrown)}`)
  return Object.assign(new Error(), thrown, { message: String(message) })
}

/** Sends the body of an error with the headers that every error response has, and logs the reason. */
export function sendError (request: FastifyRequest, reply: FastifyReply, body: ErrorBody, cause?: unknown) {
  // Without a log, all requests have the logger of the server.
  if (request.log !== request.server.log) {
    const reason = cause instanceof Error ? `${body.detail}: ${cause.message}` : body.detail
    request.log = reply.log = request.log.child({ reason: shortened(reason, 1000) })
  }
  if (!reply.hasHeader('cache-control')) reply.header('cache-control', noCache)
  return reply.header('x-request-id', request.id).send(body)
}
