import { Type, type TSchema } from '@sinclair/typebox'
import type { FastifyPluginAsync, FastifySchema } from 'fastify'
import { ConflictingRequest } from '../../schemas/errors.js'
import { oneOf, PathId, ref } from '../../schemas/fields.js'
import { cannotCreateMany, isStore, storeOf } from '../host-stores.js'
import { applyApiDefaults, namesIn } from '../http/api-defaults.js'
import { compress } from '../http/compression.js'
import { ChangeHeaders, ReadingHeaders } from '../http/etags.js'
import { conflictOrKeyInUse, errorResponses, etagHeader, listOf, notModified, routeDefaults, totalHeader } from '../http/responses.js'
import { checkOptions, custom, repeatable } from '../plugin.js'
import { StartupError } from '../startup.js'
import { openStore } from '../stores.js'
import { requiredMethods, uniqueFields } from '../stores/store.js'
import { bodyPreparation, hidingHandler } from './access.js'
import { checkDefinition, maxRecords, methods, operations, type CheckedDefinition, type Definition, type Operation } from './definition.js'
import { CreationHeaders, handlersOf } from './handlers.js'
import { listQueryOf } from './queries.js'

export const CollectionOptions = Type.Object<{ [K in keyof Required<Definition>]: TSchema }>({
  name: Type.String(),
  schema: custom('a TypeBox object or a JSON Schema', value => Object(value) === value),
  operations: Type.Optional(Type.Array(oneOf(operations), { uniqueItems: true })),
  filters: Type.Optional(Type.Array(Type.String(), { uniqueItems: true })),
  unique: Type.Optional(Type.Array(Type.String(), { uniqueItems: true })),
  references: Type.Optional(Type.Record(Type.String(), Type.String())),
  idSource: Type.Optional(oneOf(['client', 'server'])),
  seed: Type.Optional(Type.Array(Type.Object({}))),
  idParameter: Type.Optional(Type.String({ pattern: '^[A-Za-z_]+$', expected: 'letters and _' })),
  store: Type.Optional(custom(`a store with the methods ${requiredMethods.join(', ')}, or a function`, value => typeof value === 'function' || isStore(value))),
  routes: Type.Optional(Type.Partial(Type.Object(Object.fromEntries(operations.map(name => [name, Type.Object({})])), { additionalProperties: false }))),
  errorHandler: Type.Optional(Type.Boolean()),
  renames: Type.Optional(Type.Record(Type.String(), Type.String())),
  upgrades: Type.Optional(Type.Array(Type.Union([Type.String(), Type.Object({ sqlite: Type.String(), postgres: Type.String() }, { additionalProperties: false })])))
})

/** A definition with any schema. A generic function of a host could not convert the type of its store. */
interface CollectionOptions extends Omit<Definition<object>, 'store'> {
  store?: object | undefined
}

/**
 * Serves a collection of records under a prefix. It is encapsulated: it does not change the app that registers it.
 *
 * @example app.register(collection, { prefix: '/orders', name: 'orders', schema: Order })
 */
