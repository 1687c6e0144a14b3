import type { FastifyInstance } from 'fastify'
import { besideBundle, bundleFolder, redocFolder } from './assets.js'
import type { DocsOptions } from './openapi.js'
import redoc from './redoc.js'
import swaggerUi from './swagger-ui.js'

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

/** Serves Swagger UI and Redoc. */
export default async function pages (app: FastifyInstance, options: PagesOptions) {
  const { document, swaggerUi: path = '/docs', redoc: prefix = '/redoc', bundle = bundleFolder() } = options
  const title = options.title.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  const page = { title, contentSecurityPolicy, document }
  if (path) app.register(swaggerUi, { ...page, path, files: bundle && besideBundle(bundle, 'swaggerUi') })
  if (prefix) app.register(redoc, { ...page, prefix, files: bundle ? besideBundle(bundle, 'redoc') : redocFolder() })
}

interface PagesOptions extends Pick<DocsOptions, 'prefix' | 'swaggerUi' | 'redoc'> {
  title: string
  /** Path of the document. */
  document: string
  /** The folder of the bundle that the app is in. */
  bundle?: string
}
