import type { TSchema } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { httpError, invalid } from '../http/errors.js'
import { checkIfMatch, etagOf } from '../http/etags.js'
import { cacheHeaders, setHeaders } from '../http/responses.js'
import type { AnyRecord } from '../stores/store.js'
import type { Access } from './handlers.js'

type NewRecord = (current: AnyRecord, body: AnyRecord) => AnyRecord

/** Returns the handlers of the operations that change or delete a record. */
export function changingHandlers ({ definition, rules, storeOf, idOf }: Access) {
  const { schema, readOnly } = definition

  return {
    /** The body is the whole record. Its id can be left out, and its readOnly fields stay as they are. */
    replace (request: FastifyRequest, reply: FastifyReply) {
      return changeFirst(request, reply, function replaced (current, body) {
        const kept = readOnly.filter(name => name in current).map(name => [name, current[name]])
        return { id: current.id, ...Object.fromEntries(kept), ...body }
      })
    },

    /** The body is a JSON Merge Patch (RFC 7396). */
    update (request: FastifyRequest, reply: FastifyReply) {
      return changeFirst(request, reply, (current, patch) => merged(current, patch, schema))
    },

    async delete (request: FastifyRequest, reply: FastifyReply) {
      const removed = await storeOf(request).change(idOf(request), function remove (_current, json) {
        checkIfMatch(request, json)
        return undefined
      })
      if (!removed) throw httpError(404)
      setHeaders(request, reply, cacheHeaders)
      return reply.code(204).send()
    }
  }

  /** Replaces the first record with the id in the path, and sends the new one with its ETag. */
  async function changeFirst (request: FastifyRequest, reply: FastifyReply, newRecord: NewRecord) {
    const { body } = request
    if (!isObject(body)) throw invalid('body', [{ path: '', message: 'must be an object' }])
    const id = idOf(request)
    const json = await storeOf(request).change(id, function change (current, currentJson) {
      checkIfMatch(request, currentJson)
      const record = rules.checkChanged(current, newRecord(current, body))
      if (record.id !== id) throw invalid('body', [{ path: '/id', message: 'must be the id in the path' }])
      checkSize(request, record)
      return record
    })
    if (!json) throw httpError(404)
    setHeaders(request, reply)
    reply.header('etag', etagOf(json))
    return json
  }
}

/** A record is not larger than a body can be, however many changes have added to it. */
function checkSize ({ routeOptions }: FastifyRequest, record: AnyRecord) {
  if (Buffer.byteLength(JSON.stringify(record)) > routeOptions.bodyLimit) throw httpError(413)
}

/** An object with the changes of a patch. Null removes a field, unless the field is required and can be null. */
function merged (target: unknown, patch: AnyRecord, schema: TSchema | undefined): AnyRecord {
  const result = isObject(target) ? { ...target } : {}
  for (const [name, value] of Object.entries(patch)) {
    const field: TSchema | undefined = schema?.properties?.[name]
    const isKept = schema?.required?.includes(name) && canBeNull(field)
    if (isObject(value)) result[name] = merged(result[name], value, field)
    else if (value !== null || isKept) result[name] = value
    else delete result[name]
  }
  return result
}

function canBeNull (schema?: TSchema): boolean {
  const { type, const: value, enum: values = [value], anyOf = [], oneOf = anyOf } = { ...schema }
  return [type].flat().includes('null') || values.includes(null) || schema?.nullable === true || oneOf.some(canBeNull)
}

function isObject (value: unknown): value is AnyRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
