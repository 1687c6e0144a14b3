import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import errors from './errors.js'
import guardResponses from './guard-responses.js'
import jsonBody from './json-body.js'
import operationIds from './operation-ids.js'
import validation from './validation.js'

const applied = Symbol('api defaults')

/** Makes the routes of a scope read, validate and refuse requests in our way, whatever the host does with its own routes. */
const apiDefaults = fp(async function apiDefaults (app) {
  app.decorate(applied, true)
  app.register(operationIds)
  app.register(guardResponses)
  app.register(validation)
  app.register(errors)
  app.register(jsonBody)
}, { fastify: '5.x', name: 'fastify-items-users/api-defaults' })

/** Applies the defaults to a scope, unless a scope around it has them. */
export async function applyApiDefaults (app: FastifyInstance) {
  if (!app.hasDecorator(applied)) await app.register(apiDefaults)
}
