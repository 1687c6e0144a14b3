import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FastifyInstance } from 'fastify'
import { StartupError } from '../startup.js'
import assets from './assets.js'
import type { DocsOptions } from './openapi.js'
import { head } from './swagger-ui-head.js'

/** The pages load everything from this server. Both use inline styles. */
const contentSecurityPolicy = [
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:",
  "connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
].join('; ')

type PagesOptions = Pick<DocsOptions, 'swaggerUi' | 'redoc'> & { title: string, document: string, bundle?: string }

/** Serves Swagger UI and Redoc. The option `document` is a path, and `bundle` is the folder of the bundle that the app is in. */
export default async function pages (app: FastifyInstance, options: PagesOptions) {
  const { document, swaggerUi: path = '/docs', redoc: prefix = '/redoc', bundle = bundleFolder() } = options
  const title = options.title.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  app.addHook('onSend', async function protect (_request, reply) {
    reply.header('content-security-policy', contentSecurityPolicy)
  })
  if (path) app.register(swaggerUi, { path, files: bundle && besideBundle(bundle, 'swaggerUi') })
  if (prefix) app.register(redoc, { prefix, files: bundle ? besideBundle(bundle, 'redoc') : redocFolder() })

  /** Without a folder of its files, @fastify/swagger-ui finds them itself. */
  async function swaggerUi (app: FastifyInstance, { path, files }: { path: string, files?: string }) {
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

  async function redoc (app: FastifyInstance, { prefix, files }: { prefix: string, files: string }) {
    app.register(assets)
    const html = await readFile(join(files, 'page.html'), 'utf8')
    app.get('/', { schema: { hide: true } }, async function page (request, reply) {
      // A relative link starts from the last slash in the path of the page.
      const folder = /^[^?#;]*\/([?#;]|$)/.test(request.url) ? prefix : posix.dirname(prefix)
      const linkTo = (path: string) => posix.relative(folder, path).replace(/^(?!\.)/, './')
      const values: Record<string, string> = { title, folder: folder === prefix ? './' : `${linkTo(prefix)}/`, document: linkTo(document) }
      reply.type('text/html; charset=utf-8')
      return html.replaceAll(/\{(\w+)\}/g, (_, name: string) => String(values[name]))
    })

    // With a wildcard, it would compare the path with the prefix, even if the app ignores upper and lower case.
    app.register(import('@fastify/static'), { root: files, wildcard: false, globIgnore: ['page.html'], decorateReply: false })
  }
}

function relative (from: string, to: string) {
  return posix.relative(from, to) || '.'
}

/** Loads the document with relative server URLs. This function runs in the browser. */
export function loadRelative (request: { url: string, loadSpec?: boolean }) {
  if (request.loadSpec) request.url += '?relative'
  return request
}

/**
 * Makes the server URLs of the document absolute, so that the page shows the address of the service, and gives `limit` an
 * example, which the page fills in, because it shows a long list slowly. This function runs in the browser, which is the only
 * one that knows the address behind a proxy.
 */
export function showAddress (response: { url: string, text: string }) {
  if (!response.url.endsWith('?relative')) return response
  const document = JSON.parse(response.text)
  for (const server of document.servers) server.url = new URL(server.url, response.url).href.replace(/\/$/, '')
  for (const path of Object.values<Record<string, { parameters?: { name: string, example?: unknown, schema?: { examples?: unknown[] } }[] }>>(document.paths)) {
    const limit = path.get?.parameters?.find(({ name }) => name === 'limit')
    if (limit?.schema?.examples) limit.example = limit.schema.examples[0]
  }
  response.text = JSON.stringify(document)
  return response
}

/** The pages by their option: the folder of their files beside a bundle, and in the packages. */
const folders = {
  redoc: { title: 'Redoc', beside: 'redoc', files: 'node_modules/fastify-items-users/dist/redoc' },
  swaggerUi: { title: 'Swagger UI', beside: 'swagger-ui', files: 'node_modules/@fastify/swagger-ui/static' }
}

/** The folder of the bundle that this module is part of, or undefined if it is a file of its own. */
export function bundleFolder (module = import.meta.url) {
  if (typeof __dirname === 'string' && !process.versions.bun) return __dirname // only CommonJS and Bun have it
  return /\/plugins\/docs\/pages\.[jt]s$/.test(module) ? undefined : dirname(fileURLToPath(module))
}

export function redocFolder (module = import.meta.url) {
  return fileURLToPath(new URL(module.endsWith('.ts') ? '../../dist/redoc' : '../../redoc', module))
}

/** The folder beside a bundle with the files of a page. */
export function besideBundle (bundle: string, page: keyof typeof folders) {
  const { title, beside, files } = folders[page]
  const folder = join(bundle, beside)
  if (existsSync(folder)) return folder
  throw new StartupError(`The files of ${title} are missing. Copy ${files} to ${folder}, or set the option ${page} of docs to false.`)
}
