import { Type } from '@sinclair/typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { pathOf } from './paths.js'
import { recordHeaders } from './responses.js'
import { KeyConflict, type HasId, type Store } from '../stores/store.js'

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

/** The keys of the requests that each store is busy with. */
const busyWith = new WeakMap<object, Set<string>>()

/** Creates a record, once for all requests of the same key, and answers with it. */
export async function create<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, record: T | Omit<T, 'id'>, key?: string
) {
  const json = key === undefined ? await store.append(record) : await appendOnce(store, record, key)
  const { id }: HasId = 'id' in record ? record : JSON.parse(json)
  reply.code(201).headers(recordHeaders).header('location', `${pathOf(request)}/${id}`)
  return json
}

async function appendOnce<T extends HasId> (store: Store<T>, record: T | Omit<T, 'id'>, key: string) {
  const keys = busyWith.get(store) ?? new Set()
  busyWith.set(store, keys)
  if (keys.has(key)) throw new KeyConflict(409)
  keys.add(key)
  try {
    return await store.append(record, key)
  } finally {
    keys.delete(key)
  }
}
