import { pipeline, Readable } from 'node:stream'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { httpError } from '../http/errors.js'
import { afterOthers, isLarge } from '../http/json-body.js'
import { defaultAdder, fieldRemover, knownFieldsOf, nestedFieldsRemover, recordStream } from '../schema/access.js'
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
      request.setDecorator(bodyText, textOf(body))
      if (isLarge(request)) await afterOthers()
    }
    if (addDefaults && method !== 'PATCH') {
      addDefaults(request, ...records)
      if (isLarge(request)) await afterOthers()
    }
  }
}

/** What identifies the body of a request with an idempotency key, whatever hooks and later releases make of it. */
export function bodySource (app: FastifyInstance, { schema, idSource }: CheckedDefinition) {
  const knownFields = knownFieldsOf(schema)
  const addDefaults = defaultsOf(schema)
  const removeNestedFields = nestedFieldsRemover(schema)
  app.decorateRequest(bodyText)
  return { textOf, sourceOf }

  /** The fields that count, in alphabetical order. */
  function textOf (body: unknown) {
    const entriesOf = (record: unknown) => Object.entries(knownFields(Object(record))).filter(([name]) => name !== 'id' || idSource === 'client').sort(([one], [other]) => one < other ? -1 : 1)
    return JSON.stringify(Array.isArray(body) ? body.map(entriesOf) : entriesOf(body))
  }

  /** The source of new records, and whether hooks have changed them. */
  function sourceOf (request: FastifyRequest, created: object): Source | undefined {
    const text = request.getDecorator<string | undefined>(bodyText)
    if (text === undefined) return
    if (!addDefaults && !removeNestedFields) return { text, isChanged: textOf(created) !== text }
    const isMany = Array.isArray(created)
    const expected = [isMany ? JSON.parse(text).map(Object.fromEntries) : Object.fromEntries(JSON.parse(text))].flat()
    addDefaults?.(request, ...expected)
    for (const record of expected) removeNestedFields?.(record)
    return { text, isChanged: textOf(created) !== textOf(isMany ? expected : expected[0]) }
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
