import { Type, type Static } from '@sinclair/typebox'
import { oneOf } from './fields.js'

/** The defaults of the options that `stores` and the environment share. */
export const databaseDefaults = { timeout: 5000, poolSize: 10 }

/** The smallest file with a collection. */
export const collectionsExample =
  '{"orders": {"schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}}'

/** A token for `AUTH_TOKENS`, with or without a name. The characters are those of RFC 6750, without a colon. */
export const namedToken = {
  pattern: '([A-Za-z0-9._~+/-]+:)?[A-Za-z0-9._~+/-]+=*',
  expected: 'TOKEN or NAME:TOKEN, of letters, digits and -._~+/, with = only at the end'
}

/** What a token allows: `read` is GET and HEAD, `write` everything. With a name, only in this collection. */
export const scope = {
  pattern: '([A-Za-z0-9_-]+:)?(read|write)',
  expected: 'read, write, COLLECTION:read or COLLECTION:write'
}

/** A pattern for one or more of these, separated by commas. */
function listOf (pattern: string) {
  return `(${pattern})(,(${pattern}))*`
}

function integer ([minimum, maximum]: [number, number], description: string, value?: number) {
  return Type.Integer({ minimum, maximum, description, ...value !== undefined && { default: value } })
}

function text (description: string) {
  return Type.Optional(Type.String({ minLength: 1, description }))
}

/**
 * Every environment variable that the service reads. `description` is for the documentation; `expected` completes the
 * error message "NAME must be …" if a pattern or format does not match.
 */
export const Config = Type.Object({
  HOST: Type.String({
    default: '127.0.0.1',
    minLength: 1,
    description: 'Address to listen on; `0.0.0.0` or `::` for all addresses'
  }),
  PORT: integer([0, 65535], 'Port to listen on; `0` for any free port', 3000),
  LOG_LEVEL: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    description: 'Lowest level that is logged; requests are logged at `info`'
  }),
  API_PREFIX: Type.String({
    default: '/api',
    pattern: `^${listOf('(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+')}$`,
    expected: 'a path such as /api, or several paths separated by commas',
    description: 'Path of the collections, or several paths separated by commas'
  }),
  API_TITLE: text('Title of the API in its documentation; the default names the collections'),
  API_VERSION: text('Version of the API in its documentation; the default is that of the service'),
  API_DESCRIPTION: text('Description of the API in its documentation, as Markdown'),
  ID_SOURCE: oneOf(['client', 'server'], {
    default: 'client',
    description: 'Who chooses the id of a new item or user: the `client`, or the `server`'
  }),
  COLLECTIONS_FILE: text(`JSON file with your own collections, such as \`${collectionsExample}\``),
  DATABASE_URL: Type.String({
    default: 'memory',
    pattern: '^(memory$|sqlite:.|postgres(ql)?://)',
    expected: 'memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE',
    description: 'Where data is stored: `memory`, `sqlite:PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`'
  }),
  DATABASE_TIMEOUT: integer(
    [1, 600_000], 'Maximum time for the database operations of a request, in milliseconds', databaseDefaults.timeout
  ),
  DATABASE_POOL_SIZE: integer(
    [2, 1000], 'Maximum number of connections to PostgreSQL, at least 2', databaseDefaults.poolSize
  ),
  SEED: Type.Boolean({ default: true, description: 'Adds the initial records to a new store; `false` starts empty' }),
  SEED_FILE: text('JSON file with other initial records, such as `{"items":[],"users":[]}`'),
  BODY_LIMIT: integer([1, 2 ** 28], 'Maximum size of a request body, in bytes', 1024 * 1024),
  DOCS: Type.Boolean({ default: true, description: 'Serves `/docs`, `/redoc` and `/openapi.json`' }),
  AUTH_TOKENS: Type.Optional(Type.String({
    pattern: `^${listOf(namedToken.pattern)}$`,
    expected: `tokens separated by commas, each ${namedToken.expected}`,
    description: 'Bearer tokens that are accepted, separated by commas; `NAME:TOKEN` gives a token a name for the log'
  })),
  AUTH_TOKENS_FILE: text(
    'File with one such token per line, and its scopes after spaces; changes take effect without a restart'
  ),
  PUBLIC_SCOPES: Type.Optional(Type.String({
    pattern: `^${listOf(scope.pattern)}$`,
    expected: `scopes separated by commas, each ${scope.expected}`,
    description: 'What requests without a token may do, such as `read` or `orders:read`, separated by commas'
  })),
  RATE_LIMIT_MAX: Type.Optional(integer([1, 1_000_000_000], 'Maximum number of requests per client and time window')),
  RATE_LIMIT_WINDOW: integer([1, 86_400_000], 'Length of the time window, in milliseconds', 60_000),
  REDIS_URL: Type.Optional(Type.String({
    format: 'redis',
    expected: 'a URL such as redis://host:6379',
    description: 'Redis that all instances count requests in, such as `redis://host:6379`; needs `RATE_LIMIT_MAX`'
  })),
  TRUST_PROXY: Type.Optional(Type.String({
    format: 'networks',
    expected: 'IP addresses or ranges such as 10.0.0.0/8, separated by commas',
    description: 'IP addresses or ranges of your proxies, separated by commas; ' +
      'their `X-Forwarded-*` headers are trusted'
  })),
  CORS_ORIGIN: Type.Optional(Type.String({
    pattern: `^(\\*|${listOf('https?://[^\\s,/?#]+')})$`,
    expected: '* or origins such as https://example.com, separated by commas',
    description: 'Origins whose pages may use the API, separated by commas, or `*` for all'
  })),
  SECURITY_HEADERS: Type.Boolean({
    default: false,
    description: 'Adds the security headers of helmet to API responses'
  }),
  METRICS_PORT: Type.Optional(integer([0, 65535], 'Port for Prometheus metrics at `/metrics`; `0` for any free port')),
  METRICS_HOST: Type.String({
    default: '127.0.0.1',
    minLength: 1,
    description: 'Address for the metrics to listen on'
  }),
  MAX_EVENT_LOOP_DELAY: Type.Optional(
    integer([1, 60_000], 'Event loop delay above which the API answers 503, in milliseconds')
  ),
  SHUTDOWN_DELAY: integer([0, 600_000], 'Time to keep serving after SIGTERM with `/readyz` at 503, in milliseconds', 0),
  SHUTDOWN_TIMEOUT: integer([1, 600_000], 'Maximum time for requests to finish after that, in milliseconds', 8000)
}, {
  dependentRequired: { REDIS_URL: ['RATE_LIMIT_MAX'] }
})

export type Config = Static<typeof Config>
