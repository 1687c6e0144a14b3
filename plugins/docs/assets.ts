import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { compress } from '../http/compression.js'
import { etagOf, isNotModified } from '../http/etags.js'
import { noCache } from '../http/responses.js'
import { metadata } from '../plugin.js'

/**
 * Keeps all scripts, style sheets, images and generated texts of this scope in memory after their first response. So each of
 * them is generated once, compressed once, and has an ETag. The pages themselves are compressed too.
 */
export default fp(async function assets (app) {
  const assets = new Map<string, { body: Buffer, headers: Record<'content-type' | 'cache-control' | 'etag', string> }>()

  app.addHook('preHandler', async function sendAsset (request, reply) {
    const { method, url, headers } = request
    // The others make a response depend on more than the path.
    const plain = Object.entries(headers).filter(([name]) => !/^(if-|range$)/.test(name))
    const isPlain = method === 'GET' && plain.length === Object.keys(headers).length
    if (!isPlain && !assets.has(nameOf(request))) await app.inject({ url, headers: Object.fromEntries(plain) })
    const asset = assets.get(nameOf(request))
    if (asset === undefined) return
    reply.headers(asset.headers)
    if (!isNotModified(request, reply, asset.headers.etag)) return reply.send(asset.body)
    reply.removeHeader('content-type').code(304)
    return reply.send(method === 'HEAD' ? Readable.from([]) : undefined)
  })

  app.addHook('onSend', async function storeAsset (request, reply, body) {
    const type = String(reply.getHeader('content-type'))
    if (request.method !== 'GET' || reply.statusCode !== 200 || type.startsWith('text/html') || assets.has(nameOf(request))) return body
    const isFile = body instanceof Readable
    const bytes = isFile ? await buffer(body) : Buffer.from(String(body))
    const headers = { 'content-type': type, 'cache-control': isFile ? 'public, max-age=3600' : noCache, etag: `W/${etagOf(bytes)}` }
    assets.set(nameOf(request), { body: bytes, headers })
    for (const name of ['accept-ranges', 'last-modified']) reply.removeHeader(name)
    reply.headers(headers)
    return bytes
  })

  app.addHook('onSend', compress)

  // The HEAD routes of @fastify/static have no hook for this.
  app.addHook('onSend', async function withoutBody ({ method }, reply, body) {
    if (method !== 'HEAD' || !Buffer.isBuffer(body)) return body
    reply.header('content-length', body.length)
    return Readable.from([])
  })
}, metadata('assets'))

/** The path of a route, and of a file below it. */
function nameOf ({ routeOptions, params }: FastifyRequest) {
  return `${routeOptions.url} ${Object(params)['*']}`
}
