import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { pathOf } from './paths.js'
import { setHeaders } from './responses.js'
import { hasId, type HasId, type NewRecord, type Store } from '../stores/store.js'

/** The headers that a POST may have. */
export const CreationHeaders = Type.Object({
  'idempotency-key': Type.Optional(Type.String({
    pattern: '^[!-~]{1,255}$',
    description: '1 to 255 visible ASCII characters that stand for this request; sent again within 24 hours, it is answered again and not done again'
  }))
})

/** Who gives a record its id, as the document says it. */
export const idSources = {
  client: 'The client chooses the id, which need not be unique.',
  server: 'The service gives the id, which is unique; one that is sent is ignored.'
}

/** Creates a record, once for all requests with the same idempotency key, and answers with it. */
export async function create<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, record: NewRecord<T>, key?: string
) {
  const json = await store.append(record, key)
  const { id }: HasId = hasId(record) ? record : JSON.parse(json)
  setHeaders(request, reply)
  reply.code(201).header('location', `${pathOf(request)}/${id}`)
  return json
}
