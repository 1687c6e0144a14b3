import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { PageQuery } from '../../schemas/pagination.js'
import { invalid } from './errors.js'
import { queryOf, urlWithQuery } from './paths.js'
import { setHeaders } from './responses.js'
import type { MaybePromise, HasId, List, Store } from '../stores/store.js'

/** Sends the whole collection or, if there is a limit, a page with a link to the next one. */
export function sendList<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, { limit, after }: PageQuery
): MaybePromise<List> {
  setHeaders(request, reply)
  if (limit !== undefined) return sendPage(request, reply, store, limit, after)
  if (after !== undefined) throw invalid('query', [{ path: '/limit', message: 'is required with after' }])
  return bodyFor(request, store.list())
}

async function sendPage<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, limit: number, after?: string
) {
  const { list, next } = await store.page(limit, after === undefined ? 0 : positionAt(after))
  if (next !== undefined) {
    const query = queryOf(request)
    query.set('after', cursorTo(next))
    reply.header('link', `<${urlWithQuery(request, query)}>; rel="next"`)
  }
  return bodyFor(request, list)
}

/** Encodes a position as an opaque cursor, so that clients do not calculate with it. */
function cursorTo (position: number) {
  return Buffer.from(String(position)).toString('base64url')
}

function positionAt (cursor: string) {
  const position = Number(Buffer.from(cursor, 'base64url').toString())
  if (Number.isSafeInteger(position) && position >= 0 && cursor === cursorTo(position)) return position
  throw invalid('query', [{ path: '/after', message: 'must be a cursor from the Link header of a page' }])
}

/** Returns the body. For HEAD, a stream is closed, because Fastify would read it to its end. */
function bodyFor<T> ({ method }: FastifyRequest, body: MaybePromise<T>): MaybePromise<T> {
  return method === 'HEAD' ? Promise.resolve(body).then(closed) : body
}

function closed<T> (body: T) {
  if (body instanceof Readable) body.destroy()
  return body
}
