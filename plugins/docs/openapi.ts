import { createRequire } from 'node:module'
import { posix } from 'node:path'
import swagger, { type SwaggerTransformObject } from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import fp from 'fastify-plugin'
import { details, ErrorBody, nameOf, type asksForToken } from '../../schemas/http.js'
import redoc from './redoc.js'

const { name, description, license, version } = createRequire(import.meta.url)('#package.json')
const title = 'Items and users'

/** The pages load everything from this server. Both style their elements in place. */
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
 * Serves the OpenAPI document of the routes that are registered after it at `/openapi.json`, and shows it at
 * `/docs` and `/redoc`. Every link is relative, so that it holds behind a proxy that strips a path prefix.
 */
export default fp(async function docs (app) {
  // From the document to where the paths in it begin.
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
        { name: 'items', description: 'Things with a price' },
        { name: 'users', description: 'People with a name' },
        { name: 'health', description: 'For whoever runs the service' }
      ]
    },
    // A relative server URL has no base path to strip, and is no URL to look for one in.
    stripBasePath: false,
    transformObject: complete,
    refResolver: { buildLocalReference: json => componentName(String(json.$id)) }
  })

  app.get('/openapi.json', { schema: { hide: true } }, async function openapi () {
    return app.swagger()
  })

  app.register(swaggerUi, {
    routePrefix: '/docs',
    indexPrefix: '.',
    staticCSP: contentSecurityPolicy,
    theme: { title },
    // The page reads a copy of the document that lies one level deeper.
    transformSpecification: ({ servers, ...document }) => ({ ...document, servers: servers.map(oneLevelDeeper) }),
    transformSpecificationClone: false
  })
  app.register(redoc, { title, contentSecurityPolicy })

  /** A schema of ours is called by its short name, unless the app has one that is called so. */
  function componentName ($id: string) {
    const name = nameOf($id)
    return app.getSchema(name) === undefined ? name : $id
  }
}, { fastify: '5.x', name: 'fastify-items-users/docs' })

function oneLevelDeeper (server: { url: string }) {
  return { ...server, url: posix.join('..', server.url) }
}

/** What is read and written of a document here. */
interface Document {
  components: { schemas: Record<string, { description?: string, examples?: unknown[] }>, securitySchemes?: object }
  paths: Record<string, Record<string, Operation>>
}

interface Operation extends Partial<typeof asksForToken> {
  security?: object[]
  requestBody?: Body
  responses: Record<string, Body>
}

interface Body {
  content?: Record<string, { schema: { $ref?: string }, example?: unknown }>
}

/** The document sums up by `4XX` what Node and Fastify refuse on their own. */
const exampleDetails: Record<string, string> = { ...details, '4XX': details[431] }

/**
 * Gives every body that is a component an example: @fastify/swagger drops what stands beside a `$ref`. And says what
 * a bearer token is, where one is asked for.
 */
function complete (generated: Parameters<SwaggerTransformObject>[0]) {
  const document: Document = JSON.parse(JSON.stringify(Object.values(generated)[0]))
  for (const operation of Object.values(document.paths).flatMap(path => Object.values(path))) {
    if (operation['x-authorization'] !== undefined) {
      delete operation['x-authorization']
      operation.security = [{ bearer: [] }]
      document.components.securitySchemes ??= { bearer: { type: 'http', scheme: 'bearer' } }
    }
    for (const [status, body] of Object.entries({ ...operation.responses, request: operation.requestBody })) {
      for (const media of Object.values(body?.content ?? {})) {
        const name = media.schema.$ref?.split('/').at(-1)
        const component = document.components.schemas[String(name)]
        const example = component?.examples?.[0] ?? (component?.description === ErrorBody.description && { detail: exampleDetails[status] })
        if (example) media.example = example
      }
    }
  }
  return document as object
}
