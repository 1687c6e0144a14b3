import { Type, type Static } from '@sinclair/typebox'
import { oneOf } from './fields.js'

/** What holds of a database unless it is said otherwise. */
export const databaseDefaults = { timeout: 5000, poolSize: 10 }

/** A pattern for one or more of these, between commas. */
function listOf (pattern: string) {
  return `(${pattern})(,(${pattern}))*`
}

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
    pattern: `^${listOf('(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+')}$`,
    description: 'a path such as `/api`, or several between commas, under which the collections are served'
  }),
  ID_SOURCE: oneOf(['client', 'server'], {
    default: 'client',
    description: 'Who gives a record its id: the client that creates it, or the service'
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
  DATABASE_POOL_SIZE: Type.Integer({
    default: databaseDefaults.poolSize,
    minimum: 2,
    maximum: 1000,
    description: 'How many connections to PostgreSQL there may be, at least 2'
  }),
  BODY_LIMIT: Type.Integer({
    default: 1024 * 1024,
    minimum: 1,
    maximum: 2 ** 28,
    description: 'The largest request body, in bytes'
  }),
  DOCS: Type.Boolean({
    default: true,
    description: 'Whether to serve `/docs`, `/redoc` and `/openapi.json`'
  }),
  AUTH_TOKENS: Type.Optional(Type.String({
    pattern: `^${listOf('[A-Za-z0-9._~+/-]+=*')}$`,
    description: 'tokens between commas, of letters, digits and `-._~+/=`, one of which a request must bear'
  })),
  AUTH_TOKENS_FILE: Type.Optional(Type.String({
    minLength: 1,
    description: 'A file of such tokens, which is read again when it changes'
  })),
  RATE_LIMIT_MAX: Type.Optional(Type.Integer({
    minimum: 1,
    maximum: 1_000_000_000,
    description: 'How many requests a client may make in a window'
  })),
  RATE_LIMIT_WINDOW: Type.Integer({
    default: 60_000,
    minimum: 1,
    maximum: 86_400_000,
    description: 'How long a window is, in milliseconds'
  }),
  REDIS_URL: Type.Optional(Type.String({
    format: 'redis',
    description: 'a URL such as `redis://host:6379`, where many instances count requests together'
  })),
  TRUST_PROXY: Type.Optional(Type.String({
    format: 'networks',
    description: 'addresses or ranges between commas, such as `10.0.0.0/8`, of the proxies whose `X-Forwarded-For` is believed'
  })),
  CORS_ORIGIN: Type.Optional(Type.String({
    pattern: `^(\\*|${listOf('https?://[^\\s,/?#]+')})$`,
    description: '`*` or origins such as `https://example.com` between commas, whose pages may use the service'
  })),
  SECURITY_HEADERS: Type.Boolean({
    default: false,
    description: 'Whether the API sends the headers of helmet'
  }),
  METRICS_PORT: Type.Optional(Type.Integer({
    minimum: 0,
    maximum: 65535,
    description: 'The port to serve `/metrics` on, for Prometheus; `0` for any that is free'
  })),
  MAX_EVENT_LOOP_DELAY: Type.Optional(Type.Integer({
    minimum: 1,
    maximum: 60_000,
    description: 'How late the event loop may be before the API answers 503, in milliseconds'
  })),
  SHUTDOWN_DELAY: Type.Integer({
    default: 0,
    minimum: 0,
    maximum: 600_000,
    description: 'How long to go on serving after a signal to end, with `/readyz` at 503, in milliseconds'
  }),
  SHUTDOWN_TIMEOUT: Type.Integer({
    default: 8000,
    minimum: 1,
    maximum: 600_000,
    description: 'How long requests may take to finish after that, in milliseconds'
  })
}, {
  dependencies: { REDIS_URL: ['RATE_LIMIT_MAX'] }
})

export type Config = Static<typeof Config>
