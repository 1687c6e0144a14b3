import { readFile } from 'node:fs/promises'
import { join, posix } from 'node:path'
import type { FastifyInstance } from 'fastify'
import assets from './assets.js'
import type { PageOptions } from './redoc.js'

/** What the page of @fastify/swagger-ui lacks: a viewport and one column less for phones, and a dark background in dark mode. */
const head = `<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
@media (max-width: 640px) { .swagger-ui .response-col_links { display: none } }
@media (prefers-color-scheme: dark) { body:not(:has(.swagger-ui)) { background: #1c2022 } }
html.dark-mode body { background: none }
</style>
`

/** Serves Swagger UI. Without a folder of its files, @fastify/swagger-ui finds them itself. */
export default async function swaggerUiPage (app: FastifyInstance, options: PageOptions & { path: string, files?: string }) {
  const { path, title, contentSecurityPolicy, document, files } = options
  app.addHook('onSend', async function completePage (_request, _reply, body) {
    if (typeof body !== 'string') return body
    // The page would load a copy of the document, and show its address.
    return body.replace('</head>', `${head}</head>`).replace("resolveUrl('./json')", `resolveUrl('${relative(path, document)}')`)
  })
  app.register(assets)
  app.register(import('@fastify/swagger-ui'), {
    ...files && { baseDir: files, logo: { type: 'image/svg+xml', content: await readFile(join(files, 'logo.svg')) } },
    routePrefix: path,
    indexPrefix: relative(posix.dirname(path), '/'),
    staticCSP: contentSecurityPolicy,
    theme: { title },
    // (The types expect a `Response` here, but Swagger UI passes its own object.)
    uiConfig: { persistAuthorization: true, requestInterceptor: loadRelative, responseInterceptor: showAddress } as object,
    // The copies at /docs/json and /docs/yaml have their own path.
    transformSpecification: ({ servers, ...copy }) => ({ ...copy, servers: servers.map(fromPage) }),
    transformSpecificationClone: false
  })

  function fromPage ({ url, ...server }: { url: string }) {
    const isRelative = !/^(\/|[a-z][a-z\d+.-]*:)/i.test(url)
    return { ...server, url: isRelative ? posix.join(relative(path, posix.dirname(document)), url) : url }
  }
}

/** The relative path from a folder to another one. */
function relative (from: string, to: string) {
  return posix.relative(from, to) || '.'
}

/** Loads the document with relative server URLs. This function runs in the browser. */
export function loadRelative (request: { url: string, loadSpec?: boolean }) {
  if (request.loadSpec) request.url += '?relative'
  return request
}

/**
 * Makes the server URLs of the document absolute, so that the page shows the address of the service. This function runs
 * in the browser, which is the only one that knows the address behind a proxy.
 */
export function showAddress (response: { url: string, text: string }) {
  if (!response.url.endsWith('?relative')) return response
  const document = JSON.parse(response.text)
  for (const server of document.servers) server.url = new URL(server.url, response.url).href.replace(/\/$/, '')
  response.text = JSON.stringify(document)
  return response
}
