import { STATUS_CODES } from 'node:http'
import { finished } from 'node:stream/promises'
import fp from 'fastify-plugin'
import { details, ErrorBody, Fault, InvalidBody } from '../schemas/http.js'

/** Whatever was thrown, with the status that answers it. */
type Thrown = Error & { statusCode?: number }

/** A request that is not served, and why; `faults` make it a 400. */
class Refusal extends Error {
  constructor (readonly statusCode: number, detail: string, readonly faults?: Fault[]) {
    super(detail)
  }
}

export const notFound = () => new Refusal(404, details[404])

/** Refuses a request for what is wrong in one part of it. */
export function invalid (part: Fault['in'], faults: Omit<Fault, 'in'>[]) {
  const reasons = faults.map(({ path, message }) => `${path.slice(1) || 'it'} ${message}`)
  return new Refusal(400, `Invalid ${part}: ${reasons.join(', ')}.`, faults.map(fault => ({ in: part, ...fault })))
}

/** The body that answers a failed request. Of a failure of our own it tells nothing. */
export function errorBody (error: Thrown, status: number) {
  if (status === 500) return { detail: details[500] }
  if (status > 500) return { detail: STATUS_CODES[status] ?? details[500] }
  if (status === 413) return { detail: details[413] }
  if (status !== 400) return { detail: error.message }
  const { message, faults } = error instanceof Refusal
    ? error
    : invalid('request', [{ path: '', message: error.message }])
  return { detail: message, errors: faults }
}

/**
 * Answers every error as JSON with a `detail`. The body is sent as a plain object: an `Error` would be handed
 * on to the error handler of the surrounding app.
 */
export default fp(async function errors (app) {
  for (const schema of [ErrorBody, Fault, InvalidBody]) app.addSchema(schema)

  app.setErrorHandler<Thrown>(async function onError (error, request, reply) {
    const status = [error.statusCode, reply.statusCode].find(isFailure) ?? 500
    if (status >= 500) request.log.error({ err: error }, error.message)
    // Closing on a client that is still sending would reset the connection, and the answer would be lost.
    if (status === 413) await finished(request.raw.resume()).catch(() => {})
    return reply.code(status).send(errorBody(error, status))
  })
}, { fastify: '5.x', name: 'errors' })

function isFailure (status = 0) {
  return status >= 400 && status <= 599
}
