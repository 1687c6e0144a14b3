import type { TSchema } from '@sinclair/typebox'
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { ConflictingRequest } from '../../schemas/error-body.js'
import { storeOf, type StoreOrFunction } from '../host-stores.js'
import api, { namesIn } from '../http/api.js'
import { compressed, routeDefaults } from '../http/responses.js'
import { repeatable } from '../common/plugin.js'
import { StartupError } from '../common/startup.js'
import { openStore } from '../stores.js'
import { digestOfBody, requestDigest } from './creating-handlers.js'
import {
  checkDefinition, methods, type CheckedDefinition, type Definition, type LooseDefinition, type Operation
} from '../definition/definition.js'
import { handlersOf } from './handlers.js'
import { relatedRecords } from './related-records.js'
import { parametersIn, schemasOf } from './route-schemas.js'

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
  const handlers = handlersOf(storeOf(app, store), definition, relatedRecords(app, definition))
  const schemas = schemasOf(definition, app.prefix)

  for (const operation of offeredOperations(options, definition, store)) {
    const schema = schemas[operation]
    const { schema: hostSchema, preValidation, ...hostOptions } = { ...options.routes?.[operation] }
    const hostHooks = [preValidation ?? []].flat()
    const hooks = schema.body ? [digestOfBody, ...hostHooks, ignoreReadOnly] : hostHooks
    const config = { swaggerTransform: false as const, ...hostOptions.config, collection: definition.name }
    app.route({
      ...routeDefaults,
      method: methods[operation],
      url: urlOf(operation, definition, app.prefix),
      // The ETag of a record is strong, so it has only one coding.
      ...operation === 'list' || operation === 'summary' ? compressed() : { compress: false },
      ...hostOptions,
      config,
      schema: {
        ...operationNames(operation, definition, app.prefix),
        ...schema,
        response: errorHandler ? schema.response : successesIn(schema.response),
        ...hostSchema
      },
      ...hooks.length > 0 && { preValidation: hooks },
      handler: handlers[operation]
    })
  }

  /** Removes readOnly fields that a client has sent. A `preHandler` can set them. */
  function ignoreReadOnly ({ body }: FastifyRequest, _reply: FastifyReply, done: () => void) {
    for (const name of definition.readOnly) {
      for (const record of [body].flat()) Reflect.deleteProperty(Object(record), name)
    }
    done()
  }
}

function checkPrefix (prefix: string, { name, idParameter }: CheckedDefinition) {
  if (!parametersIn(prefix).includes(idParameter)) return
  throw new StartupError(`Invalid collection ${name}: the prefix ${prefix} has a parameter ${idParameter}, too. ` +
    'Set the option idParameter to another name.')
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
function offeredOperations (options: Definition, definition: CheckedDefinition, store: StoreOrFunction) {
  // Stores of a host have no summaries.
  const hasSummaries = typeof store !== 'function' && store.summarize !== undefined
  const operations = definition.operations.filter(operation => operation !== 'summary' || hasSummaries)
  // The options that a host has for one new record, such as hooks, may not be right for many.
  const hasOwnCreate = options.routes?.create !== undefined && options.routes.createMany === undefined
  if (options.operations) return operations
  if (!hasOwnCreate) return operations
  return operations.filter(operation => operation !== 'createMany')
}

function urlOf (operation: Operation, { idParameter }: CheckedDefinition, prefix: string) {
  if (operation === 'createMany') return '/batch'
  if (operation === 'summary') return '/summary'
  if (operation === 'list' || operation === 'create') return prefix === '' ? '/' : ''
  return `/:${idParameter}`
}

/** The operation id and the tag. The name of the collection at the end of a prefix is not repeated in them. */
function operationNames (operation: Operation, { name, words: { One, Many } }: CheckedDefinition, prefix: string) {
  const ofMany = operation === 'list' || operation === 'createMany' || operation === 'summary'
  const base = prefix.replace(new RegExp(`/${name.replaceAll('_', '[-_]')}$`), '')
  return namesIn(base, operation + (ofMany ? Many : One), name)
}

/** The responses of a route whose errors a host answers in its own format. */
function successesIn (responses: unknown) {
  return Object.fromEntries(Object.entries(Object(responses)).filter(([status]) => Number(status) < 400))
}

export default repeatable(collection)
