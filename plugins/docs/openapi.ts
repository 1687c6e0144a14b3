import { posix } from 'node:path'
import { Type, type Static, type TSchema } from '@sinclair/typebox'
import type { SwaggerTransform, SwaggerTransformObject } from '@fastify/swagger'
import type { FastifyRequest, FastifySchema, RouteOptions } from 'fastify'
import fp from 'fastify-plugin'
import { schemaName } from '../../schemas/fields.js'
import { compress } from '../http/compression.js'
import { etagOf, isNotModified, sendNotModified } from '../http/etags.js'
import { setHeaders } from '../http/responses.js'
import { checkOptions, custom, defineBearerScheme, metadata, optional } from '../plugin.js'
import { StartupError } from '../startup.js'
import { version } from '../version.js'
import { addExamples, nameOf, type Operation } from './examples.js'
import pages from './pages.js'

const Text = optional(Type.String({ minLength: 1 }))

type SecurityScheme =
  | { type: 'http', scheme: string, bearerFormat?: string, description?: string }
  | { type: 'apiKey', in: 'cookie' | 'header' | 'query', name: string, description?: string }
  | { type: 'oauth2', flows: object, description?: string }
  | { type: 'openIdConnect', openIdConnectUrl: string, description?: string }

export const DocsOptions = Type.Object({
  /** Path of the document and the pages, such as `/manual`. */
  prefix: optional(Type.String()),
  /** Title of the document and of the pages. */
  title: Text,
  /** Description in the document. */
  description: Text,
  /** Version of your API. */
  version: Text,
  /** Servers of your API. A relative URL starts from the document. Default: the server of the document. */
  servers: optional(Type.Array(Type.Object({ url: Type.String(), description: Type.Optional(Type.String()) }))),
  /** Security schemes by name, for the `security` of your routes and the option `securityScheme` of `auth`. */
  securitySchemes: optional(Type.Unsafe<Record<string, SecurityScheme>>(Type.Record(Type.String(), Type.Object({ type: Type.String() })))),
  transform: optional(custom('a function', value => typeof value === 'function')),
  /** Path of the document. Default: `/openapi.json`. */
  document: optional(custom<string>('a path such as /openapi.json', isPath)),
  /** Path of Swagger UI, or `false`. Default: `/docs`. */
  swaggerUi: optional(custom<string | false>('a path such as /docs, or false', value => value === false || isPath(value))),
  /** Path of Redoc, or `false`. Default: `/redoc`. */
  redoc: optional(custom<string | false>('a path such as /redoc, or false', value => value === false || isPath(value)))
})
export interface DocsOptions extends Omit<Static<typeof DocsOptions>, 'transform'> {
  /** The `transform` of @fastify/swagger for your routes, such as that of fastify-type-provider-zod. */
  transform?: Transforming['transform'] | undefined
}

/** A method, so that functions with a more precise argument fit. (The type of @fastify/swagger would add its decorators to the types of every host.) */
interface Transforming {
  transform (route: { schema: FastifySchema, url: string, route: RouteOptions }): { schema: FastifySchema, url: string }
}

function isPath (value: unknown) {
  return typeof value === 'string' && /^(\/[\w.~-]+)+$/.test(value)
}

/** What the document says about this package. */
const info = {
  title: 'Items and users',
  description: 'Items and users over HTTP: a schema-first Fastify plugin, a server and an image.',
  version,
  contact: { name: 'fastify-items-users' },
  license: { name: 'MIT', identifier: 'MIT' }
}

/** The document is kept for so many addresses of the service. */
const maxServers = 20

/**
 * Serves the OpenAPI document of the routes that are registered after it at `/openapi.json`, Swagger UI at `/docs` and
 * Redoc at `/redoc`. All links are relative, so that they work behind a proxy that strips a path prefix.
 */
