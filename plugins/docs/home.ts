import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { setHeaders } from '../http/responses.js'
import { metadata } from '../common/plugin.js'

/**
 * Answers `GET /`: browsers are redirected to the documentation, and other clients get links to all pages and routes
 * without parameters, by collection or tag. Also answers browsers that request an icon.
 */
export default fp<{ hasDocs: boolean }>(async function home (app: FastifyInstance, { hasDocs }) {
  const links: Record<string, string[]> = hasDocs ? { docs: ['./docs', './redoc', './openapi.json'] } : {}

  app.addHook('onRoute', function addLink ({ method, url, schema, config }) {
    const name = (config as { collection?: string } | undefined)?.collection ?? schema?.tags?.[0]
    if (method === 'GET' && !url.includes(':') && name !== undefined) (links[name] ??= []).push(`.${url}`)
  })

  app.get('/', { schema: { hide: true } }, async function sendLinks (request, reply) {
    reply.header('vary', 'accept')
    if (hasDocs && request.headers.accept?.includes('text/html')) return reply.redirect('./docs')
    setHeaders(request, reply)
    return links
  })

  app.get('/favicon.ico', { schema: { hide: true }, logLevel: 'warn' }, async function noIcon (_request, reply) {
    return reply.code(204).header('cache-control', 'public, max-age=86400').send()
  })
}, metadata('home'))
