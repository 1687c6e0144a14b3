import Fastify, { type FastifyServerOptions } from 'fastify'
import type { Test } from 'tap'
import { definitions } from '../../plugins/definitions.js'
import { operations as allOperations, type Definition } from '../../plugins/definition/definition.js'
import { buildApp } from '../../src/app.js'
import { readConfig } from '../../src/read-config.js'
import type { DestinationStream } from 'pino'
import { loggerOptions } from '../../src/logger.js'
import { checkAnswers } from './document.js'
import { recordOf, type Generated } from './values.js'

/**
 * The service with these environment variables. It is closed when the test ends, and its responses are validated
 * against its document.
 */
export function build (t: Test, env: NodeJS.ProcessEnv = {}, log?: DestinationStream) {
  const config = readConfig({ LOG_LEVEL: 'silent', DATABASE_TIMEOUT: '60000', ...env })
  const app = buildApp(config, log && loggerOptions(config.LOG_LEVEL, log))
  if (env.DOCS !== 'false') checkAnswers(t, app, JSON.stringify({ ...env, DATABASE_URL: '' }))
  t.teardown(() => app.close())
  return app
}

/** An app of a host. It is closed when the test ends. */
export function host (t: Test, options: FastifyServerOptions & { http?: object } = {}) {
  const app = Fastify({ pluginTimeout: 0, ...options }) // a busy machine takes longer than the default
  t.teardown(() => app.close())
  return app
}

/** The collections of the service, each with its initial record and a record to create. */
export const collections = (definitions as readonly Definition[]).map(function forTests (definition) {
  const { name, schema, seed: [initial] = [], idParameter = 'id', operations = allOperations } = definition
  const record = recordOf(schema, 7)
  return { path: `/api/${name}`, schema, idParameter, operations, initial: { ...initial as Generated }, record }
})

/** The path and query that a link in a response leads to. */
export function followed (link: unknown, url: string) {
  const { pathname, search } = new URL(String(link), `http://localhost${url}`)
  return pathname + search
}

/** All features enabled. */
export const everything = {
  API_PREFIX: '/api,/api/v1',
  ID_SOURCE: 'server',
  AUTH_TOKENS: 'one',
  RATE_LIMIT_MAX: '1000',
  CORS_ORIGIN: 'https://example.com',
  SECURITY_HEADERS: 'true',
  MAX_EVENT_LOOP_DELAY: '10000'
}

/** The body of a 400. */
export function invalidBody (part: string, ...faults: [path: string, message: string][]) {
  return {
    detail: `Invalid ${part}: ${faults.map(([path, message]) => `${path.slice(1) || 'it'} ${message}`).join(', ')}.`,
    errors: faults.map(([path, message]) => ({ in: part, path, message }))
  }
}
