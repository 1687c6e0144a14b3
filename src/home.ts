import fp from 'fastify-plugin'
import { metadata } from '../plugins/http/plugin.js'
import { setHeaders } from '../plugins/http/responses.js'

/**
 * Answers `GET /`: browsers are redirected to the documentation, and other clients get links to all pages and all
 * documented routes without parameters, by tag. Also answers browsers that request an icon. Register it before the routes.
 */
export default fp<{ docs: boolean }>(async function home (app, { docs }) {
  const links: Record<string, string[]> = docs ? { docs: ['./docs', './redoc', './openapi.json'] } : {}

  app.addHook('onRoute', function addLink ({ method, url, schema }) {
    if (method !== 'GET' || url.includes(':')) return
    for (const tag of schema?.tags ?? []) (links[tag] ??= []).push(`.${url}`)
  })

  app.get('/', { schema: { hide: true } }, async function sendLinks (request, reply) {
    reply.header('vary', 'accept')
    if (docs && request.headers.accept?.includes('text/html')) return reply.redirect('./docs')
    setHeaders(request, reply)
    return links
  })

  app.get('/favicon.ico', { schema: { hide: true }, logLevel: 'warn' }, async function noIcon (_request, reply) {
    return reply.code(204).header('cache-control', 'public, max-age=86400').send()
  })
}, metadata('home'))
