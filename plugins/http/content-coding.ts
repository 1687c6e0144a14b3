import type { Transform } from 'node:stream'
import * as zlib from 'node:zlib'

/** A content coding, such as gzip. */
export interface Coding {
  name: string
  compress (body: Buffer, options: object, done: (error: Error | null, compressed: Buffer) => void): void
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
export function negotiate (header: string) {
  const weights = new Map(header.toLowerCase().split(',', maxAccepted).map(accepted => {
    const [name = '', weight = 'q=1'] = accepted.split(';', 2).map(part => part.trim())
    return [name, Number(weight.slice('q='.length))]
  }))
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0
  const [best] = codings.toSorted((a, b) => weightOf(b.name) - weightOf(a.name))
  const isPreferred = best && weightOf(best.name) > 0 && weightOf(best.name) >= (weights.get('identity') ?? 0)
  return { coding: isPreferred ? best : undefined, isRequired: (weights.get('identity') ?? weights.get('*')) === 0 }
}
