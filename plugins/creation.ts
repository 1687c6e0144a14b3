import type { FastifyReply, FastifyRequest } from 'fastify'
import { jsonType } from '../schemas/http.js'
import { pathOf } from './paths.js'
import { KeyConflict, type Identified, type Store } from './stores/store.js'

/** Gives what creates records in a store, once for all requests of the same key, and answers with them. */
export function creationIn<T extends Identified> (store: Store<T>) {
  const served = new Set<string>()

  return async function create (request: FastifyRequest, reply: FastifyReply, record: T | Omit<T, 'id'>, key?: string) {
    const json = key === undefined ? await store.append(record) : await appendOnce(record, key)
    const { id }: Identified = 'id' in record ? record : JSON.parse(json)
    reply.code(201).type(jsonType).header('location', `${pathOf(request)}/${id}`)
    return json
  }

  async function appendOnce (record: T | Omit<T, 'id'>, key: string) {
    if (served.has(key)) throw new KeyConflict(409)
    served.add(key)
    try {
      return await store.append(record, key)
    } finally {
      served.delete(key)
    }
  }
}
