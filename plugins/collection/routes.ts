import { Type, type TSchema } from '@sinclair/typebox'
import type { FastifyPluginAsync, FastifyRequest, FastifySchema } from 'fastify'
import { ConflictingRequest } from '../../schemas/errors.js'
import { PathId, ref } from '../../schemas/fields.js'
import { storeOf } from '../host-stores.js'
import api, { namesIn } from '../http/api.js'
import { ChangeHeaders, ReadingHeaders } from '../http/etags.js'
import {
  compressed, errorResponses, etagHeader, listOf, notModified, routeDefaults, totalHeader
} from '../http/responses.js'
import { repeatable } from '../plugin.js'
import { StartupError } from '../startup.js'
import { openStore } from '../stores.js'
import { uniqueFields } from '../stores/collection.js'
import {
  checkDefinition, maxRecords, methods, type CheckedDefinition, type Definition, type LooseDefinition, type Operation
} from './definition.js'
import { CreationHeaders, digestOfBody, handlersOf, requestDigest } from './handlers.js'
import { listQueryOf } from './queries.js'

/**
 * Serves a collection of records under a prefix. It is encapsulated: it does not change the app that registers it.
 *
 * @example app.register(collection, { prefix: '/orders', name: 'orders', schema: Order })
 */
const collection: FastifyPluginAsync<LooseDefinition> = async function collection (app, given) {
  const options = given as Definition
  const { errorHandler = true } = options
  const definition = checkDefinition(options)
  checkPrefix(app.prefix, definition)
  await app.register(api, { errorHandler })
  if (!app.hasReplyDecorator('compress')) await app.register(import('@fastify/compress'), { global: false })
  for (const component of componentsOf(definition)) app.addSchema(component)
  const store = await openStore(app, definition, options.store)
  app.decorateRequest(requestDigest)
  const handlers = handlersOf(storeOf(app, store), definition)
  const schemas = schemasOf(definition, app.prefix)

  for (const operation of offeredOperations(options, definition)) {
    const schema = schemas[operation]
    const { schema: ownSchema, preValidation = [], ...own } = { ...options.routes?.[operation] }
    const config = { swaggerTransform: false as const, ...own.config, collection: definition.name }
    app.route({
      ...routeDefaults,
      method: methods[operation],
      url: urlOf(operation, definition, app.prefix),
      // The ETag of a record is strong, so it has only one coding.
      ...operation === 'list' ? compressed() : { compress: false },
      ...own,
      config,
      schema: {
        ...operationNames(operation, definition, app.prefix),
        ...schema,
        response: errorHandler ? schema.response : successesIn(schema.response),
        ...ownSchema
      },
      preValidation: [digestOfBody, preValidation, ignoreReadOnly].flat(),
      handler: handlers[operation]
    })
  }

  /** Only hooks set readOnly fields, after this. */
  async function ignoreReadOnly ({ body }: FastifyRequest) {
    if (definition.readOnly.length === 0) return
    for (const record of [body].flat()) {
      for (const name of definition.readOnly) Reflect.deleteProperty(Object(record), name)
    }
  }
}

function checkPrefix (prefix: string, { name, idParameter }: CheckedDefinition) {
  if (!parametersIn(prefix).includes(idParameter)) return
  throw new StartupError(`Invalid collection ${name}: the prefix ${prefix} has a parameter ${idParameter}, too. ` +
    'Set the option idParameter to another name.')
}

function parametersIn (prefix: string) {
  return Array.from(prefix.matchAll(/(?<!:):(\w+)/g), ([, name = '']) => name)
}

/** The schemas that the routes of a collection refer to. */
function componentsOf ({ operations, schema, newSchema, patchSchema }: CheckedDefinition) {
  const has = (...some: Operation[]) => operations.some(operation => some.includes(operation))
  const components = new Set<TSchema>([schema])
  if (has('create', 'createMany', 'replace', 'update', 'delete')) components.add(ConflictingRequest)
  if (has('create', 'createMany', 'replace')) components.add(newSchema)
  if (has('update')) components.add(patchSchema)
  return components
}

/** The operations that are chosen or, by default, those that the options for `create` allow. */
function offeredOperations (options: Definition, { operations }: CheckedDefinition) {
  // The options that a host has for one new record, such as hooks, may not be right for many.
  const hasOwnCreate = options.routes?.create !== undefined && options.routes.createMany === undefined
  if (options.operations || !hasOwnCreate) return operations
  return operations.filter(operation => operation !== 'createMany')
}

function urlOf (operation: Operation, { idParameter }: CheckedDefinition, prefix: string) {
  if (operation === 'createMany') return '/batch'
  if (operation === 'list' || operation === 'create') return prefix === '' ? '/' : ''
  return `/:${idParameter}`
}

/** The operation id and the tag. The name of the collection at the end of a prefix is not repeated in them. */
function operationNames (operation: Operation, { name, words: { One, Many } }: CheckedDefinition, prefix: string) {
  const ofMany = operation === 'list' || operation === 'createMany'
  const base = prefix.replace(new RegExp(`/${name.replaceAll('_', '[-_]')}$`), '')
  return namesIn(base, operation + (ofMany ? Many : One), name)
}

/** The responses of a route whose errors a host answers in its own format. */
function successesIn (responses: unknown) {
  return Object.fromEntries(Object.entries(Object(responses)).filter(([status]) => Number(status) < 400))
}

/** The schemas of the routes of a collection, which are also in the document. */
function schemasOf (definition: CheckedDefinition, prefix: string): Record<Operation, FastifySchema> {
  const { schema, newSchema, patchSchema, queried, filters, idSource, idParameter, words: { one, many } } = definition
  // @fastify/swagger documents the parameters of a prefix, such as `/:tenant/api`, only if the route has none.
  const inPrefix = parametersIn(prefix).map(name => [name, Type.String()])
  const params = Type.Object({ ...Object.fromEntries(inPrefix), [idParameter]: PathId })
  const location = {
    Location: Type.String({ description: `The URL of the ${one}, relative to the URL of the request` })
  }
  const mayRepeat = !uniqueFields(definition).includes('id')
  const whichRecord = mayRepeat ? `If several ${many} have this id, it is the one that was created first.` : ''
  const thisRecord = mayRepeat ? `The first ${one} with this id` : `The ${one} with this id`
  const whoChoosesId = idSource === 'client'
    ? 'The client chooses the id. It need not be unique.'
    : 'The service generates a unique id. An id in the body is ignored.'
  const orders = filters.length > 0 ? ', or in that of `sort`' : ''
  const changed = ref(schema, { description: `The stored ${one}`, headers: etagHeader })
  const change = { params, headers: ChangeHeaders, response: { 200: changed, ...errorResponses(404, 409, 412, 413) } }

  return {
    list: {
      summary: `List all ${many}`,
      description: `The ${many} are in order of creation${orders}. With \`limit\`, the response is one page, ` +
        'and its `Link` header leads to the next page.',
      querystring: listQueryOf(schema, queried, filters),
      headers: ReadingHeaders,
      response: {
        200: queried.length > 0
          ? listOf(schema, `The ${many} that match, or one page`, totalHeader)
          : listOf(schema, `All ${many}, or one page, in order of creation`),
        304: notModified,
        ...errorResponses()
      }
    },

    get: {
      summary: `Get one ${one}`,
      ...whichRecord && { description: whichRecord },
      params,
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

export default repeatable(collection)
