import { Type, type Static } from '@sinclair/typebox'
import { custom } from '../http/plugin.js'

const Text = Type.Optional(Type.String({ minLength: 1 }))

/** A path such as `/docs`. */
const path = /^(\/[\w.~-]+)+$/

type SecurityScheme =
  | { type: 'http', scheme: string, bearerFormat?: string, description?: string }
  | { type: 'apiKey', in: 'cookie' | 'header' | 'query', name: string, description?: string }
  | { type: 'oauth2', flows: object, description?: string }
  | { type: 'openIdConnect', openIdConnectUrl: string, description?: string }

/** Options of the plugin `docs`. */
export const DocsOptions = Type.Object({
  /** Title of the document and of the pages. */
  title: Text,
  /** Description in the document. */
  description: Text,
  /** Version of your API. */
  version: Text,
  /** Servers of your API. A relative URL starts from the document. Default: the server of the document. */
  servers: Type.Optional(Type.Array(Type.Object({ url: Type.String(), description: Type.Optional(Type.String()) }))),
  /** Security schemes by name, for the `security` of your routes and the option `securityScheme` of `auth`. */
  securitySchemes: Type.Optional(Type.Record(Type.String(), Type.Unsafe<SecurityScheme>(Type.Object({ type: Type.String() })))),
  /** Path of the document. Default: `/openapi.json`. */
  document: Type.Optional(custom<string>('a path such as /openapi.json', isPath)),
  /** Path of Swagger UI, or `false`. Default: `/docs`. */
  swaggerUi: Type.Optional(custom<string | false>('a path such as /docs, or false', value => value === false || isPath(value))),
  /** Path of Redoc, or `false`. Default: `/redoc`. */
  redoc: Type.Optional(custom<string | false>('a path such as /redoc, or false', value => value === false || isPath(value)))
})
export type DocsOptions = Static<typeof DocsOptions>

function isPath (value: unknown) {
  return typeof value === 'string' && path.test(value)
}
