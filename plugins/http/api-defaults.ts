import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import errors from './errors.js'
import json from './json-body.js'
import operationIds from './operation-ids.js'
import validation from './validation.js'

const name = 'fastify-items-users/api-defaults'

/** What our routes stand on: requests are read, validated and refused in one way, whatever a host does with its own. */
const apiDefaults = fp(async function apiDefaults (app) {
  app.register(operationIds)
  app.register(validation)
  app.register(errors)
  app.register(json)
}, { fastify: '5.x', name })

/** Has the routes of this scope stand on the contract, unless a scope around it has seen to that. */
export async function applyApiDefaults (app: FastifyInstance) {
  if (!app.hasPlugin(name)) await app.register(apiDefaults)
}
