import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import fp from 'fastify-plugin'
import { metadata } from '../http/plugin.js'

const compress = promisify(gzip)

/**
 * Compresses the scripts and style sheets that @fastify/static serves in this scope, each of them once, and lets browsers
 * cache all files for an hour. (@fastify/swagger-ui has no option for files that are compressed already.)
 */
export default fp(async function staticFiles (app) {
  const compressed = new Map<string, Buffer>()

  app.addHook('onSend', async function compressFile (request, reply, body) {
    if (!(body instanceof Readable) || reply.statusCode !== 200) return body
    reply.header('cache-control', 'public, max-age=3600')
    if (!/javascript|css/.test(String(reply.getHeader('content-type')))) return body
    reply.header('vary', 'accept-encoding')
    if (request.method === 'HEAD' || !/\bgzip\b(?!;q=0)/.test(String(request.headers['accept-encoding']))) return body

    const name = `${request.routeOptions.url} ${Object(request.params)['*']}`
    const file = compressed.get(name) ?? await compress(await buffer(body))
    body.destroy()
    compressed.set(name, file)
    reply.header('content-encoding', 'gzip').removeHeader('content-length')
    return file
  })
}, metadata('static-files'))
