import { readFile } from 'node:fs/promises'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FastifyInstance } from 'fastify'
import { sendWithEtag, weakEtagOf } from '../http/etags.js'
import { compressed, varyByCoding } from '../http/responses.js'

/** The pages load everything from this server. Both use inline styles. */
const contentSecurityPolicy = [
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
  "font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'",
  "frame-ancestors 'none'"
].join('; ')

/** The page of Swagger UI has none, so that phones would show it as wide as a screen. */
const viewport =
  "document.head.insertAdjacentHTML('beforeend', '<meta name=\"viewport\" content=\"width=device-width\">')"

interface PagesOptions {
  title: string
  servers: { url: string }[] | undefined
  /** The paths. */
  document: string
  swaggerUi: string | false
  redoc: string | false
}

/** Serves the OpenAPI document, Swagger UI and Redoc. */
export default async function pages (app: FastifyInstance, options: PagesOptions) {
  const { document, servers, swaggerUi: path, redoc: folder } = options
  const title = options.title.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  if (!app.hasReplyDecorator('compress')) await app.register(import('@fastify/compress'), { global: false })

  app.get(document, { ...compressed(), schema: { hide: true } }, async function openapi (request, reply) {
    const body = JSON.stringify(app.swagger())
    varyByCoding(reply)
    return sendWithEtag(request, reply, body, weakEtagOf(body))
  })

  if (path) {
    app.register(import('@fastify/swagger-ui'), {
      routePrefix: path,
      indexPrefix: posix.relative(posix.dirname(path), '/') || '.',
      staticCSP: contentSecurityPolicy,
      theme: {
        title,
        css: [{ filename: 'theme.css', content: await readFile(new URL('theme.css', import.meta.url), 'utf8') }],
        js: [{ filename: 'viewport.js', content: viewport }]
      },
      uiConfig: { persistAuthorization: true },
      // The copy that the page loads has a path of its own.
      transformSpecification (copy) {
        removeItemFormats(copy as Document)
        return { ...copy, servers: servers ?? [serverSeenFrom(`${app.prefix}${path}/json`)] }
      }
    })
  }

  if (folder) app.register(redoc, { prefix: folder, title, document: posix.relative(folder, document) })
}

interface Document {
  paths: Record<string, Record<string, { parameters?: { schema?: { items?: { format?: string } } }[] }>>
}

/** Swagger UI logs an error for each parameter that is a list of texts with a format. */
function removeItemFormats ({ paths }: Document) {
  const operations = Object.values(paths).flatMap(path => Object.values(path))
  for (const { schema } of operations.flatMap(({ parameters = [] }) => parameters)) delete schema?.items?.format
}

type RedocOptions = Pick<PagesOptions, 'title' | 'document'> & { prefix: string }

async function redoc (app: FastifyInstance, { prefix, title, document }: RedocOptions) {
  app.get('/', { schema: { hide: true } }, async function redoc ({ url }, reply) {
    // A relative link starts from the last slash in the path of the page.
    const here = url.split('?', 1)[0]?.endsWith('/') ? '.' : `./${posix.basename(prefix)}`
    reply.type('text/html; charset=utf-8').header('content-security-policy', contentSecurityPolicy)
    return redocPage(title, here, `${here}/${document}`)
  })

  // The build copies the files of Redoc to dist/redoc.
  const root = new URL(import.meta.url.endsWith('.ts') ? '../../dist/redoc' : '../../redoc', import.meta.url)
  app.register(import('@fastify/static'), { root: fileURLToPath(root), wildcard: false, decorateReply: false })
}

/** This service, relative to the path of a document. */
export function serverSeenFrom (document: string) {
  return { url: posix.relative(posix.dirname(document), '/') || '.', description: 'This service' }
}

function redocPage (title: string, files: string, document: string) {
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${files}/style.css">
</head>
<body>
<div id="redoc"></div>
<script src="${files}/redoc.standalone.js"></script>
<script src="${files}/init.js" data-document="${document}"></script>
</body>
</html>
`
}
