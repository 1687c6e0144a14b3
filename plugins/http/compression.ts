import { pipeline, Readable, type Transform } from 'node:stream'
import * as zlib from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { LongList } from '../stores/store.js'

interface Coding {
  name: string
  create (options: object): Transform
  options: object
}

// Zstandard is part of Node.js 22.15 and newer, and the types are those of Node.js 20.
const { createBrotliCompress, createGzip, createZstdCompress, constants }: typeof zlib & { createZstdCompress?: Coding['create'] } = zlib

/** The content codings in order of preference, if Node has them. Each write is flushed, so that the client gets it at once. */
const known: Partial<Coding>[] = [
  { name: 'zstd', create: createZstdCompress, options: { flush: Reflect.get(constants, 'ZSTD_e_flush') } },
  { name: 'br', create: createBrotliCompress, options: { flush: constants.BROTLI_OPERATION_FLUSH, params: { [constants.BROTLI_PARAM_QUALITY]: 4 } } },
  { name: 'gzip', create: createGzip, options: { flush: constants.Z_SYNC_FLUSH } }
]
const codings = known.filter((coding): coding is Coding => coding.create !== undefined)

/** Smaller bodies are not compressed, in bytes. */
const threshold = 1024

/** A buffer is compressed in pieces, in bytes. The first one is small, so that the response starts early. */
const firstPiece = 4 * 1024
const pieceSize = 64 * 1024

/** Compressed bodies by the buffer, or the pieces of a list, that they were compressed from. */
const compressedBodies = new WeakMap<object, Map<Coding, () => Buffer | Readable>>()

/** An `onSend` hook that compresses the body, which then has its own ETag. Small bodies and errors are sent as they are. */
export function compress (request: FastifyRequest, reply: FastifyReply, body: unknown, done: (error: null, body: unknown) => void) {
  const { statusCode } = reply
  if (statusCode === 200 || statusCode === 304) addVary(reply, 'accept-encoding')
  const coding = statusCode === 200 ? codingFor(request) : undefined
  if (coding === undefined || (isSmall(body) && !refusesIdentity(request)) || reply.hasHeader('content-encoding')) return done(null, body)
  reply.header('content-encoding', coding.name)
  reply.removeHeader('content-length')
  const etag = reply.getHeader('etag')
  if (typeof etag === 'string') reply.header('etag', etagWith(etag, coding))
  done(null, request.method === 'HEAD' ? Readable.from([]) : compressed(body, coding))
}

/** The ETag of a compressed body. A weak ETag stays the same. */
export function etagWith (etag: string, { name }: Coding) {
  return etag.replace(/^(".*)"$/, `$1-${name}"`)
}

/** The coding that a client prefers, unless it prefers none. */
export function codingFor ({ headers }: FastifyRequest) {
  const header = headers['accept-encoding']
  if (!header) return
  const weights = new Map(String(header).toLowerCase().split(',').map(accepted => {
    const [name = '', weight = '1'] = accepted.trim().split(/\s*;\s*q\s*=\s*/)
    return [name, Number(weight)]
  }))
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0
  const [best] = codings.toSorted((a, b) => weightOf(b.name) - weightOf(a.name))
  if (best && weightOf(best.name) > 0 && weightOf(best.name) >= (weights.get('identity') ?? 0)) return best
}

/** Returns whether a client rejects bodies that are not compressed. */
function refusesIdentity ({ headers }: FastifyRequest) {
  return /(identity|\*)\s*;\s*q\s*=\s*0(\.0*)?\s*(,|$)/i.test(String(headers['accept-encoding']))
}

/** Returns whether a body is not worth compressing. */
function isSmall (body: unknown) {
  const isText = typeof body === 'string' || body instanceof Buffer
  return isText ? Buffer.byteLength(body) < threshold : !(body instanceof Readable)
}

/** Compresses a body. A list that has not changed since it was compressed is not compressed again. */
function compressed (body: unknown, coding: Coding) {
  if (body instanceof LongList) return compressedOnce(body.pieces, body.pieces, coding)
  if (body instanceof Buffer) return compressedOnce(body, piecesOf(body), coding)
  return pipeline(body instanceof Readable ? body : Readable.from([body]), coding.create(coding.options), () => {})
}

function compressedOnce (key: object, pieces: Iterable<Buffer>, coding: Coding) {
  const byCoding = compressedBodies.get(key) ?? new Map<Coding, () => Buffer | Readable>()
  compressedBodies.set(key, byCoding)
  const read = byCoding.get(coding) ?? shared(Readable.from(pieces).pipe(coding.create(coding.options)))
  byCoding.set(coding, read)
  return read()
}

function * piecesOf (buffer: Buffer) {
  for (let start = 0, end = firstPiece; start < buffer.length; start = end, end += pieceSize) yield buffer.subarray(start, end)
}

/**
 * Returns a function that any number of readers can call for the contents of a stream. The stream is read once, as fast
 * as the fastest reader; after that, the contents are a buffer.
 */
function shared (stream: Readable) {
  const source: AsyncIterator<Buffer> = stream[Symbol.asyncIterator]()
  const chunks: Buffer[] = []
  let whole: Buffer | undefined
  let reading: Promise<void> | undefined

  return () => whole ?? Readable.from(read(), { objectMode: false })

  async function * read () {
    for (let n = 0; ; n++) {
      while (n === chunks.length && whole === undefined) await (reading ??= readNext())
      const chunk = chunks[n]
      if (chunk === undefined) return
      yield chunk
    }
  }

  async function readNext () {
    const { value, done } = await source.next()
    if (done) whole = Buffer.concat(chunks)
    else chunks.push(value)
    reading = undefined
  }
}

/** Adds a header name to `Vary`, which may be set already. */
function addVary (reply: FastifyReply, name: string) {
  const vary = reply.getHeader('vary')
  reply.header('vary', vary === undefined ? name : `${vary}, ${name}`)
}
