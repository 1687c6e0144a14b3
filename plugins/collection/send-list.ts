import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { AnyQuery } from '../../schemas/query.js'
import { invalid } from '../http/errors.js'
import { sendWithEtag, weakEtagOf } from '../http/etags.js'
import { setHeaders, varyByCoding } from '../http/responses.js'
import type { JsonStore } from '../stores/store.js'
import type { RelatedRecords } from './related-records.js'

interface ListQuery extends AnyQuery {
  total?: boolean
  expand?: string
}

interface Listed {
  store: JsonStore
  hasFilters: boolean
  expanded: RelatedRecords
}

/** Sends the records that a query selects or, if there is a limit, a page with a link to the next one. */
export async function sendList (request: FastifyRequest, reply: FastifyReply, { store, hasFilters, expanded }: Listed) {
  const { limit, after, sort, total, expand, ...where } = request.query as ListQuery
  for (const [name, value] of Object.entries({ after, expand })) {
    const needsLimit = value !== undefined && limit === undefined && (name === 'after' || hasFilters)
    if (needsLimit) throw invalid('query', [{ path: '/limit', message: `is required with ${name}` }])
  }
  const [{ list, next }, count] = await Promise.all([
    store.select(hasFilters ? { limit, after, sort, where } : { limit, after }),
    hasFilters && total ? store.count({ where }) : undefined
  ])
  if (count !== undefined) reply.header('x-total-count', count)
  if (next !== undefined) reply.header('link', `<?${queryOfNext(request, next)}>; rel="next"`)
  varyByCoding(reply)
  if (!(list instanceof Readable)) {
    const json = hasFilters ? await expanded(request, list) : list
    return sendWithEtag(request, reply, json, weakEtagOf(json))
  }
  setHeaders(request, reply)
  if (request.method !== 'HEAD') return list
  list.destroy() // Fastify would read it to its end
  return reply.send(Readable.from([]))
}

/** The query with another cursor. Everything else stays as the client has written it. */
function queryOfNext ({ originalUrl }: FastifyRequest, next: string) {
  const [, query = ''] = /\?([^#]*)/.exec(originalUrl) ?? []
  const parameters = query.split('&').filter(parameter => parameter !== '' && !parameter.startsWith('after='))
  return [...parameters, `after=${next}`].join('&').replaceAll(/[^!#-;=?-~]/g, character =>
    `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`)
}
