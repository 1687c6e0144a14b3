import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from '../http/errors.js'
import { isNotModified, listEtag, sendNotModified } from '../http/etags.js'
import { setHeaders } from '../http/responses.js'
import type { Query } from '../../schemas/query.js'
import type { HasId, Page, Store } from '../stores/store.js'

/** Sends the records that a query selects or, if there is a limit, a page with a link to the next one. */
export function sendList (request: FastifyRequest, reply: FastifyReply, store: Store<HasId>, view: string, hasFilters: boolean) {
  const { limit, after, sort, total, ...where } = request.query as Omit<Query<HasId>, 'where'> & { total?: boolean }
  if (limit === undefined && after !== undefined) throw invalid('query', [{ path: '/limit', message: 'is required with after' }])
  const query: Query<HasId> = hasFilters ? { limit, after, sort, where } : { limit, after }
  // The version is read before the list. If the list changes in between, its next version is another one.
  const version = store.version?.()
  return version && typeof version === 'object' ? version.then(send) : send(version)

  function send (version?: string) {
    if (isNotModified(request, reply, listEtag(view, version))) return sendNotModified(request, reply)
    setHeaders(request, reply)
    if (hasFilters && total) return sendWithTotal()
    const page = store.select(query)
    return 'then' in page ? page.then(withLink) : withLink(page)
  }

  /** Counts before it reads, because an error of one would leave the other alone. */
  async function sendWithTotal () {
    const count = await store.count?.({ where })
    const page = await store.select(query)
    reply.header('x-total-count', count ?? '')
    return withLink(page)
  }

  /** Adds a link to the next page, if there is one. For HEAD, a list that is a stream is empty, because Fastify would read it to its end. */
  function withLink ({ list, next }: Page) {
    if (next !== undefined) {
      const query = new URLSearchParams(/\?([^#]*)/.exec(request.originalUrl)?.[1])
      query.set('after', next)
      reply.header('link', `<?${query}>; rel="next"`)
    }
    if (request.method !== 'HEAD' || !(list instanceof Readable)) return list
    list.destroy()
    return Readable.from([])
  }
}
