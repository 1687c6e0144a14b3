import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { PageQuery } from '../../schemas/pagination.js'
import { invalid } from './errors.js'
import { pathOf, queryOf } from './paths.js'
import { setHeaders } from './responses.js'
import type { MaybePromise, HasId, List, Store } from '../stores/store.js'

/** Answers with a list: the whole collection or, where there is a limit, a page of it that links to the next one. */
export function sendList<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, { limit, after }: PageQuery
): MaybePromise<List> {
  setHeaders(request, reply)
  if (limit !== undefined) return sendPage(request, reply, store, limit, after)
  if (after !== undefined) throw invalid('query', [{ path: '/limit', message: 'is required where there is after' }])
  return bodyFor(request, store.list())
}

async function sendPage<T extends HasId> (
  request: FastifyRequest, reply: FastifyReply, store: Store<T>, limit: number, after?: string
) {
  const { list, next } = await store.page(limit, after === undefined ? 0 : positionAt(after))
  if (next !== undefined) {
    const query = queryOf(request)
    query.set('after', cursorTo(next))
    reply.header('link', `<${pathOf(request)}?${query}>; rel="next"`)
  }
  return bodyFor(request, list)
}

/** A position as clients see it: nothing that they would count with. */
function cursorTo (position: number) {
  return Buffer.from(String(position)).toString('base64url')
}

function positionAt (cursor: string) {
  const position = Number(Buffer.from(cursor, 'base64url').toString())
  if (Number.isSafeInteger(position) && position >= 0 && cursor === cursorTo(position)) return position
  throw invalid('query', [{ path: '/after', message: 'must be from the link of a page' }])
}

/** Hands on a body, or for a HEAD only what it is: a stream would be read to its end for nobody. */
function bodyFor<T> ({ method }: FastifyRequest, body: MaybePromise<T>): MaybePromise<T> {
  return method === 'HEAD' ? Promise.resolve(body).then(unread) : body
}

function unread<T> (body: T) {
  if (body instanceof Readable) body.destroy()
  return body
}