export default fp<DocsOptions>(async function docs (app, options) {
  checkOptions(app, 'docs', DocsOptions, options)
  if (app.hasDecorator('swagger')) throw new StartupError('The plugin docs and @fastify/swagger cannot document the same routes. Register only one of them.')
  const { title = info.title, description, version = info.version, document = '/openapi.json', prefix = '' } = options
  const path = posix.join('/', prefix, document)
  // The relative path from the document to the base of the paths in it.
  const up = posix.relative(posix.dirname(app.prefix + path), '/') || '.'
  const server = { url: up, description: 'This service' }
  const securitySchemes = { ...options.securitySchemes }
  app.decorate(defineBearerScheme, () => {
    securitySchemes.bearer ??= { type: 'http', scheme: 'bearer' }
    return 'bearer'
  })
  const documents = new Map<string | undefined, { body: Buffer, etag: string }>()

  app.register(import('@fastify/swagger'), {
    openapi: {
      openapi: '3.1.0',
      // With a title of its own, it is the API of the host.
      info: options.title ? { title, description, version } : { ...info, description: description ?? info.description, version },
      components: { securitySchemes },
      servers: options.servers ?? [server],
      security: [],
      tags: []
    },
    // @fastify/swagger would parse the relative server URL as an absolute one.
    stripBasePath: false,
    ...options.transform && { transform: options.transform as SwaggerTransform },
    transformObject: complete,
    refResolver: {
      // The short name, unless the app has a schema with this name.
      buildLocalReference: ({ $id }) => app.getSchema(schemaName(String($id))) === undefined ? schemaName(String($id)) : String($id)
    }
  })

  app.get(path, { schema: { hide: true }, onSend: compress }, async function openapi (request, reply) {
    const { protocol, host, query } = request
    const origin = `${protocol}://${host}`
    // A proxy may pass on what a client has sent as protocol and host.
    const isValid = /^https?:\/\/(\[[\da-f:.]+\]|[\w.-]+)(:\d*)?$/i.test(origin)
    // Most generators need an absolute URL. Our pages resolve the relative one, which is correct behind every proxy.
    const isAsConfigured = options.servers || !isValid || Object.hasOwn(Object(query), 'relative')
    const { body, etag } = documentAt(isAsConfigured ? undefined : origin + forwardedPrefix(request))
    if (isNotModified(request, reply, etag)) return sendNotModified(request, reply)
    setHeaders(request, reply)
    return body
  })

  /** The document as it is sent, with this server. It is built and compressed once. */
  function documentAt (url?: string) {
    const known = documents.get(url)
    if (known) return known
    if (documents.size === maxServers) documents.clear()
    const body = Buffer.from(JSON.stringify(url === undefined ? app.swagger() : { ...app.swagger(), servers: [{ ...server, url }] }))
    const built = { body, etag: `W/${etagOf(body)}` }
    documents.set(url, built)
    return built
  }

  app.register(pages, { prefix, title, document, swaggerUi: options.swaggerUi, redoc: options.redoc })
}, metadata('docs'))

/** The path prefix that a trusted proxy strips. Only for such a proxy does Fastify list more addresses than that of the connection. */
function forwardedPrefix ({ headers, ips = [] }: FastifyRequest) {
  const prefix = String(headers['x-forwarded-prefix']).replace(/\/$/, '')
  return ips.length > 1 && isPath(prefix) ? prefix : ''
}

/** The parts of an OpenAPI document that are used here. */
interface Document {
  components: { schemas: Record<string, TSchema>, securitySchemes?: object }
  tags: { name: string, description?: string }[]
  paths: Record<string, Record<string, Operation>>
}

/** Completes the generated document: adds examples, and shortens operation ids. */
function complete (generated: Parameters<SwaggerTransformObject>[0]) {
  const document: Document = JSON.parse(JSON.stringify(Object.values(generated)[0]))
  const { components } = document
  const operations = Object.values(document.paths).flatMap(path => Object.values(path))
  describeTags(document, operations)
  const ids = operations.map(({ operationId }) => operationId)
  for (const operation of operations) {
    const shortId = schemaName(operation.operationId)
    addExamples(operation, components.schemas, shortId !== (operation.operationId ?? ''))
    if (!ids.includes(shortId)) operation.operationId = shortId
  }
  if (Object.keys(Object(components.securitySchemes)).length === 0) delete components.securitySchemes
  return document as object
}

/** Lists the tags in the order of their routes, those of collections with the description of their records, and then that of the probes. */
function describeTags ({ tags, components }: Document, operations: Operation[]) {
  const names = new Set(operations.flatMap(({ tags = [] }) => tags))
  for (const name of names) {
    const bodies = operations.filter(({ tags }) => tags?.includes(name)).flatMap(({ responses }) => Object.values({ ...responses[200]?.content, ...responses[201]?.content }))
    const description = bodies.map(({ schema }) => components.schemas[nameOf(schema.items ?? schema)]?.description).find(Boolean)
    if (description || name !== 'health') tags.push({ name, ...description && { description } })
  }
  if (names.has('health') && !tags.some(({ name }) => name === 'health')) tags.push({ name: 'health', description: 'Probes for orchestrators and load balancers' })
}
