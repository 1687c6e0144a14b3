import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import errors from './errors.js'
import guardResponses from './guard-responses.js'
import jsonBody from './json-body.js'
import operationIds from './operation-ids.js'
import { metadata } from './plugin.js'
import prefixParameters from './prefix-parameters.js'
import swaggerTransform from './swagger-transform.js'
import validation from './validation.js'

const applied = Symbol('api defaults')

/** Body parsing, validation and errors for the routes of a scope, independent of what the host uses for its own routes. */
const apiDefaults = fp(async function apiDefaults (app) {
  app.decorate(applied, true)
  app.register(operationIds)
  app.register(prefixParameters)
  app.register(guardResponses)
  app.register(swaggerTransform)
  app.register(validation)
  app.register(errors)
  app.register(jsonBody)
}, metadata('api-defaults'))

/** Applies the defaults to a scope, unless a parent scope has them. */
export async function applyApiDefaults (app: FastifyInstance) {
  if (!app.hasDecorator(applied)) await app.register(apiDefaults)
}
