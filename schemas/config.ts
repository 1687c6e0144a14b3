import { Type, type Static } from '@sinclair/typebox'
import { oneOf } from './http.js'

/** What holds of a database unless it is said otherwise. */
export const databaseDefaults = { timeout: 5000, connections: 10 }

/** Every environment variable that the service reads. */
export const Config = Type.Object({
  HOST: Type.String({
    default: '127.0.0.1',
    minLength: 1,
    description: 'The address to listen on; `0.0.0.0` or `::` for every one'
  }),
  PORT: Type.Integer({
    default: 3000,
    minimum: 0,
    maximum: 65535,
    description: 'The port to listen on; `0` for any that is free'
  }),
  LOG_LEVEL: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    description: 'The least severe log lines to write; requests are logged at `info`'
  }),
  API_PREFIX: Type.String({
    default: '/api',
    pattern: '^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$',
    description: 'a path such as `/api`, under which the collections are served'
  }),
  DATABASE_URL: Type.String({
    default: 'memory',
    pattern: '^(memory$|sqlite:.|postgres(ql)?://)',
    description: '`memory`, `sqlite:PATH` or `postgres://…`, where the collections are kept'
  }),
  DATABASE_TIMEOUT: Type.Integer({
    default: databaseDefaults.timeout,
    minimum: 1,
    maximum: 600_000,
    description: 'How long a database may take to answer, in milliseconds'
  }),
  DATABASE_CONNECTIONS: Type.Integer({
    default: databaseDefaults.connections,
    minimum: 2,
    description: 'How many connections to PostgreSQL there may be, at least 2'
  }),
  BODY_LIMIT: Type.Integer({
    default: 1024 * 1024,
    minimum: 1,
    description: 'The largest request body, in bytes'
  }),
  DOCS: Type.Boolean({
    default: true,
    description: 'Whether to serve `/docs`, `/redoc` and `/openapi.json`'
  })
})

export type Config = Static<typeof Config>
