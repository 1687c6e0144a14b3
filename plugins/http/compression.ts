import { AsyncResource } from 'node:async_hooks'
import { pipeline, Readable, type Transform } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { codingFor, etagWith, refusesIdentity, type Coding } from './content-coding.js'
import { LongList } from '../stores/store.js'

/** Smaller bodies are not compressed, in bytes. */
const threshold = 1024

/** A buffer is compressed in pieces, in bytes. The first one is small, so that the response starts early. */
const firstPiece = 4 * 1024
const pieceSize = 64 * 1024

/** Compressed bodies by the buffer or the pieces that they were compressed from. */
const compressedBodies = new WeakMap<object, Map<Coding, () => Buffer | Readable>>()

/** An `onSend` hook that compresses the body, which then has its own ETag. Small bodies and errors are sent as they are. */
export function compress (request: FastifyRequest, reply: FastifyReply, body: unknown, done: (error: null, body: unknown) => void) {
  const { statusCode } = reply
  if (statusCode === 200 || statusCode === 304) addVary(reply, 'accept-encoding')
  const coding = statusCode === 200 ? codingFor(request) : undefined
  if (coding === undefined || (isSmall(body) && !refusesIdentity(request)) || reply.hasHeader('content-encoding')) return done(null, whole(body))
  reply.header('content-encoding', coding.name)
  if (reply.hasHeader('content-length')) reply.removeHeader('content-length')
  const etag = reply.getHeader('etag')
  if (typeof etag === 'string') reply.header('etag', etagWith(etag, coding))
  done(null, request.method === 'HEAD' ? Readable.from([]) : compressed(body, coding))
}

/** Joins a list that is not compressed, unless it is too long: a buffer is sent faster than a stream. */
function whole (body: unknown) {
  return body instanceof LongList ? body.whole() ?? body : body
}

/** Returns whether a body is not worth compressing. */
function isSmall (body: unknown) {
  const isText = typeof body === 'string' || body instanceof Buffer
  return isText ? Buffer.byteLength(body) < threshold : !(body instanceof Readable)
}

/** Compresses a body. A list that has not changed since it was compressed is not compressed again. */
function compressed (body: unknown, coding: Coding) {
  if (body instanceof LongList) return compressedOnce(body.pieces, body.pieces.buffers, coding)
  if (body instanceof Buffer) return compressedOnce(body, piecesOf(body), coding)
  return pipeline(body instanceof Readable ? body : Readable.from([body]), coding.create(coding.options), () => {})
}

function compressedOnce (key: object, pieces: Iterable<Buffer>, coding: Coding) {
  const byCoding = compressedBodies.get(key)
  const read = byCoding?.get(coding) ?? shared(pieces[Symbol.iterator](), coding.create(coding.options))
  if (byCoding === undefined) compressedBodies.set(key, new Map([[coding, read]]))
  else byCoding.set(coding, read)
  return read()
}

function * piecesOf (buffer: Buffer) {
  for (let start = 0, end = firstPiece; start < buffer.length; start = end, end += pieceSize) yield buffer.subarray(start, end)
}

/**
 * Compresses pieces, and returns a function that any number of readers can call for the result. A piece is compressed when
 * the fastest reader needs it; after the last one, the result is a buffer.
 */
function shared (pieces: Iterator<Buffer>, compressor: Transform) {
  const chunks: Buffer[] = []
  const waiting = new Set<() => void>()
  let whole: Buffer | undefined
  let isCompressing = false
  compressor.on('data', chunk => { chunks.push(chunk) })
  compressor.on('end', () => {
    whole = Buffer.concat(chunks)
    wake()
  })
  compressNext() // while Fastify prepares the response
  return () => whole ?? reader()

  function reader () {
    let next = 0
    // It continues in the async context of its own request, whichever request has compressed the piece.
    const context = new AsyncResource('CompressedBody')
    return new Readable({
      read () {
        if (next < chunks.length || whole) this.push(chunks[next++] ?? null)
        else {
          waiting.add(() => { if (!this.destroyed) context.runInAsyncScope(this._read, this, 0) })
          compressNext()
        }
      }
    })
  }

  function compressNext () {
    if (isCompressing) return
    isCompressing = true
    const { value, done } = pieces.next()
    if (done) compressor.end()
    else compressor.write(value, wake)
  }

  function wake () {
    isCompressing = false
    const readers = [...waiting]
    waiting.clear()
    for (const read of readers) read()
  }
}

/** Adds a header name to `Vary`, which may be set already. */
function addVary (reply: FastifyReply, name: string) {
  const vary = reply.getHeader('vary')
  reply.header('vary', vary === undefined ? name : `${vary}, ${name}`)
}
