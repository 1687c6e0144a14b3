import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { AnyQuery } from '../../schemas/query.js'
import { invalid } from '../http/errors.js'
import { sendWithEtag, weakEtagOf } from '../http/etags.js'
import { setHeaders, varyByCoding } from '../http/responses.js'
import type { JsonStore } from '../stores/store.js'
import { hasExpand, type RelatedRecords } from './related-records.js'

interface ListQuery extends AnyQuery {
  total?: boolean
  expand?: string
}

interface Listed {
  store: JsonStore
  ignoreUnknownParameters: boolean
  addRelated: RelatedRecords
}

/** Sends the records that a query selects or, if there is a limit, a page with a link to the next one. */
export async function sendList (request: FastifyRequest, reply: FastifyReply, options: Listed) {
  const { store, ignoreUnknownParameters, addRelated } = options
  const { limit, after } = request.query as AnyQuery
  const isExpanded = !ignoreUnknownParameters && hasExpand(request)
  if (limit === undefined && (after !== undefined || isExpanded)) {
    throw invalid('query', [{ path: '/limit', message: `is required with ${isExpanded ? 'expand' : 'after'}` }])
  }
  const { list, next } = ignoreUnknownParameters
    ? await store.select({ limit, after })
    : await selectPage(request, reply, store)
  if (next !== undefined) reply.header('link', `<?${queryOfNext(request, next)}>; rel="next"`)
  varyByCoding(reply)
  if (!(list instanceof Readable)) {
    const json = isExpanded ? await addRelated(request, list) : list
    return sendWithEtag(request, reply, json, weakEtagOf(json))
  }
  setHeaders(request, reply)
  if (request.method !== 'HEAD') return list
  list.destroy() // Fastify would read it to its end
  return reply.send(Readable.from([]))
}

/** The records that meet conditions. They are counted at the same time if this is asked for. */
async function selectPage ({ query }: FastifyRequest, reply: FastifyReply, store: JsonStore) {
  const { limit, after, sort, total, expand, ...where } = query as ListQuery
  const [page, count] = await Promise.all([
    store.select({ limit, after, sort, where }),
    total ? store.count({ where }) : undefined
  ])
  if (count !== undefined) reply.header('x-total-count', count)
  return page
}

/** The query with another cursor. Everything else stays as the client has written it. */
function queryOfNext ({ originalUrl }: FastifyRequest, next: string) {
  const [, query = ''] = /\?([^#]*)/.exec(originalUrl) ?? []
  const parameters = query.split('&').filter(parameter => parameter !== '' && !parameter.startsWith('after='))
  return [...parameters, `after=${next}`].join('&').replaceAll(/[^!#-;=?-~]/g, character =>
    `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`)
}
