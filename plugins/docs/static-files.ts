import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { FastifyReply } from 'fastify'
import fp from 'fastify-plugin'
import { compress } from '../http/compression.js'
import { metadata } from '../http/plugin.js'

/**
 * Compresses the scripts and style sheets that @fastify/static serves in this scope, each of them once, and pages. Lets
 * browsers cache all files for an hour. (@fastify/swagger-ui has no option for files that are compressed already.)
 */
export default fp(async function staticFiles (app) {
  const files = new Map<string, Buffer>()

  app.addHook('onSend', async function readOnce (request, reply, body) {
    if (!(body instanceof Readable) || reply.statusCode !== 200) return body
    reply.header('cache-control', 'public, max-age=3600')
    if (!isText(reply) || request.method === 'HEAD') return body
    const name = `${request.routeOptions.url} ${Object(request.params)['*']}`
    const file = files.get(name) ?? await buffer(body)
    body.destroy()
    files.set(name, file)
    return file
  })

  app.addHook('onSend', function compressText (request, reply, body, done) {
    if (body instanceof Readable && !isText(reply)) done(null, body)
    else compress(request, reply, body, done)
  })
}, metadata('static-files'))

/** Returns whether a file is a script or a style sheet. The others are compressed already, or small. */
function isText (reply: FastifyReply) {
  return /javascript|css/.test(String(reply.getHeader('content-type')))
}
