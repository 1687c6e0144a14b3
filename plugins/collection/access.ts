import { pipeline, Readable } from 'node:stream'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyRequest, RouteHandlerMethod } from 'fastify'
import { httpError } from '../http/errors.js'
import { afterOthers, isLarge } from '../http/json-body.js'
import { defaultAdder, fieldRemover, recordStream } from '../schema/access.js'
import { maxRecords, type CheckedDefinition } from './definition.js'

/** Returns a function that adds the defaults to the records of a request, if the schema has some. They are not larger than a body can be. */
export function defaultsOf (schema: TSchema) {
  const add = defaultAdder(schema)
  return add && function addDefaults ({ routeOptions }: FastifyRequest, ...records: unknown[]) {
    try {
      add(records, routeOptions.bodyLimit)
    } catch { // only if they are too large
      throw httpError(413)
    }
  }
}

/** Returns a hook that ignores the readOnly fields of a body, and adds defaults to a whole record. Most collections need none. */
export function bodyPreparation ({ schema, newSchema }: CheckedDefinition) {
  const removeFields = fieldRemover(schema, 'readOnly')
  const addDefaults = defaultsOf(newSchema)
  if (!removeFields && !addDefaults) return
  return async function prepareBody (request: FastifyRequest) {
    const { method, body } = request
    const records = Array.isArray(body) ? body : [body]
    if (records.length > maxRecords) return // it is invalid
    for (const record of records) removeFields?.(record)
    if (method !== 'PATCH') addDefaults?.(request, ...records)
    if (isLarge(request)) await afterOthers()
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
