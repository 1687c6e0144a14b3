import { readFile } from 'node:fs/promises'
import { join, posix } from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import assets from './assets.js'

/** Options of a documentation page. */
export interface PageOptions {
  /** HTML. */
  title: string
  contentSecurityPolicy: string
  /** Path of the document. */
  document: string
}

/** Serves the page and the files of Redoc, which are in a folder. */
export default async function redoc (app: FastifyInstance, options: PageOptions & { prefix: string, files: string }) {
  const { prefix, title, contentSecurityPolicy, document, files } = options
  app.register(assets)
  app.addHook('onSend', async function protect (_request, reply) {
    reply.header('content-security-policy', contentSecurityPolicy)
  })

  const html = await readFile(join(files, 'page.html'), 'utf8')
  app.get('/', { schema: { hide: true } }, page)

  // With a wildcard, it would compare the path with the prefix, even if the app ignores upper and lower case.
  app.register(import('@fastify/static'), { root: files, wildcard: false, globIgnore: ['page.html'], decorateReply: false })

  async function page (request: FastifyRequest, reply: FastifyReply) {
    // A relative link starts from the last slash in the path of the page.
    const folder = /^[^?#;]*\/([?#;]|$)/.test(request.url) ? prefix : posix.dirname(prefix)
    const linkTo = (path: string) => posix.relative(folder, path).replace(/^(?!\.)/, './')
    const values: Record<string, string> = { title, folder: folder === prefix ? './' : `${linkTo(prefix)}/`, document: linkTo(document) }
    reply.type('text/html; charset=utf-8')
    return html.replaceAll(/\{(\w+)\}/g, (_, name: string) => String(values[name]))
  }
}