const collection: FastifyPluginAsync<CollectionOptions> = async function collection (app, given) {
  const options = checkOptions(app, 'collection', CollectionOptions, given) as Definition
  const definition = checkDefinition(options)
  if (Array.from(app.prefix.matchAll(/(?<!:):(\w+)/g), ([, name]) => name).includes(definition.idParameter)) {
    throw new StartupError(`Invalid collection ${definition.name}: the prefix ${app.prefix} has a parameter ${definition.idParameter}, too. Set the option idParameter to another name.`)
  }
  const { responseSchema, newSchema, patchSchema, idParameter, words: { One, Many } } = definition
  // A prefix such as `/v1/orders` ends with the name of the collection, which is in the names of its operations already.
  await applyApiDefaults(app, options.errorHandler, app.prefix.replace(new RegExp(`/${definition.name.replaceAll('_', '[-_]')}$`), ''))
  const has = (...some: Operation[]) => definition.operations.some(operation => some.includes(operation))
  const components = [...has('create', 'createMany', 'replace', 'update', 'delete') ? [ConflictingRequest] : [], responseSchema, ...has('create', 'createMany', 'replace') ? [newSchema] : [], ...has('update') ? [patchSchema] : []]
  for (const component of new Set(components)) app.addSchema(component)
  const store = await openStore(app, definition, options.store)
  const handlers = handlersOf(storeOf(app, definition, store), definition)
  const canCreateMany = typeof store === 'function' || store.appendAll !== undefined
  if (!canCreateMany && options.operations?.includes('createMany')) cannotCreateMany(definition.name)
  // The options that a host has for one new record, such as hooks, may not be right for many.
  const hasOwnCreate = options.routes?.create !== undefined && options.routes.createMany === undefined
  const offered = options.operations ?? operations.filter(operation => operation !== 'createMany' || (canCreateMany && !hasOwnCreate))
  const prepareBody = bodyPreparation(definition)
  const schemas = schemasOf(definition)

  for (const operation of offered) {
    const schema = schemas[operation]
    const { schema: ownSchema, preValidation = [], onSend = [], ...own } = { ...options.routes?.[operation] }
    const config = { ...own.config, collection: definition.name }
    const ofMany = operation === 'createMany' ? '/batch' : app.prefix === '' ? '/' : ''
    const names = namesIn(app, operation + (['list', 'createMany'].includes(operation) ? Many : One), definition.name)
    app.route({
      ...routeDefaults,
      method: methods[operation],
      url: schema.params ? `/:${idParameter}` : ofMany,
      ...own,
      config,
      schema: { ...names, ...schema, ...ownSchema },
      preValidation: [preValidation, schema.body ? prepareBody ?? [] : []].flat(),
      onSend: [onSend, operation === 'list' ? compress : []].flat(),
      handler: hidingHandler(handlers[operation], definition)
    })
  }
}

/** The schemas of the routes of a collection, which are also in the document. */
function schemasOf (definition: CheckedDefinition): Record<Operation, FastifySchema> {
  const { responseSchema: schema, newSchema, patchSchema, idSource, idParameter, words: { one, many } } = definition
  const params = Type.Object({ [idParameter]: PathId })
  const location = { Location: Type.String({ description: `The URL of the ${one}, relative to the URL of the request` }) }
  const mayRepeat = !uniqueFields(definition).includes('id')
  const whichRecord = mayRepeat ? `If several ${many} have this id, it is the one that was created first.` : ''
  const thisRecord = mayRepeat ? `The first ${one} with this id` : `The ${one} with this id`
  const whoChoosesId = idSource === 'client' ? 'The client chooses the id. It need not be unique.' : 'The service generates a unique id. An id in the body is ignored.'
  const changed = ref(schema, { description: `The stored ${one}`, headers: etagHeader })
  const change = { params, headers: ChangeHeaders, response: { 200: changed, ...errorResponses(404, 409, 412, 413) } }

  return {
    list: {
      summary: `List all ${many}`,
      description: `The ${many} are in order of creation${definition.filters.length > 0 ? ', or in that of `sort`' : ''}. With \`limit\`, the response is one page, and its \`Link\` header leads to the next page.`,
      querystring: listQueryOf(definition.schema, definition.queried, definition.filters),
      headers: ReadingHeaders,
      response: {
        200: definition.queried.length > 0
          ? listOf(schema, `The ${many} that match, or one page`, totalHeader)
          : listOf(schema, `All ${many}, or one page, in order of creation`),
        304: notModified,
        ...errorResponses(412)
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
        ...errorResponses(404, 412)
      }
    },

    create: {
      summary: `Create ${/^[aeio]/.test(one) ? 'an' : 'a'} ${one}`,
      description: whoChoosesId,
      headers: CreationHeaders,
      body: ref(newSchema),
      response: {
        201: ref(schema, { description: `The stored ${one}`, headers: location }),
        ...errorResponses(409, 412, 413, 422),
        409: conflictOrKeyInUse
      }
    },

    createMany: {
      summary: `Create many ${many}`,
      description: `All ${many} are created or none, in this order and next to each other. ${whoChoosesId}`,
      headers: CreationHeaders,
      body: Type.Array(ref(newSchema), { minItems: 1, maxItems: maxRecords }),
      response: {
        201: Type.Array(ref(schema), { description: `The stored ${many}` }),
        ...errorResponses(409, 412, 413, 422)
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
