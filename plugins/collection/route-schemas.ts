import { Type } from '@sinclair/typebox'
import type { FastifySchema } from 'fastify'
import { PathId, PathTextId, ref } from '../../schemas/fields.js'
import { ChangeHeaders, ReadingHeaders } from '../http/etags.js'
import { errorResponses, etagHeader, listOf, notModified, totalHeader } from '../http/responses.js'
import { uniqueFields } from '../stores/collection.js'
import { maxRecords, type CheckedDefinition, type Operation } from './definition.js'
import { CreationHeaders } from './handlers.js'
import { listQueryOf, recordQueryOf, summaryQueryOf } from './list-parameters.js'

/** The schemas of the routes of a collection, which are also in the document. */
export function schemasOf (definition: CheckedDefinition, prefix: string): Record<Operation, FastifySchema> {
  const { schema, newSchema, patchSchema, filters, idSource, idParameter, words: { one, many } } = definition
  // @fastify/swagger documents the parameters of a prefix, such as `/:tenant/api`, only if the route has none.
  const inPrefix = parametersIn(prefix).map(name => [name, Type.String()])
  const pathId = schema.properties.id?.type === 'string' ? PathTextId : PathId
  const params = Type.Object({ ...Object.fromEntries(inPrefix), [idParameter]: pathId })
  const location = {
    Location: Type.String({ description: `The URL of the ${one}, relative to the URL of the request` })
  }
  const mayRepeat = !uniqueFields(definition).includes('id')
  const whichRecord = mayRepeat ? `If several ${many} have this id, it is the one that was created first.` : ''
  const thisRecord = mayRepeat ? `The first ${one} with this id` : `The ${one} with this id`
  const whoChoosesId = idSource === 'client'
    ? `The client chooses the id. It ${mayRepeat ? 'need not' : 'must'} be unique.`
    : 'The service generates a unique id. An id in the body is ignored.'
  const orders = filters.length > 0 ? ', or in that of `sort`' : ''
  const changed = ref(schema, { description: `The stored ${one}`, headers: etagHeader })
  const change = { params, headers: ChangeHeaders, response: { 200: changed, ...errorResponses(404, 409, 412, 413) } }

  return {
    list: {
      summary: `List all ${many}`,
      description: `The ${many} are in order of creation${orders}. With \`limit\`, the response is one page, ` +
        'and its `Link` header leads to the next page.',
      querystring: listQueryOf(definition),
      headers: ReadingHeaders,
      response: {
        200: definition.ignoreUnknownParameters
          ? listOf(schema, `All ${many}, or one page, in order of creation`)
          : listOf(schema, `The ${many} that match, or one page`, totalHeader),
        304: notModified,
        ...errorResponses()
      }
    },

    get: {
      summary: `Get one ${one}`,
      ...whichRecord && { description: whichRecord },
      params,
      ...!definition.ignoreUnknownParameters && { querystring: recordQueryOf(definition) },
      headers: ReadingHeaders,
      response: {
        200: ref(schema, { description: thisRecord, headers: etagHeader }),
        304: notModified,
        ...errorResponses(404)
      }
    },

    create: {
      summary: `Create ${/^[aeio]/.test(one) ? 'an' : 'a'} ${one}`,
      description: whoChoosesId,
      headers: CreationHeaders,
      body: ref(newSchema),
      response: {
        201: ref(schema, { description: `The stored ${one}`, headers: location }),
        ...errorResponses(409, 413, 422)
      }
    },

    createMany: {
      summary: `Create many ${many}`,
      description: `All ${many} are created or none, in this order and next to each other. ${whoChoosesId}`,
      headers: CreationHeaders,
      body: Type.Array(ref(newSchema), { minItems: 1, maxItems: maxRecords }),
      response: {
        201: Type.Array(ref(schema), { description: `The stored ${many}` }),
        ...errorResponses(409, 413, 422)
      }
    },

    replace: {
      ...change,
      summary: `Replace one ${one}`,
      description: `${whichRecord} An id in the body must be that of the path.`.trim(),
      body: ref(newSchema)
    },

    update: {
      ...change,
      summary: `Update one ${one}`,
      description: `${whichRecord} The body is a JSON Merge Patch (RFC 7396): null removes an optional field.`.trim(),
      consumes: ['application/merge-patch+json', 'application/json'],
      body: ref(patchSchema)
    },

    summary: {
      summary: `Summarize the ${many}`,
      description: `Counts the ${many} that match, adds integers, and finds least and greatest values.`,
      querystring: summaryQueryOf(definition),
      headers: ReadingHeaders,
      response: {
        200: Type.Array(Type.Object({
          count: Type.Optional(Type.Integer()),
          sum: Type.Optional(Type.Record(Type.String(), Type.Integer())),
          min: Type.Optional(Type.Object({})),
          max: Type.Optional(Type.Object({}))
        }), { description: 'One result, or one for each group in the order of its values', headers: etagHeader }),
        304: notModified,
        ...errorResponses()
      }
    },

    delete: {
      ...change,
      summary: `Delete one ${one}`,
      ...mayRepeat && { description: `If several ${many} have this id, the one that was created first is deleted.` },
      response: {
        204: Type.Null({ description: `${thisRecord} is deleted` }),
        ...errorResponses(404, 409, 412, 413)
      }
    }
  }
}

export function parametersIn (prefix: string) {
  return Array.from(prefix.matchAll(/(?<!:):(\w+)/g), ([, name = '']) => name)
}
