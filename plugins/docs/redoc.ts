import { fileURLToPath } from 'node:url'
import staticFiles from '@fastify/static'
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'

/** Serves the page and the files of Redoc. */
const redoc: FastifyPluginAsync<RedocOptions> = async function redoc (app, { title, contentSecurityPolicy }) {
  app.addHook('onSend', async function protect (_request, reply) {
    reply.header('content-security-policy', contentSecurityPolicy)
  })

  app.get('/redoc', { schema: { hide: true } }, page)
  app.get('/redoc/', { schema: { hide: true } }, page)

  app.get('/redoc/init.js', { schema: { hide: true } }, async function init (_request, reply) {
    reply.type('text/javascript; charset=utf-8')
    return "Redoc.init(document.currentScript.dataset.document, {}, document.getElementById('redoc'))\n"
  })

  app.register(staticFiles, {
    root: fileURLToPath(new URL('.', import.meta.resolve('#redoc/redoc.standalone.js'))),
    prefix: '/redoc/',
    decorateReply: false
  })

  async function page (request: FastifyRequest, reply: FastifyReply) {
    // A relative link starts from the last slash in the path of the page.
    const here = request.url.startsWith(`${app.prefix}/redoc/`) ? '..' : '.'
    reply.type('text/html; charset=utf-8')
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>body { margin: 0 }</style>
</head>
<body>
<div id="redoc"></div>
<script src="${here}/redoc/redoc.standalone.js"></script>
<script src="${here}/redoc/init.js" data-document="${here}/openapi.json"></script>
</body>
</html>
`
  }
}

interface RedocOptions {
  title: string
  contentSecurityPolicy: string
}

export default redoc
