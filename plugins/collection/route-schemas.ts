import { Type, type TObject } from '@sinclair/typebox'
import type { FastifySchema } from 'fastify'
import { PathId, PathTextId, ref } from '../../schemas/fields.js'
import { ChangeHeaders, ReadingHeaders } from '../http/etags.js'
import { errorResponses, etagHeader, listOf, notModified, totalHeader } from '../http/responses.js'
import { uniqueFields } from '../stores/collection.js'
import { CreationHeaders } from './creating-handlers.js'
import { maxRecords, type CheckedDefinition, type Operation } from '../definition/definition.js'
import { listQueryOf, recordQueryOf, summaryQueryOf } from './list-parameters.js'

/** What is computed of records. Clients get only what they ask for. */
const SummaryResult = Type.Object({
  count: Type.Optional(Type.Integer()),
  sum: Type.Optional(Type.Record(Type.String(), Type.Integer())),
  min: Type.Optional(Type.Object({})),
  max: Type.Optional(Type.Object({}))
})

/** The schemas of the routes of a collection, which are also in the document. */
export function schemasOf (definition: CheckedDefinition, prefix: string): Record<Operation, FastifySchema> {
  const { schema, idParameter } = definition
  // @fastify/swagger documents the parameters of a prefix, such as `/:tenant/api`, only if the route has none.
  const inPrefix = parametersIn(prefix).map(name => [name, Type.String()])
  const pathId = schema.properties.id?.type === 'string' ? PathTextId : PathId
  const params = Type.Object({ ...Object.fromEntries(inPrefix), [idParameter]: pathId })
  return {
    ...readingSchemas(definition, params),
    ...creatingSchemas(definition),
    ...changingSchemas(definition, params)
  }
}

function readingSchemas (definition: CheckedDefinition, params: TObject) {
  const { schema, filters, ignoreUnknownParameters, words: { one, many } } = definition
  const orders = filters.length > 0 ? ', or in that of `sort`' : ''

  return {
    list: {
      summary: `List all ${many}`,
      description: `The ${many} are in order of creation${orders}. With \`limit\`, the response is one page, ` +
        'and its `Link` header leads to the next page.',
      querystring: listQueryOf(definition),
      headers: ReadingHeaders,
      response: {
        200: ignoreUnknownParameters
          ? listOf(schema, `All ${many}, or one page, in order of creation`)
          : listOf(schema, `The ${many} that match, or one page`, totalHeader),
        304: notModified,
        ...errorResponses()
      }
    },

    get: {
      summary: `Get one ${one}`,
      ...mayRepeat(definition) && { description: firstOf(definition) },
      params,
      ...!ignoreUnknownParameters && { querystring: recordQueryOf(definition) },
      headers: ReadingHeaders,
      response: {
        200: ref(schema, { description: withThisId(definition), headers: etagHeader }),
        304: notModified,
        ...errorResponses(404)
      }
    },

    summary: {
      summary: `Summarize the ${many}`,
      description: `Counts the ${many} that match, adds integers, and finds least and greatest values.`,
      querystring: summaryQueryOf(definition),
      headers: ReadingHeaders,
      response: {
        200: Type.Array(SummaryResult, {
          description: 'One result, or one for each group in the order of its values',
          headers: etagHeader
        }),
        304: notModified,
        ...errorResponses()
      }
    }
  }
}

function creatingSchemas (definition: CheckedDefinition) {
  const { schema, newSchema, idSource, words: { one, many } } = definition
  const whoChoosesId = idSource === 'client'
    ? `The client chooses the id. It ${mayRepeat(definition) ? 'need not' : 'must'} be unique.`
    : 'The service generates a unique id. An id in the body is ignored.'
  const location = {
    Location: Type.String({ description: `The URL of the ${one}, relative to the URL of the request` })
  }

  return {
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
    }
  }
}

function changingSchemas (definition: CheckedDefinition, params: TObject) {
  const { schema, newSchema, patchSchema, words: { one, many } } = definition
  const first = firstOf(definition)
  const changed = ref(schema, { description: `The stored ${one}`, headers: etagHeader })
  const change = { params, headers: ChangeHeaders, response: { 200: changed, ...errorResponses(404, 409, 412, 413) } }

  return {
    replace: {
      ...change,
      summary: `Replace one ${one}`,
      description: `${first} An id in the body must be that of the path.`.trim(),
      body: ref(newSchema)
    },

    update: {
      ...change,
      summary: `Update one ${one}`,
      description: `${first} The body is a JSON Merge Patch (RFC 7396): null removes an optional field.`.trim(),
      consumes: ['application/merge-patch+json', 'application/json'],
      body: ref(patchSchema)
    },

    delete: {
      ...change,
      summary: `Delete one ${one}`,
      ...mayRepeat(definition) && {
        description: `If several ${many} have this id, the one that was created first is deleted.`
      },
      response: {
        204: Type.Null({ description: `${withThisId(definition)} is deleted` }),
        ...errorResponses(404, 409, 412, 413)
      }
    }
  }
}

/** Whether several records can have the same id. */
function mayRepeat (definition: CheckedDefinition) {
  return !uniqueFields(definition).includes('id')
}

/** Which record an id is of. */
function firstOf (definition: CheckedDefinition) {
  if (!mayRepeat(definition)) return ''
  return `If several ${definition.words.many} have this id, it is the one that was created first.`
}

function withThisId (definition: CheckedDefinition) {
  return `The ${mayRepeat(definition) ? 'first ' : ''}${definition.words.one} with this id`
}

export function parametersIn (prefix: string) {
  return Array.from(prefix.matchAll(/(?<!:):(\w+)/g), ([, name = '']) => name)
}
