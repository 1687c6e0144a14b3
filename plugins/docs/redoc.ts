import { posix } from 'node:path'
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import assets from './assets.js'

/** Options of a documentation page. */
export interface PageOptions {
  /** HTML. */
  title: string
  contentSecurityPolicy: string
  /** Path of the document. */
  document: string
}

interface RedocOptions extends PageOptions {
  /** Path of the page. */
  prefix: string
  /** The folder with the files of Redoc. */
  files: string
}

const background = '#1c2022'
const border = '#3b444b'
const muted = '#a9b1b8'

/** The colors of Redoc in dark mode. */
const dark = {
  colors: {
    primary: { main: '#9ab0ff' },
    success: { main: '#7ad086' },
    error: { main: '#ff8a80' },
    text: { primary: '#dfe3e6', secondary: muted },
    border: { dark: border, light: border },
    gray: { 50: '#262c30', 100: '#2c3338' },
    responses: {
      success: { backgroundColor: '#1d3324' },
      error: { backgroundColor: '#3b2426' }
    }
  },
  schema: { nestedBackground: '#23292d', linesColor: '#56626b' },
  typography: { code: { color: '#ff8a80', backgroundColor: '#2c3338' } },
  sidebar: { backgroundColor: '#16191b', textColor: '#dfe3e6', activeTextColor: '#9ab0ff' },
  rightPanel: {
    backgroundColor: '#16191b',
    servers: { overlay: { backgroundColor: '#262c30', textColor: '#dfe3e6' }, url: { backgroundColor: background } }
  },
  codeBlock: { backgroundColor: '#0f1214' },
  fab: { backgroundColor: '#262c30', color: '#9ab0ff' }
}

/** The colors that a theme cannot change. */
const darkStyle = `@media (prefers-color-scheme: dark) {
  body { background: ${background}; color-scheme: dark }
  caption, h5, h5 span { color: ${muted} !important; border-color: ${border} !important }
  h5 + svg polygon { fill: ${muted} !important }
  td { border-color: ${border} !important }
  .react-tabs__tab--selected { background: ${border} !important }
}`

/** Resolves the server URLs of the document, so that the page shows the address of the service, also behind a proxy. */
const script = `const url = new URL(document.currentScript.dataset.document, location.href)
fetch(url).then(response => response.json()).then(api => {
  for (const server of api.servers) server.url = new URL(server.url, url).href.replace(/\\/$/, '')
  const theme = matchMedia('(prefers-color-scheme: dark)').matches ? ${JSON.stringify(dark)} : {}
  Redoc.init(api, { theme, downloadUrls: [{ url: url.origin + url.pathname }] }, document.getElementById('redoc'))
})
`

/** Serves the page and the files of Redoc. */
const redoc: FastifyPluginAsync<RedocOptions> = async function redoc (app, { prefix, title, contentSecurityPolicy, document, files }) {
  app.register(assets)
  app.addHook('onSend', async function protect (_request, reply) {
    reply.header('content-security-policy', contentSecurityPolicy)
  })

  app.get('/', { schema: { hide: true } }, page)

  app.get('/init.js', { schema: { hide: true } }, async function init (_request, reply) {
    reply.type('text/javascript; charset=utf-8')
    return script
  })

  // With a wildcard, it would compare the path with the prefix, even if the app ignores upper and lower case.
  app.register(import('@fastify/static'), { root: files, wildcard: false, decorateReply: false })

  async function page (request: FastifyRequest, reply: FastifyReply) {
    // A relative link starts from the last slash in the path of the page.
    const folder = /^[^?#;]*\/([?#;]|$)/.test(request.url) ? prefix : posix.dirname(prefix)
    const linkTo = (path: string) => posix.relative(folder, path).replace(/^(?!\.)/, './')
    reply.type('text/html; charset=utf-8')
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>
body { margin: 0 }
${darkStyle}
</style>
</head>
<body>
<div id="redoc"></div>
<script src="${linkTo(`${prefix}/redoc.standalone.js`)}"></script>
<script src="${linkTo(`${prefix}/init.js`)}" data-document="${linkTo(document)}?relative"></script>
</body>
</html>
`
  }
}

export default redoc
