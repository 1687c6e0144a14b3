import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { AnyQuery } from '../../schemas/query.js'
import { invalid } from '../http/errors.js'
import { sendWithEtag, weakEtagOf } from '../http/etags.js'
import { setHeaders, varyByCoding } from '../http/responses.js'
import type { JsonStore } from '../stores/store.js'

interface Listed {
  store: JsonStore
  hasFilters: boolean
}

/** Sends the records that a query selects or, if there is a limit, a page with a link to the next one. */
export async function sendList (request: FastifyRequest, reply: FastifyReply, { store, hasFilters }: Listed) {
  const { limit, after, sort, total, ...where } = request.query as AnyQuery & { total?: boolean }
  if (limit === undefined && after !== undefined) {
    throw invalid('query', [{ path: '/limit', message: 'is required with after' }])
  }
  const [{ list, next }, count] = await Promise.all([
    store.select(hasFilters ? { limit, after, sort, where } : { limit, after }),
    hasFilters && total ? store.count({ where }) : undefined
  ])
  if (count !== undefined) reply.header('x-total-count', count)
  if (next !== undefined) reply.header('link', `<?${queryOfNext(request, next)}>; rel="next"`)
  varyByCoding(reply)
  if (!(list instanceof Readable)) return sendWithEtag(request, reply, list, weakEtagOf(list))
  setHeaders(request, reply)
  if (request.method !== 'HEAD') return list
  list.destroy() // Fastify would read it to its end
  return reply.send(Readable.from([]))
}

function queryOfNext ({ originalUrl }: FastifyRequest, next: string) {
  const query = new URLSearchParams(/\?([^#]*)/.exec(originalUrl)?.[1])
  query.set('after', next)
  return query
}
