import { posix } from 'node:path'
import type { SwaggerTransform, SwaggerTransformObject } from '@fastify/swagger'
import type { FastifySchema, RouteOptions } from 'fastify'
import fp from 'fastify-plugin'
import { schemaName } from '../../schemas/fields.js'
import { defineBearerScheme, metadata } from '../common/plugin.js'
import { StartupError } from '../common/startup.js'
import { version } from '../common/version.js'
import pages, { serverSeenFrom } from './pages.js'

type SecurityScheme =
  | { type: 'http', scheme: string, bearerFormat?: string, description?: string }
  | { type: 'apiKey', in: 'cookie' | 'header' | 'query', name: string, description?: string }
  | { type: 'oauth2', flows: object, description?: string }
  | { type: 'openIdConnect', openIdConnectUrl: string, description?: string }

export interface DocsOptions {
  /** Path of the document and the pages, such as `/manual`. */
  prefix?: string | undefined
  /** Title of the document and of the pages. */
  title?: string | undefined
  /** Description in the document. */
  description?: string | undefined
  /** Version of your API. */
  version?: string | undefined
  /** Servers of your API. Default: the server of the document. */
  servers?: { url: string, description?: string }[] | undefined
  /** Security schemes by name, for the `security` of your routes and the option `securityScheme` of `auth`. */
  securitySchemes?: Record<string, SecurityScheme> | undefined
  /** The `transform` of @fastify/swagger for your routes, such as that of fastify-type-provider-zod. */
  transform?: Transforming['transform'] | undefined
  /** Path of the document. Default: `/openapi.json`. */
  document?: string | undefined
  /** Path of Swagger UI, or `false`. Default: `/docs`. */
  swaggerUi?: string | false | undefined
  /** Path of Redoc, or `false`. Default: `/redoc`. */
  redoc?: string | false | undefined
}

/** A method, so that functions with a more precise argument fit. */
interface Transforming {
  transform (route: { schema: FastifySchema, url: string, route: RouteOptions }): { schema: FastifySchema, url: string }
}

interface Document {
  paths: Record<string, Record<string, { tags?: string[] }>>
}

/** What the document says about this package. */
const info = {
  title: 'Items and users',
  description: 'Items and users over HTTP: a schema-first Fastify plugin, a server and an image.',
  version,
  contact: { name: 'fastify-items-users' },
  license: { name: 'MIT', identifier: 'MIT' }
}

/**
 * Serves the OpenAPI document of the routes that are registered after it at `/openapi.json`, Swagger UI at `/docs` and
 * Redoc at `/redoc`. All links are relative, so that they work behind a proxy that strips a path prefix.
 */
export default fp<DocsOptions>(async function docs (app, options) {
  if (app.hasDecorator('swagger')) {
    throw new StartupError('The plugin docs and @fastify/swagger cannot document the same routes. ' +
      'Register only one of them.')
  }
  const { prefix = '', document = '/openapi.json', servers } = options
  const components = options.securitySchemes ? { securitySchemes: options.securitySchemes } : {}
  app.decorate(defineBearerScheme, () => {
    const bearer = { type: 'http', scheme: 'bearer' }
    Object.assign(components, { securitySchemes: { bearer, ...options.securitySchemes } })
    return 'bearer'
  })

  app.register(import('@fastify/swagger'), {
    openapi: {
      openapi: '3.1.0',
      info: infoOf(options),
      components,
      servers: servers ?? [serverSeenFrom(posix.join(app.prefix, prefix, document))],
      security: []
    },
    // @fastify/swagger would parse the relative server URL as an absolute one.
    stripBasePath: false,
    ...options.transform && { transform: options.transform as SwaggerTransform },
    transformObject: withTags,
    refResolver: {
      // The short name, unless the app has a schema with this name.
      buildLocalReference ({ $id }) {
        const short = schemaName(String($id))
        return app.getSchema(short) ? String($id) : short
      }
    }
  })
  const { title = info.title, swaggerUi = '/docs', redoc = '/redoc' } = options
  app.register(pages, { prefix, title, document, swaggerUi, redoc, servers })
}, metadata('docs'))

/** With a title of its own, it is the API of the host. */
function infoOf ({ title, description, version = info.version }: DocsOptions) {
  if (title) return { title, description, version }
  return { ...info, description: description ?? info.description, version }
}

/** Lists the tags in the order of their routes, with those of the probes at the end. */
function withTags (generated: Parameters<SwaggerTransformObject>[0]) {
  const document: Document = Object.values(generated)[0]
  const operations = Object.values(document.paths).flatMap(path => Object.values(path))
  const names = new Set(operations.flatMap(({ tags = [] }) => tags))
  const tags = [...names].toSorted((one, other) => Number(one === 'health') - Number(other === 'health'))
  return { ...document, tags: tags.map(name => ({ name })) } as object
}
