import { pipeline, Readable } from 'node:stream'
import { isDeepStrictEqual } from 'node:util'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { httpError } from '../http/errors.js'
import { afterOthers, isLarge } from '../http/json-body.js'
import { accessOf, defaultAdder, fieldRemover, knownFieldsOf, nestedFieldsRemover, recordStream } from '../schema/access.js'
import type { Source } from '../stores/store.js'
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

/** The decorator of a request with an idempotency key: a text that is the same for equal bodies. */
const bodyText = Symbol('body text')

/** Returns a hook that ignores the readOnly fields of a body, and adds defaults to a whole record. */
export function bodyPreparation ({ schema, newSchema }: CheckedDefinition, { textOf }: ReturnType<typeof bodySource>) {
  const removeFields = fieldRemover(schema, 'readOnly')
  const removeNestedFields = nestedFieldsRemover(schema)
  const addDefaults = defaultsOf(newSchema)
  return async function prepareBody (request: FastifyRequest) {
    const { method, body, headers } = request
    const records = Array.isArray(body) ? body : [body]
    if (records.length > maxRecords) return // it is invalid
    if (removeFields) {
      for (const record of records) removeFields(record)
      if (isLarge(request)) await afterOthers()
    }
    if (method === 'POST' && headers['idempotency-key'] !== undefined) {
      for (const record of records) removeNestedFields?.(record)
      request.setDecorator(bodyText, textOf(body))
      if (isLarge(request)) await afterOthers()
    }
    if (addDefaults && method !== 'PATCH') {
      addDefaults(request, ...records)
      if (isLarge(request)) await afterOthers()
    }
  }
}

/**
 * What identifies a request with an idempotency key: the body of the client, whatever later releases add to it, and what hooks
 * change, such as the owner of a record. If the service generates the ids, a retry can have another time, and another secret
 * that a hook makes of one in the body, such as a salted hash. It gets the stored record then.
 */
export function bodySource (app: FastifyInstance, { schema, idSource }: CheckedDefinition) {
  const knownFields = knownFieldsOf(schema)
  const addDefaults = defaultsOf(schema)
  const has = accessOf(schema)
  const fields = idSource === 'server' ? Object.entries(schema.properties) : []
  const times = new Set(fields.filter(([, field]) => ['date', 'time', 'date-time'].some(format => has(field, 'format', format))).map(([name]) => name))
  const secrets = new Set(fields.filter(([, field]) => has(field, 'writeOnly')).map(([name]) => name))
  app.decorateRequest(bodyText)
  return { textOf, sourceOf }

  /** The fields that count, in alphabetical order. */
  function textOf (body: unknown) {
    const sorted = (record: unknown) => Object.fromEntries(Object.entries(knownFields(Object(record))).filter(([name]) => name !== 'id' || idSource === 'client').sort(([one], [other]) => one < other ? -1 : 1))
    return JSON.stringify(Array.isArray(body) ? body.map(sorted) : sorted(body))
  }

  /** The source of new records. */
  function sourceOf (request: FastifyRequest, created: object): Source | undefined {
    const text = request.getDecorator<string | undefined>(bodyText)
    if (text === undefined) return
    const expected: Record<string, unknown>[] = [JSON.parse(text)].flat()
    const sent = expected.map(record => new Set(Object.keys(record)))
    addDefaults?.(request, ...expected)
    const changes = [created].flat().flatMap((record, n) => Object.keys({ ...expected[n], ...record })
      .map(name => ({ n, name, value: Object(record)[name] as unknown }))
      .filter(({ name, value }) => !isDeepStrictEqual(value, expected[n]?.[name])))
    const identifying = changes.filter(({ n, name }) => !times.has(name) && !(secrets.has(name) && sent[n]?.has(name)))
    return { text: identifying.length > 0 ? JSON.stringify([text, identifying]) : text, isChanged: idSource === 'server' && changes.length > 0 }
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
