import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { PageQuery } from '../../schemas/fields.js'
import { invalid } from '../http/errors.js'
import { isNotModified, listEtag, sendNotModified } from '../http/etags.js'
import { setHeaders } from '../http/responses.js'
import type { HasId, List, Store } from '../stores/store.js'

/** Sends the whole collection or, if there is a limit, a page with a link to the next one. */
export function sendList (request: FastifyRequest, reply: FastifyReply, store: Store<HasId>, { limit, after }: PageQuery) {
  if (limit === undefined && after !== undefined) throw invalid('query', [{ path: '/limit', message: 'is required with after' }])
  const position = after === undefined ? undefined : positionAt(after)
  // The version is read before the list. If the list changes in between, its next version is another one.
  const version = store.version?.()
  return version instanceof Promise ? version.then(send) : send(version)

  function send (version?: string) {
    if (isNotModified(request, reply, listEtag(version))) return sendNotModified(request, reply)
    setHeaders(request, reply)
    const list = limit === undefined ? store.list() : readPage(limit)
    return request.method === 'HEAD' ? Promise.resolve(list).then(closed) : list
  }

  /** Reads a page, and adds a link to the next one. */
  async function readPage (limit: number) {
    const { list, next } = await store.page(limit, position)
    if (next !== undefined) {
      const query = new URLSearchParams(/\?([^#]*)/.exec(request.originalUrl)?.[1])
      query.set('after', cursorTo(next))
      reply.header('link', `<?${query}>; rel="next"`)
    }
    return list
  }
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

/** Replaces a list that is a stream by an empty one, because Fastify would read it to its end for HEAD. */
function closed (list: List) {
  if (!(list instanceof Readable)) return list
  list.destroy()
  return Readable.from([])
}
