import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { cannotCreateMany } from '../host-stores.js'
import { httpError, invalid } from '../http/errors.js'
import { checkPreconditions, etagOf, hasPreconditions, isNotModified, listEtag, sendNotModified } from '../http/etags.js'
import { afterOthers, isLarge, isLargerThan } from '../http/json-body.js'
import { cacheHeaders, setHeaders } from '../http/responses.js'
import { fieldVisitor, knownFieldsOf, nestedFieldsRemover, readOnlyKeeper } from '../schema/access.js'
import type { Problem } from '../schema/problems.js'
import { checkerOf, problemsOfEach } from '../schema/validation.js'
import { inPlace } from '../schema/walk.js'
import { hasId, type HasId, type MaybePromise, type NewRecord, type Store } from '../stores/store.js'
import { defaultsOf } from './access.js'
import type { CheckedDefinition } from './definition.js'
import { sendList } from './pagination.js'
import { changeInSteps, type Steps } from './steps.js'

/** The headers of a POST. The document has their usual names; in a request, the names are in lower case. */
export const CreationHeaders = Type.Object({
  'Idempotency-Key': Type.Optional(Type.String({
    pattern: '^[!-~]{1,255}$',
    description: '1 to 255 visible ASCII characters that identify the request; a retry with the same key within 24 hours creates nothing',
    examples: ['6f1c2b9e-0d5a-4e0f-9a53-3c1d7f2a8b46']
  }))
})

/** Returns the handlers of the operations of a collection. Each request has its store. */
export function handlersOf (storeOf: (request: FastifyRequest) => Store<HasId>, { name, schema, responseSchema, idSource, idParameter, queried }: CheckedDefinition) {
  const problemsIn = checkerOf(schema)
  const knownFields = knownFieldsOf(schema)
  const removeNestedFields = nestedFieldsRemover(schema)
  const addDefaults = defaultsOf(schema)
  const keepReadOnly = readOnlyKeeper(schema)
  const { $defs, definitions } = schema
  const keepNull = fieldVisitor(schema, (_property, isRequired) => isRequired, ({ object, name, property, other }) => {
    if (other[name] === null && !checkerOf({ ...property, $defs, definitions })(null)) object[name] = null
  }, inPlace.filter(keyword => keyword !== 'if' && keyword !== 'dependentSchemas')) // conditions require nothing
  /** What an ETag contains besides the stored records, because the fields that responses do not have can change with a release. */
  const view = responseSchema === schema ? '' : etagOf(JSON.stringify(responseSchema)).slice(1, 9)
  const idOf = ({ params }: FastifyRequest) => (params as Record<string, number>)[idParameter] as number

  return {
    list (request: FastifyRequest, reply: FastifyReply) {
      return sendList(request, reply, storeOf(request), view, queried.length > 0)
    },

    /** Sends a record, a 304 if the client has it already, or a 404. */
    get (request: FastifyRequest, reply: FastifyReply) {
      const found = storeOf(request).first(idOf(request))
      return typeof found === 'object' && found ? found.then(record => sendRecord(request, reply, view, record)) : sendRecord(request, reply, view, found)
    },

    /** Creates a record and sends it. Requests with the same idempotency key create it once. */
    async create (request: FastifyRequest, reply: FastifyReply) {
      const record = newRecord(request.body as HasId)
      const json = await create(request, reply, record, (store, key) => store.append(record, key))
      reply.header('location', recordUrl(request, hasId(record) ? record.id : idIn(json)))
      return json
    },

    /** Creates all records of an array or none, and sends them. */
    createMany (request: FastifyRequest, reply: FastifyReply) {
      const records = (request.body as HasId[]).map(newRecord)
      return create(request, reply, records, (store, key) => store.appendAll ? store.appendAll(records, key) : cannotCreateMany(name))
    },

    /** The body is the whole record. Its id can be left out, and its readOnly fields stay as they are. */
    replace (request: FastifyRequest, reply: FastifyReply) {
      return changeFirst(request, reply, (body, id) => {
        const record = withIdOfPath(knownFields({ id, ...body }), id)
        return function * replaceBy (current) {
          if (!keepReadOnly) return addDefaults ? checkSize(request, record) : record
          yield
          const replaced = keepReadOnly(structuredClone(record), JSON.parse(current))
          addDefaults?.(request, replaced)
          return yield * checked(request, replaced, id)
        }
      })
    },

    /** The body is a JSON Merge Patch (RFC 7396). Its null removes a field, unless the field is required and can be null. */
    update (request: FastifyRequest, reply: FastifyReply) {
      return changeFirst(request, reply, (patch, id) => function * mergeInto (current) {
        yield
        const record = JSON.parse(current)
        yield
        const merged = merge(record, patch)
        keepNull?.(merged, patch)
        return yield * checked(request, merged, id)
      })
    },

    async delete (request: FastifyRequest, reply: FastifyReply) {
      const removed = await storeOf(request).change(idOf(request), current => checkRecord(request, current + view))
      if (!removed) throw httpError(404)
      setHeaders(request, reply, cacheHeaders)
      return reply.code(204).send(undefined)
    }
  }

  /** The record to create: the known fields of a body, without its id if the service generates it. */
  function newRecord (body: HasId): NewRecord<HasId> {
    const known = knownFields(body)
    const { id, ...fields } = known
    return idSource === 'server' ? fields : known
  }

  /** Sends the JSON of what is created: a record, or an array of records. */
  async function create (request: FastifyRequest, reply: FastifyReply, created: object, append: (store: Store<HasId>, key?: string) => MaybePromise<string>) {
    const store = storeOf(request)
    const isMany = Array.isArray(created)
    if (isLarge(request)) await afterOthers()
    // A hook, a default or the store of a host sets readOnly fields.
    if (keepReadOnly) addDefaults?.(request, ...[created].flat())
    const problemsOf = keepReadOnly && store.schema ? (record: unknown) => problemsIn({ id: 1, ...Object(record) }) : problemsIn.ofNumbers
    refuseIf(isMany ? problemsOfEach(created, problemsOf) : problemsOf(created))
    if (isLarge(request)) await afterOthers()
    // A POST changes the list, so its preconditions are about the list.
    if (hasPreconditions(request)) checkPreconditions(request, listEtag(view, await store.version?.()))
    if (addDefaults) checkSize(request, created) // a nested array can have many of them
    const json = await append(store, request.headers['idempotency-key'] as string | undefined)
    setHeaders(request, reply)
    reply.code(201)
    return json
  }

  /** Replaces the first record with this id, if it meets the preconditions of the request, and sends the new one with its ETag. */
  async function changeFirst (request: FastifyRequest, reply: FastifyReply, changeOf: (body: object, id: number) => (current: string) => Steps) {
    const id = idOf(request)
    if (!Number.isSafeInteger(id)) throw httpError(404)
    if (!isObject(request.body)) throw invalid('body', [{ path: '', message: 'must be an object' }])
    const stepsOf = changeOf(request.body, id)
    if (isLarge(request)) await afterOthers()
    refuseIf(problemsIn.ofNumbers(request.body))
    if (isLarge(request)) await afterOthers()
    const json = await changeInSteps(storeOf(request), id, function * steps (current) {
      checkRecord(request, current + view)
      return yield * stepsOf(current)
    })
    if (!json) throw httpError(404)
    setHeaders(request, reply)
    reply.header('etag', etagOf(json + view))
    return json
  }

  function * checked (request: FastifyRequest, record: unknown, id: number): Steps {
    yield
    removeNestedFields?.(record)
    refuseIf(problemsIn.bySchema(record))
    yield
    refuseIf(problemsIn.ofNumbers(record))
    return checkSize(request, knownFields(withIdOfPath(record as HasId, id)))
  }
}

