import { Type, type TSchema } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { httpError, invalid } from '../http/errors.js'
import { checkIfMatch, etagOf, sendWithEtag, weakEtagOf } from '../http/etags.js'
import { cacheHeaders, setHeaders, varyByCoding } from '../http/responses.js'
import { digestOf } from '../stores/collection.js'
import type { Fields, Id, IdempotencyKey, JsonStore, SummaryQuery } from '../stores/store.js'
import type { CheckedDefinition } from './definition.js'
import { recordRules } from './record-rules.js'
import { hasExpand, type RelatedRecords } from './related-records.js'
import { sendList } from './send-list.js'

/** The headers of a POST. The document has their usual names; in a request, the names are in lower case. */
export const CreationHeaders = Type.Object({
  'Idempotency-Key': Type.Optional(Type.String({
    pattern: '^[!-~]{1,255}$',
    description: '1 to 255 visible ASCII characters that identify the request; ' +
      'a retry with the same key within 24 hours creates nothing'
  }))
})

type StoreOf = (request: FastifyRequest) => JsonStore
type Changed = (current: Fields, body: Fields) => Fields

/** Returns the handlers of the operations of a collection. Each request has its store. */
export function handlersOf (storeOf: StoreOf, definition: CheckedDefinition, expanded: RelatedRecords) {
  const { schema, idSource, idParameter, ignoreUnknownParameters, readOnly } = definition
  const { checkNew, checkChanged } = recordRules(schema)
  const idOf = ({ params }: FastifyRequest) => (params as Record<string, Id>)[idParameter] as Id

  return {
    list (request: FastifyRequest, reply: FastifyReply) {
      return sendList(request, reply, { store: storeOf(request), hasFilters: !ignoreUnknownParameters, expanded })
    },

    /** Sends a record, a 304 if the client has it already, or a 404. */
    async get (request: FastifyRequest, reply: FastifyReply) {
      const record = await storeOf(request).first(idOf(request))
      if (!record) throw httpError(404)
      if (!hasExpand(request)) return sendWithEtag(request, reply, record, etagOf(record))
      // Related records are not a part of this version of the record.
      const json = await expanded(request, record)
      return sendWithEtag(request, reply, json, weakEtagOf(json))
    },

    /** Sends what is computed of the records that meet the conditions. */
    async summary (request: FastifyRequest, reply: FastifyReply) {
      const { count, sum, min, max, group, ...where } = request.query as SummaryQuery
      const { summarize = notSupported } = storeOf(request)
      const json = await summarize({ count, sum, min, max, group, where })
      varyByCoding(reply)
      return sendWithEtag(request, reply, json, weakEtagOf(json))
    },

    /** Creates a record and sends it. Requests with the same idempotency key create it once. */
    async create (request: FastifyRequest, reply: FastifyReply) {
      const record = completed(request.body as Fields)
      const json = await storeOf(request).append(record, keyOf(request))
      const { id } = idSource === 'client' ? record : JSON.parse(json)
      setHeaders(request, reply)
      reply.code(201).header('location', recordUrl(request, id))
      return json
    },

    /** Creates all records of an array or none, and sends them. */
    async createMany (request: FastifyRequest, reply: FastifyReply) {
      const json = await storeOf(request).append(completed(request.body as Fields[]), keyOf(request))
      setHeaders(request, reply)
      reply.code(201)
      return json
    },

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

  /** Hooks set readOnly fields after the body is validated, so the complete record is validated again. */
  function completed<T extends object> (body: T): T {
    return readOnly.length > 0 ? checkNew(body) : body
  }

  /** Replaces the first record with the id in the path, and sends the new one with its ETag. */
  async function changeFirst (request: FastifyRequest, reply: FastifyReply, changed: Changed) {
    const { body } = request
    if (!isObject(body)) throw invalid('body', [{ path: '', message: 'must be an object' }])
    const id = idOf(request)
    const json = await storeOf(request).change(id, function change (current, currentJson) {
      checkIfMatch(request, currentJson)
      const record = checkChanged(current, changed(current, body))
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

function notSupported (): never {
  throw new Error('The store of the collection has no summaries')
}

/** The digest of the body of a request with an idempotency key. */
export const requestDigest = Symbol('digest of the body')

/** Identifies a request by its body as it was parsed, because defaults and hooks of a host may change it. */
export function digestOfBody (request: FastifyRequest, _reply: FastifyReply, done: () => void) {
  const hasKey = request.headers['idempotency-key'] !== undefined && request.body !== undefined
  if (hasKey) request.setDecorator(requestDigest, digestOf(JSON.stringify(request.body)))
  done()
}

/** The idempotency key of a request and the digest of its body. */
function keyOf (request: FastifyRequest): IdempotencyKey | undefined {
  const key = request.headers['idempotency-key'] as string | undefined
  return key === undefined ? undefined : { key, digest: request.getDecorator<string>(requestDigest) }
}

/** A record is not larger than a body can be, however many changes have added to it. */
function checkSize ({ routeOptions }: FastifyRequest, record: Fields) {
  if (Buffer.byteLength(JSON.stringify(record)) > routeOptions.bodyLimit) throw httpError(413)
}

/**
 * The URL of a record of the collection, relative to the URL of the request, so that it also works behind a proxy that
 * strips a path prefix. (Without `./`, a segment such as `a:b` or `\\\\host` would lead elsewhere.)
 */
function recordUrl ({ originalUrl }: FastifyRequest, id: unknown) {
  const path = originalUrl.slice(0, originalUrl.search(/[?#]|$/))
  const collection = path.slice(path.lastIndexOf('/') + 1)
  const segment = encodeURIComponent(String(id))
  return collection === '' ? `./${segment}` : `./${collection}/${segment}`
}

/** An object with the changes of a patch. Null removes a field, unless the field is required and can be null. */
function merged (target: unknown, patch: Fields, schema: TSchema | undefined): Fields {
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

function isObject (value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
