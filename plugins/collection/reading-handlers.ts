import type { FastifyReply, FastifyRequest } from 'fastify'
import { httpError } from '../http/errors.js'
import { etagOf, sendWithEtag, weakEtagOf } from '../http/etags.js'
import { varyByCoding } from '../http/responses.js'
import type { SummaryQuery } from '../stores/store.js'
import type { Access } from './handlers.js'
import { hasExpand, type RelatedRecords } from './related-records.js'
import { sendList } from './send-list.js'

/** Returns the handlers of the operations that read. */
export function readingHandlers ({ definition, storeOf, idOf }: Access, addRelated: RelatedRecords) {
  const { ignoreUnknownParameters } = definition

  return {
    list (request: FastifyRequest, reply: FastifyReply) {
      return sendList(request, reply, { store: storeOf(request), ignoreUnknownParameters, addRelated })
    },

    /** Sends a record, a 304 if the client has it already, or a 404. */
    async get (request: FastifyRequest, reply: FastifyReply) {
      const json = await storeOf(request).first(idOf(request))
      if (!json) throw httpError(404)
      if (ignoreUnknownParameters || !hasExpand(request)) return sendWithEtag(request, reply, json, etagOf(json))
      // Related records are not a part of this version of the record.
      const withRelated = await addRelated(request, json)
      return sendWithEtag(request, reply, withRelated, weakEtagOf(withRelated))
    },

    /** Sends what is computed of the records that meet the conditions. */
    async summary (request: FastifyRequest, reply: FastifyReply) {
      const { count, sum, min, max, group, ...where } = request.query as SummaryQuery
      const { summarize = notSupported } = storeOf(request)
      const json = await summarize({ count, sum, min, max, group, where })
      varyByCoding(reply)
      return sendWithEtag(request, reply, json, weakEtagOf(json))
    }
  }
}

function notSupported (): never {
  throw new Error('The store of the collection has no summaries')
}
