import { pipeline, Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { afterOthers, isLarge } from '../http/json-body.js'
import { defaultAdder, fieldRemover, recordStream } from '../schema/access.js'
import { maxRecords, type CheckedDefinition } from './definition.js'

/** Returns a hook that ignores the readOnly fields of a body, and adds defaults to a whole record. Most collections need none. */
export function bodyPreparation ({ schema, newSchema }: CheckedDefinition) {
  const removeFields = fieldRemover(schema, 'readOnly')
  const addDefaults = defaultAdder(newSchema)
  if (!removeFields && !addDefaults) return
  return function prepareBody (request: FastifyRequest, _reply: FastifyReply, done: () => void) {
    const { method, body } = request
    for (const record of Array.isArray(body) ? body.slice(0, maxRecords) : [body]) {
      removeFields?.(record)
      if (method !== 'PATCH') addDefaults?.(record)
    }
    if (isLarge(request)) afterOthers().then(done)
    else done()
  }
}

/** Returns a handler whose responses have no writeOnly fields. The ETags are those of the whole records. */
export function hidingHandler (handler: RouteHandlerMethod, { schema }: CheckedDefinition): RouteHandlerMethod {
  const removeFields = fieldRemover(schema, 'writeOnly')
  if (!removeFields) return handler
  return async function hideFields (request, reply) {
    const body = await handler.call(this, request, reply)
    if (typeof body === 'string' || Buffer.isBuffer(body)) {
      const value = JSON.parse(String(body))
      for (const record of [value].flat()) removeFields(record)
      return JSON.stringify(value)
    }
    // The list of a HEAD request is closed already.
    return body instanceof Readable && request.method !== 'HEAD' ? pipeline(body, recordStream(removeFields), () => {}) : body
  }
}
