import { createRequire } from 'node:module'
import swagger, { type SwaggerTransformObject } from '@fastify/swagger'
import fp from 'fastify-plugin'
import { nameOf } from '../../schemas/component.js'
import { details, ErrorBody } from '../../schemas/errors.js'
import redoc from './redoc.js'
import swaggerUi from './swagger-ui.js'

const { name, description, license, version } = createRequire(import.meta.url)('#package.json')
const title = 'Items and users'

/** The pages load everything from this server. Both use inline styles. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'",
  'worker-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'"
].join('; ')

/**
 * Serves the OpenAPI document of the routes that are registered after it at `/openapi.json`, Swagger UI at `/docs` and
 * Redoc at `/redoc`. All links are relative, so that they work behind a proxy that strips a path prefix.
 */
export default fp(async function docs (app) {
  // The relative path from the document to the base of the paths in it.
  const up = app.prefix.split('/').slice(1).map(() => '..').join('/')

  app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title,
        description,
        version,
        contact: { name },
        license: { name: license, identifier: license }
      },
      servers: [{ url: up || '.', description: 'This service' }],
      security: [],
      tags: [
        { name: 'items', description: 'Items with a name and a price' },
        { name: 'users', description: 'Users with a name' },
        { name: 'health', description: 'Probes for orchestrators and load balancers' }
      ]
    },
    // @fastify/swagger would parse the relative server URL as an absolute one.
    stripBasePath: false,
    transformObject: complete,
    refResolver: { buildLocalReference: json => componentName(String(json.$id)) }
  })

  app.get('/openapi.json', { schema: { hide: true } }, async function openapi () {
    return app.swagger()
  })

  app.register(swaggerUi, { title, contentSecurityPolicy })
  app.register(redoc, { prefix: '/redoc', title, contentSecurityPolicy })

  /** The name of a component: the short name, unless the app has a schema with this name. */
  function componentName ($id: string) {
    const name = nameOf($id)
    return app.getSchema(name) === undefined ? name : $id
  }
}, { fastify: '5.x', name: 'fastify-items-users/docs' })

/** The parts of an OpenAPI document that are used here. */
interface Document {
  components: { schemas: Record<string, { examples?: unknown[] }>, securitySchemes?: object }
  tags: { name: string, description?: string }[]
  paths: Record<string, Record<string, Operation>>
}

interface Operation {
  tags?: string[]
  security?: object[]
  requestBody?: Body
  responses: Record<string, Body>
}

interface Body {
  headers?: Record<string, unknown>
  content?: Record<string, { schema: { $ref?: string }, example?: unknown }>
}

/** `4XX` in the document stands for the responses of Node and Fastify to invalid HTTP. */
const exampleDetails: Record<string, string> = { ...details, '4XX': details[431] }

/**
 * Completes the generated document: adds an example for every body that is a component, because @fastify/swagger drops
 * what is next to a `$ref`, and the security scheme of the operations with our 401 response.
 */
function complete (generated: Parameters<SwaggerTransformObject>[0]) {
  const document: Document = JSON.parse(JSON.stringify(Object.values(generated)[0]))
  const { components } = document
  const operations = Object.values(document.paths).flatMap(path => Object.values(path))
  describeVersions(document.tags, operations.flatMap(({ tags = [] }) => tags))
  for (const operation of operations) {
    if (operation.responses[401]?.headers?.['WWW-Authenticate'] && !operation.security) {
      operation.security = [{ bearer: [] }]
      components.securitySchemes ??= { bearer: { type: 'http', scheme: 'bearer' } }
    }
    for (const [status, body] of Object.entries({ ...operation.responses, request: operation.requestBody })) {
      for (const media of Object.values(body?.content ?? {})) {
        const name = String(media.schema.$ref?.split('/').at(-1))
        const example = nameOf(name) === nameOf(ErrorBody.$id) ? { detail: exampleDetails[status] } : components.schemas[name]?.examples?.[0]
        if (example) media.example = example
      }
    }
  }
  return document as object
}

/** Describes the tags of further prefixes, such as `items (/api/v1)`, like the tag without a prefix. */
function describeVersions (tags: Document['tags'], used: string[]) {
  for (const name of new Set(used)) {
    const tag = tags.find(tag => name.startsWith(`${tag.name} (`))
    if (tag) tags.push({ ...tag, name })
  }
}
