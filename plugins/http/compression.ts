import { pipeline, Readable } from 'node:stream'
import { promisify } from 'node:util'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { negotiate, type Coding } from './content-coding.js'

/** Smaller bodies are not compressed, in bytes. */
const threshold = 1024

/** Maximum number of streams that are compressed at once. Further streams are sent as they are. */
const maxStreams = 16
let streams = 0

/** Compressed bodies by the buffer that they were compressed from. */
const compressedBodies = new WeakMap<Buffer, Map<Coding, Promise<Buffer>>>()

/** An `onSend` hook that compresses the body. Small bodies and errors are sent as they are. */
export function compress (request: FastifyRequest, reply: FastifyReply, body: unknown, done: (error: Error | null, body?: unknown) => void) {
  const { statusCode } = reply
  if (statusCode === 200 || statusCode === 304) addVary(reply, 'accept-encoding')
  const accepted = request.headers['accept-encoding']
  if (statusCode !== 200 || !accepted || reply.hasHeader('content-encoding')) return done(null, body)
  const { coding, isRequired } = negotiate(String(accepted))
  if (coding === undefined) done(null, body)
  else if (body instanceof Readable) done(null, compressedStream(request, reply, body, coding))
  else if (isText(body) && (isRequired || Buffer.byteLength(body) >= threshold)) {
    setCoding(reply, coding)
    compressOnce(body, coding).then(compressed => done(null, compressed), done)
  } else done(null, body)
}

function isText (body: unknown): body is string | Buffer {
  return typeof body === 'string' || body instanceof Buffer
}

function setCoding (reply: FastifyReply, { name }: Coding) {
  reply.header('content-encoding', name)
  reply.removeHeader('content-length')
}

/** Compresses a body. A buffer that was compressed before is not compressed again. */
function compressOnce (body: string | Buffer, coding: Coding) {
  const { compress, options } = coding
  const key = Buffer.isBuffer(body) ? body : Buffer.from(body)
  const byCoding = compressedBodies.get(key) ?? new Map<Coding, Promise<Buffer>>()
  const compressed = byCoding.get(coding) ?? promisify(compress)(key, options)
  compressedBodies.set(key, byCoding.set(coding, compressed))
  return compressed
}

/** Compresses a stream while it is sent. If the client disconnects, both streams are closed. */
function compressedStream ({ method }: FastifyRequest, reply: FastifyReply, body: Readable, coding: Coding) {
  if (streams === maxStreams) return body
  setCoding(reply, coding)
  if (method === 'HEAD') return Readable.from([])
  streams++
  return pipeline(body, coding.createStream({ ...coding.options, flush: coding.flush }), () => { streams-- })
}

/** Adds a header name to `Vary`, which may be set already. */
function addVary (reply: FastifyReply, name: string) {
  const vary = reply.getHeader('vary')
  reply.header('vary', vary === undefined ? name : `${vary}, ${name}`)
}
