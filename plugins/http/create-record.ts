import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { checkPreconditions, hasPreconditions, listEtag } from './etags.js'
import { recordUrl } from './paths.js'
import { setHeaders } from './responses.js'
import { hasId, type HasId, type NewRecord, type Store } from '../stores/store.js'

/** The headers of a POST. The document has their usual names; in a request, the names are in lower case. */
export const CreationHeaders = Type.Unsafe<{ 'idempotency-key'?: string }>(Type.Object({
  'Idempotency-Key': Type.Optional(Type.String({
    pattern: '^[!-~]{1,255}$',
    description: '1 to 255 visible ASCII characters that identify the request; a retry with the same key within 24 hours creates nothing',
    examples: ['6f1c2b9e-0d5a-4e0f-9a53-3c1d7f2a8b46']
  }))
}))

/** Who chooses the id of a record, for the OpenAPI document. */
export const idSources = {
  client: 'The client chooses the id. It need not be unique.',
  server: 'The service generates a unique id. An id in the body is ignored.'
}

/** Creates a record and sends it. Requests with the same idempotency key create it once. */
export async function create<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, record: NewRecord<T>, key?: string
) {
  // A POST changes the list, so its preconditions are about the list.
  if (hasPreconditions(request)) checkPreconditions(request, listEtag(await store.version?.()))
  const json = await store.append(record, key)
  const { id }: HasId = hasId(record) ? record : JSON.parse(json)
  setHeaders(request, reply)
  reply.code(201).header('location', recordUrl(request, id))
  return json
}
