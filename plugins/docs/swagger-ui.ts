import { posix } from 'node:path'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyPluginAsync } from 'fastify'
import type { PageOptions } from './redoc.js'
import staticFiles from './static-files.js'

/** What the page of @fastify/swagger-ui lacks: a viewport and one column less for phones, and a dark background in dark mode. */
const head = `<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
@media (max-width: 640px) { .swagger-ui .response-col_links { display: none } }
@media (prefers-color-scheme: dark) { body:not(:has(.swagger-ui)) { background: #1c2022 } }
html.dark-mode body { background: none }
</style>
`

/** Serves Swagger UI at `/docs`. */
const swaggerUiPage: FastifyPluginAsync<PageOptions> = async function swaggerUiPage (app, { title, contentSecurityPolicy }) {
  app.register(staticFiles)

  app.addHook('onSend', async function completeHead (_request, reply, body) {
    return String(reply.getHeader('content-type')).startsWith('text/html') ? String(body).replace('</head>', `${head}</head>`) : body
  })

  app.register(swaggerUi, {
    routePrefix: '/docs',
    indexPrefix: '.',
    staticCSP: contentSecurityPolicy,
    theme: { title },
    // (The types expect a `Response` here, but Swagger UI passes its own object.)
    uiConfig: { persistAuthorization: true, responseInterceptor: showAddress } as object,
    // The page loads its copy of the document from /docs/json, one level deeper.
    transformSpecification: ({ servers, ...document }) => ({ ...document, servers: servers.map(oneLevelDeeper) }),
    transformSpecificationClone: false
  })
}

function oneLevelDeeper (server: { url: string }) {
  return { ...server, url: posix.join('..', server.url) }
}

/**
 * Makes the server URLs of the document absolute, so that the page shows the address of the service. This function runs
 * in the browser, which is the only one that knows the address behind a proxy.
 */
export function showAddress (response: { url: string, text: string }) {
  if (!response.url.endsWith('/docs/json')) return response
  const document = JSON.parse(response.text)
  for (const server of document.servers) server.url = new URL(server.url, response.url).href.replace(/\/$/, '')
  response.text = JSON.stringify(document)
  return response
}

export default swaggerUiPage
