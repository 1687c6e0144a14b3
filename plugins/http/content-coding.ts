import type { Transform } from 'node:stream'
import * as zlib from 'node:zlib'
import type { FastifyRequest } from 'fastify'

/** A content coding, such as gzip. */
export interface Coding {
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

/** The ETag of a compressed body. A weak ETag stays the same. */
export function etagWith (etag: string, { name }: Coding) {
  return etag.startsWith('W/') ? etag : `${etag.slice(0, -1)}-${name}"`
}

/** The preferred codings of the newest `Accept-Encoding` headers. Most clients send one of a few. */
const preferences = new Map<string, Coding | undefined>()

/** The coding that a client prefers, unless it prefers none. */
export function codingFor ({ headers }: FastifyRequest) {
  const header = headers['accept-encoding']
  if (!header) return
  const accepted = String(header)
  if (!preferences.has(accepted)) {
    if (preferences.size === 100) preferences.clear()
    preferences.set(accepted, preferred(accepted))
  }
  return preferences.get(accepted)
}

function preferred (header: string) {
  const weights = new Map(header.toLowerCase().split(',').map(accepted => {
    const [name = '', weight = '1'] = accepted.trim().split(/\s*;\s*q\s*=\s*/)
    return [name, Number(weight)]
  }))
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0
  const [best] = codings.toSorted((a, b) => weightOf(b.name) - weightOf(a.name))
  if (best && weightOf(best.name) > 0 && weightOf(best.name) >= (weights.get('identity') ?? 0)) return best
}

/** Returns whether a client rejects bodies that are not compressed. */
export function refusesIdentity ({ headers }: FastifyRequest) {
  return /(identity|\*)\s*;\s*q\s*=\s*0(\.0*)?\s*(,|$)/i.test(String(headers['accept-encoding']))
}
