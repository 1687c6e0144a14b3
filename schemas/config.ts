import { Type, type Static } from '@sinclair/typebox'
import { oneOf } from './http.js'

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
