import { Type } from '@sinclair/typebox'
import { custom, type OptionSchemas } from '../http/plugin.js'

const Text = Type.Optional(Type.String({ minLength: 1 }))

/** A path such as `/docs`. */
const path = /^(\/[\w.~-]+)+$/

type SecurityScheme =
  | { type: 'http', scheme: string, bearerFormat?: string, description?: string }
  | { type: 'apiKey', in: 'cookie' | 'header' | 'query', name: string, description?: string }
  | { type: 'oauth2', flows: object, description?: string }
  | { type: 'openIdConnect', openIdConnectUrl: string, description?: string }

/** Options of the plugin `docs`. */
export interface DocsOptions {
  /** Title of the document and of the pages. */
  title?: string
  /** Description in the document. */
  description?: string
  /** Version of your API. */
  version?: string
  /** Servers of your API. A relative URL starts from the document. Default: the server of the document. */
  servers?: { url: string, description?: string }[]
  /** Security schemes by name, for the `security` of your routes and the option `securityScheme` of `auth`. */
  securitySchemes?: Record<string, SecurityScheme>
  /** Path of the document. Default: `/openapi.json`. */
  document?: string
  /** Path of Swagger UI, or `false`. Default: `/docs`. */
  swaggerUi?: string | false | undefined
  /** Path of Redoc, or `false`. Default: `/redoc`. */
  redoc?: string | false | undefined
}

export const docsOptions: OptionSchemas<DocsOptions> = {
  title: Text,
  description: Text,
  version: Text,
  servers: Type.Optional(Type.Array(Type.Object({ url: Type.String(), description: Type.Optional(Type.String()) }))),
  securitySchemes: Type.Optional(Type.Record(Type.String(), Type.Object({ type: Type.String() }))),
  document: Type.Optional(custom('a path such as /openapi.json', isPath)),
  swaggerUi: Type.Optional(custom('a path such as /docs, or false', value => value === false || isPath(value))),
  redoc: Type.Optional(custom('a path such as /redoc, or false', value => value === false || isPath(value)))
}

function isPath (value: unknown) {
  return typeof value === 'string' && path.test(value)
}
