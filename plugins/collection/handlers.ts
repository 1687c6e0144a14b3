import type { FastifyRequest } from 'fastify'
import type { Id, JsonStore } from '../stores/store.js'
import { changingHandlers } from './changing-handlers.js'
import { creatingHandlers } from './creating-handlers.js'
import type { CheckedDefinition } from '../definition/definition.js'
import { readingHandlers } from './reading-handlers.js'
import { recordRules, type RecordRules } from '../definition/record-rules.js'
import type { RelatedRecords } from './related-records.js'

/** What the handlers of a collection need. Each request has its store. */
export interface Access {
  definition: CheckedDefinition
  rules: RecordRules
  storeOf (request: FastifyRequest): JsonStore
  idOf (request: FastifyRequest): Id
}

/** Returns the handlers of the operations of a collection. */
export function handlersOf (storeOf: Access['storeOf'], definition: CheckedDefinition, addRelated: RelatedRecords) {
  const access: Access = {
    definition,
    rules: recordRules(definition.schema),
    storeOf,
    idOf: ({ params }) => (params as Record<string, Id>)[definition.idParameter] as Id
  }
  return { ...readingHandlers(access, addRelated), ...creatingHandlers(access), ...changingHandlers(access) }
}
