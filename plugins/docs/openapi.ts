import { createRequire } from 'node:module'
import { posix } from 'node:path'
import swagger, { type SwaggerTransformObject } from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import fp from 'fastify-plugin'
import { nameOf } from '../../schemas/component.js'
import { details, ErrorBody } from '../../schemas/errors.js'
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
  components: { schemas: Record<string, { examples?: unknown[] }>, securitySchemes?: object }
  paths: Record<string, Record<string, Operation>>
}

interface Operation {
  security?: object[]
  requestBody?: Body
  responses: Record<string, Body>
}

interface Body {
  headers?: Record<string, unknown>
  content?: Record<string, { schema: { $ref?: string }, example?: unknown }>
}

/** The document sums up by `4XX` what Node and Fastify refuse on their own. */
const exampleDetails: Record<string, string> = { ...details, '4XX': details[431] }

/**
 * Adds to the generated document: an example for every body that is a component, since @fastify/swagger drops what is
 * beside a `$ref`, and the security scheme of the operations that answer 401 in our way.
 */
function complete (generated: Parameters<SwaggerTransformObject>[0]) {
  const document: Document = JSON.parse(JSON.stringify(Object.values(generated)[0]))
  const { components } = document
  for (const operation of Object.values(document.paths).flatMap(path => Object.values(path))) {
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
