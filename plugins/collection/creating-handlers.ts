import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { setHeaders } from '../http/responses.js'
import { digestOf } from '../stores/collection.js'
import type { AnyRecord, IdempotencyKey } from '../stores/store.js'
import type { Access } from './handlers.js'

/** The headers of a POST. The document has their usual names; in a request, the names are in lower case. */
export const CreationHeaders = Type.Object({
  'Idempotency-Key': Type.Optional(Type.String({
    pattern: '^[!-~]{1,255}$',
    description: '1 to 255 visible ASCII characters that identify the request; ' +
      'a retry with the same key within 24 hours creates nothing'
  }))
})

/** Returns the handlers of the operations that create records. Requests with the same key create them once. */
export function creatingHandlers ({ definition, rules, storeOf }: Access) {
  const { idSource, readOnly } = definition

  return {
    /** Creates a record and sends it. */
    async create (request: FastifyRequest, reply: FastifyReply) {
      const record = completed(request.body as AnyRecord)
      const json = await storeOf(request).append(record, keyOf(request))
      const { id } = idSource === 'client' ? record : JSON.parse(json)
      setHeaders(request, reply)
      reply.code(201).header('location', recordUrl(request, id))
      return json
    },

    /** Creates all records of an array or none, and sends them. */
    async createMany (request: FastifyRequest, reply: FastifyReply) {
      const json = await storeOf(request).append(completed(request.body as AnyRecord[]), keyOf(request))
      setHeaders(request, reply)
      reply.code(201)
      return json
    }
  }

  /** Hooks set readOnly fields after the body is validated, so the complete record is validated again. */
  function completed<T extends object> (body: T): T {
    return readOnly.length > 0 ? rules.checkNew(body) : body
  }
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
