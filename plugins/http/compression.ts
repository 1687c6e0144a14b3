import { pipeline, Readable, type Transform } from 'node:stream'
import { promisify } from 'node:util'
import * as zlib from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { httpError } from './errors.js'

/** Smaller bodies are not compressed, in bytes. */
const threshold = 1024

/** Maximum number of streams and bodies that are compressed at once, each. Further ones are sent as they are, or refused if the client rejects that. */
const maxAtOnce = 16
let streams = 0
let bodies = 0

/** Compressed bodies by the buffer that they were compressed from. */
const compressedBodies = new WeakMap<Buffer, Map<Coding, Promise<Buffer>>>()

/** An `onSend` hook that compresses the body. Small bodies and errors are sent as they are. */
export function compress (request: FastifyRequest, reply: FastifyReply, body: unknown, done: (error: Error | null, body?: unknown) => void) {
  const { statusCode } = reply
  const vary = reply.getHeader('vary')
  if (statusCode === 200 || statusCode === 304) reply.header('vary', vary === undefined ? 'accept-encoding' : `${vary}, accept-encoding`)
  const accepted = request.headers['accept-encoding']
  if (statusCode !== 200 || !accepted || reply.hasHeader('content-encoding')) return done(null, body)
  const { coding, isRequired } = negotiate(String(accepted))
  if (coding && body instanceof Readable) done(null, compressedStream(request, reply, body, coding))
  else if (coding && (typeof body === 'string' || Buffer.isBuffer(body)) && (isRequired || Buffer.byteLength(body) >= threshold)) {
    const compressed = compressOnce(body, coding)
    if (compressed === undefined) return isRequired ? done(httpError(503, 'The service is overloaded')) : done(null, body)
    setCoding(reply, coding)
    compressed.then(compressed => done(null, compressed), done)
  } else done(null, body)
}

function setCoding (reply: FastifyReply, { name }: Coding) {
  reply.header('content-encoding', name)
  reply.removeHeader('content-length')
}

/** Compresses a body, unless too many are being compressed. A buffer that was compressed before is not compressed again. */
function compressOnce (body: string | Buffer, coding: Coding) {
  const known = Buffer.isBuffer(body) ? compressedBodies.get(body) : undefined
  const compressed = known?.get(coding)
  if (compressed || bodies === maxAtOnce) return compressed
  bodies++
  const compressing = promisify(coding.compress)(body, coding.options).finally(() => { bodies-- })
  if (Buffer.isBuffer(body)) compressedBodies.set(body, (known ?? new Map<Coding, Promise<Buffer>>()).set(coding, compressing))
  return compressing
}

/** Compresses a stream while it is sent. If the client disconnects, both streams are closed. */
function compressedStream ({ method }: FastifyRequest, reply: FastifyReply, body: Readable, coding: Coding) {
  if (streams === maxAtOnce) return body
  setCoding(reply, coding)
  if (method === 'HEAD') return Readable.from([])
  streams++
  return pipeline(body, coding.createStream({ ...coding.options, flush: coding.flush }), () => { streams-- })
}

interface Coding {
  name: string
  compress (body: string | Buffer, options: object, done: (error: Error | null, compressed: Buffer) => void): void
  createStream (options: object): Transform
  options: object
  /** Makes a stream send each write at once. */
  flush: number
}

// Zstandard is part of Node.js 22.15 and newer, and the types are those of Node.js 20.
const { zstdCompress, createZstdCompress, constants }: typeof zlib & { zstdCompress?: Coding['compress'], createZstdCompress?: Coding['createStream'] } = zlib
const zstd = (name: string): number => Reflect.get(constants, `ZSTD_${name}`)

/** The window of a compressor in bits. The default of zstd and Brotli would need several megabytes for each stream. */
const windowBits = 18
const brotli = { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_LGWIN]: windowBits }

/** The content codings in order of preference, if Node has them. */
const known: Partial<Coding>[] = [
  { name: 'zstd', compress: zstdCompress, createStream: createZstdCompress, options: { params: { [zstd('c_windowLog')]: windowBits } }, flush: zstd('e_flush') },
  { name: 'br', compress: zlib.brotliCompress, createStream: zlib.createBrotliCompress, options: { params: brotli }, flush: constants.BROTLI_OPERATION_FLUSH },
  { name: 'gzip', compress: zlib.gzip, createStream: zlib.createGzip, options: {}, flush: constants.Z_SYNC_FLUSH }
]
const codings = known.filter((coding): coding is Coding => coding.compress !== undefined)

/** Clients name fewer codings than this. The rest of a longer header is ignored. */
const maxAccepted = 20

/** The coding that a client prefers, unless it prefers none, and whether it rejects a body without one. */
function negotiate (header: string) {
  const weights = new Map(header.toLowerCase().split(',', maxAccepted).map(accepted => {
    const [name = '', weight = 'q=1'] = accepted.split(';', 2).map(part => part.trim())
    return [name, Number(weight.slice('q='.length))]
  }))
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0
  const [best] = codings.toSorted((a, b) => weightOf(b.name) - weightOf(a.name))
  const isPreferred = best && weightOf(best.name) > 0 && weightOf(best.name) >= (weights.get('identity') ?? 0)
  return { coding: isPreferred ? best : undefined, isRequired: (weights.get('identity') ?? weights.get('*')) === 0 }
}