function refuseIf (problems?: Problem[]) {
  if (problems) throw invalid('body', problems)
}

/** Throws if a record does not meet the preconditions of the request. */
function checkRecord (request: FastifyRequest, current: string) {
  if (hasPreconditions(request)) checkPreconditions(request, etagOf(current))
  return undefined
}

function withIdOfPath<R extends HasId> (record: R, id: number) {
  if (record.id !== id) throw invalid('body', [{ path: '/id', message: 'must be the id in the path' }])
  return record
}

/** Returns a record that is not larger than a request can be, however many changes have added to it. */
function checkSize<T> ({ routeOptions }: FastifyRequest, record: T) {
  if (isLargerThan(routeOptions.bodyLimit, record)) throw httpError(413)
  return record
}

/** The id of a record in JSON, which most begin with. */
function idIn (json: string): number {
  const [, id = JSON.parse(json).id] = /^{"id":(-?\d+)[,}]/.exec(json) ?? []
  return id
}

function sendRecord (request: FastifyRequest, reply: FastifyReply, view: string, record?: string | null) {
  if (record === undefined || record === null) throw httpError(404)
  if (isNotModified(request, reply, etagOf(record + view))) return sendNotModified(request, reply)
  setHeaders(request, reply)
  return record
}

/**
 * The URL of a record of the collection, relative to the URL of the request, so that it also works behind a proxy that
 * strips a path prefix. (Without `./`, a segment such as `a:b` or `\\\\host` would lead elsewhere.)
 */
function recordUrl ({ originalUrl }: FastifyRequest, id: number) {
  const path = originalUrl.slice(0, originalUrl.search(/[?#]|$/))
  const collection = path.slice(path.lastIndexOf('/') + 1)
  return collection === '' ? `./${id}` : `./${collection}/${id}`
}

/** Changes a value as a patch says, and returns it. */
function merge (target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch
  const merged = isObject(target) ? target : {}
  for (const name of Object.keys(patch)) { // `Object.entries` takes twice as long
    const value = patch[name]
    if (value === null) delete merged[name]
    else merged[name] = merge(merged[name], value)
  }
  return merged
}

function isObject (value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
